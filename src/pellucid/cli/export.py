"""`pellucid export MODEL FOLDER`: a trained model for another engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pellucid.cli.options import parse
from pellucid.core.errors import UsageError, UserError
from pellucid.interop.ctranslate2 import Quantization, write_ctranslate2
from pellucid.interop.onnx import write_onnx
from pellucid.models import Seq2Seq
from pellucid.pipelines.folder import folder_size, load_model, tokenizer_files


def export(
    model: Path,
    folder: Path,
    /,
    *,
    to: Literal["ctranslate2", "onnx"],
    weights: Quantization = "float32",
) -> int:
    """Write a trained encoder-decoder for another engine, with its tokenizers.

    Needs the packages of the extra `export`.

    Args:
        model: A model folder or a run folder.
        folder: Where the new folder goes.
        to: ctranslate2: a folder for ctranslate2.Translator; onnx: encoder.onnx, and decoder.onnx
            with its key/value cache.
        weights: float32, or for CTranslate2 int8: a quarter of the bytes.
    """
    trained = load_model(model)
    if not isinstance(trained.model, Seq2Seq):
        raise UserError(f"{model}: only an encoder-decoder can be exported; this is another model")
    tokenizers = tokenizer_files(trained)
    if to == "onnx":
        if weights != "float32":
            raise UsageError("--weights int8 is for CTranslate2 only; ONNX files hold float32")
        write_onnx(trained.model, folder, tokenizers)
    else:
        source, target = trained.source, trained.target
        write_ctranslate2(trained.model, source, target, folder, weights, tokenizers)
    print(f"{folder}: {folder_size(folder)}")
    return 0


def run(arguments: list[str]) -> int:
    """Run the command."""
    return parse(export, "export", arguments)
