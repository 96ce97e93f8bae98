"""`pellucid export MODEL FOLDER`: a trained model for another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pellucid.core.errors import UserError
from pellucid.families import family_of
from pellucid.families.folder import folder_size, load_model, tokenizer_files
from pellucid.interop.ctranslate2 import Quantization


def export(
    model: Path,
    folder: Path,
    /,
    *,
    to: Literal["ctranslate2", "onnx"],
    weights: Quantization = "float32",
    accept_changes: bool = False,
) -> int:
    """Write a trained encoder-decoder for another engine, with its tokenizers.

    Needs the packages of the extra `export`.

    Args:
        model: A model folder or a run folder.
        folder: Where the new folder goes.
        to: ctranslate2: a folder for ctranslate2.Translator; onnx: encoder.onnx, and decoder.onnx
            with its key/value cache.
        weights: float32, or for CTranslate2 int8: a quarter of the bytes.
        accept_changes: Take a model whose files were changed after it was saved.
    """
    trained = load_model(model, accept_changes)
    write = family_of(trained).export.get(to)
    if write is None:
        raise UserError(
            f"{model}: is a {type(trained.model).__name__}, which cannot be exported to {to}; this "
            "needs an encoder-decoder"
        )
    write(trained, folder, weights, tokenizer_files(trained))
    print(f"{folder}: {folder_size(folder)}")
    return 0
