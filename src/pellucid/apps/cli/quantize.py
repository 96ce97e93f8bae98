"""`pellucid quantize MODEL FOLDER`: write a smaller copy of a model."""

from contextlib import suppress
from pathlib import Path

from pellucid.core.errors import UserError
from pellucid.interop.huggingface import write_pretrained
from pellucid.models.quantize import WeightFormat
from pellucid.tasks.folder import CARD, find_model, folder_size, load_model, model_files, save_model
from pellucid.training.card import note_quantized


def quantize(
    model: Path,
    folder: Path,
    /,
    *,
    weights: WeightFormat = "float16",
    accept_changes: bool = False,
) -> int:
    """Write a copy of a trained model with smaller weights, and print both sizes.

    A copy in int8 also generates in int8 arithmetic, several times faster, with answers that are
    near, not the same. Everything else, and all of a copy in float16, computes in float32.

    Args:
        model: A model folder or a run folder.
        folder: Where the new model folder goes.
        weights: float16: half the bytes of float32; int8: a quarter, a scale for each row.
        accept_changes: Take a model whose files were changed after it was saved.
    """
    trained, old = load_model(model, accept_changes), find_model(model)
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    card = (old / CARD).read_bytes() if (old / CARD).is_file() else b""
    with suppress(UnicodeDecodeError):  # a card that cannot be read is copied as it is
        card = note_quantized(card.decode(), weights).encode()
    if model_files(old)[0]:
        further = {CARD: card} if card else {}
        write_pretrained(trained.model, old, folder, further, weights)
    else:
        save_model(folder, trained, card, weights)
    print(f"{old}: {folder_size(old)}")
    print(f"{folder}: {folder_size(folder)}, weights stored as {weights}")
    return 0
