"""`pellucid export MODEL FOLDER`: a trained model for another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tyro

from pellucid.core.errors import UserError
from pellucid.families import family_of
from pellucid.families.folder import folder_size, load_model, tokenizer_files
from pellucid.interop.ctranslate2 import Quantization


def export(
    model: tyro.conf.Positional[Path],
    folder: tyro.conf.Positional[Path],
    /,
    *,
    to: Literal["ctranslate2", "onnx"],
    weights: Quantization = "float32",
) -> int:
    """Write a trained encoder-decoder for another engine, its tokenizers beside it.

    Needs the packages of pellucid[export].

    Args:
        model: A model folder, or its run's.
        folder: Where the new folder goes.
        to: ctranslate2: a folder for ctranslate2.Translator; onnx: encoder.onnx, and decoder.onnx
            with its past.
        weights: float32; int8, for CTranslate2 only: a quarter of the bytes.
    """
    trained = load_model(model)
    write = family_of(trained).export.get(to)
    if write is None:
        raise UserError(
            f"{model}: is a {type(trained.model).__name__}, which cannot be exported to {to}; this "
            "needs an encoder-decoder"
        )
    write(trained, folder, weights, tokenizer_files(trained))
    print(f"{folder}: {folder_size(folder)}")
    return 0


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(export, prog="pellucid export", args=arguments)
