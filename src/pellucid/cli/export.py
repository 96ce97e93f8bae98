"""`pellucid export MODEL FOLDER`: a trained model for another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tyro

from pellucid.core.errors import UsageError, UserError
from pellucid.interop.ctranslate2 import Quantization, write_ctranslate2
from pellucid.interop.onnx import write_onnx
from pellucid.models import Seq2Seq
from pellucid.pipelines.folder import folder_size, load_model, tokenizer_files


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
    if not isinstance(trained.model, Seq2Seq):
        raise UserError(f"{model}: only encoder-decoders can be exported; this is another model")
    tokenizers = tokenizer_files(trained)
    if to == "onnx":
        if weights != "float32":
            raise UsageError("--weights int8 is CTranslate2's; ONNX graphs hold float32")
        write_onnx(trained.model, folder, tokenizers)
    else:
        source, target = trained.source, trained.target
        write_ctranslate2(trained.model, source, target, folder, weights, tokenizers)
    print(f"{folder}: {folder_size(folder)}")
    return 0


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(export, prog="pellucid export", args=arguments)
