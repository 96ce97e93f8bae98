"""`pellucid store MODEL FOLDER`: the same model in fewer bytes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import tyro

from pellucid.core.errors import UserError
from pellucid.families.folder import CARD, find_model, folder_size, load_model, save_model
from pellucid.models.quantize import WeightFormat
from pellucid.training.card import note_quantized


def store(
    model: tyro.conf.Positional[Path],
    folder: tyro.conf.Positional[Path],
    /,
    *,
    store: WeightFormat = "float16",
) -> int:
    """Write a trained model again, with its weights in another form, and say both sizes.

    Arithmetic stays float32: the weights are turned back when the model is loaded.

    Args:
        model: A model folder, or its run's.
        folder: Where the new model folder goes.
        store: float32; float16: half the bytes; int8: a quarter, each row of a matrix with a scale.
    """
    trained, old = load_model(model), find_model(model)
    if folder.exists():
        raise UserError(f"{folder}: is there already; choose another folder")
    card = (old / CARD).read_bytes() if (old / CARD).is_file() else b""
    with suppress(UnicodeDecodeError):  # a card that cannot be read is carried over as it is
        card = note_quantized(card.decode(), store).encode()
    save_model(folder, trained, card, store)
    print(f"{old}: {folder_size(old)}\n{folder}: {folder_size(folder)}, weights stored as {store}")
    return 0


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(store, prog="pellucid store", args=arguments)
