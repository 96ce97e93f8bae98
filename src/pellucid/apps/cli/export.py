"""`pellucid export MODEL FOLDER`: write a trained model for another engine."""

import json
from pathlib import Path
from typing import Any, Literal

from pellucid.core.errors import UsageError, UserError
from pellucid.data.tokenizers import Tokenizer
from pellucid.interop.ctranslate2 import Quantization, write_ctranslate2
from pellucid.interop.huggingface import write_pretrained
from pellucid.interop.onnx import write_onnx
from pellucid.tasks import ClassifierTask
from pellucid.tasks.folder import find_model, folder_size, load_model, model_files, tokenizers_in


def export(
    model: Path,
    folder: Path,
    /,
    *,
    to: Literal["ctranslate2", "onnx", "huggingface"],
    weights: Quantization = "float32",
    accept_changes: bool = False,
) -> int:
    """Write a trained model for another engine, with its tokenizers.

    ctranslate2 and onnx need the packages of the extra `export`, and ctranslate2 a model that
    generates, with a tokenizer of Pellucid's; huggingface takes a model that was read from a
    Hugging Face folder, or trained on from one.

    Args:
        model: A model folder or a run folder.
        folder: Where the new folder goes.
        to: ctranslate2: a folder for ctranslate2.Translator, or Generator for a decoder alone;
            onnx: encoder.onnx, and decoder.onnx with its key/value cache, or the one that the model
            has; huggingface: a folder for transformers.
        weights: float32, or for CTranslate2 int8: a quarter of the bytes.
        accept_changes: Take a model whose files were changed after it was saved.
    """
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    if to != "ctranslate2" and weights != "float32":
        raise UsageError(f"--weights {weights} is CTranslate2's; leave it out for {to}")
    trained: Any = load_model(model, accept_changes)
    source = find_model(model)
    if to == "huggingface":
        _export_huggingface(trained, source, folder)
    elif to == "ctranslate2" and not trained.generates:
        raise UserError(
            f"{model}: is a {type(trained.model).__name__}, which cannot be exported to {to}; this "
            "needs a model that generates"
        )
    elif to == "ctranslate2":
        _export_ctranslate2(trained, source, folder, weights)
    else:
        files = tokenizers_in(source)
        if isinstance(trained, ClassifierTask):
            files["labels.json"] = json.dumps(trained.label_names, ensure_ascii=False).encode()
        write_onnx(trained.model, folder, files)
    print(f"{folder}: {folder_size(folder)}")
    return 0


def _export_ctranslate2(trained: Any, model: Path, folder: Path, weights: Quantization) -> None:
    """Write a model for CTranslate2.

    Raises `UserError` for another program's tokenizer, and those of `write_ctranslate2`.
    """
    if not isinstance(trained.target, Tokenizer):
        raise UserError(
            "for a model of Hugging Face's CTranslate2 has its own ct2-transformers-converter, "
            "which knows its tokenizer; pellucid export --to huggingface writes what that reads"
        )
    files = tokenizers_in(model)
    write_ctranslate2(trained.model, trained.source, trained.target, folder, weights, files)


def _export_huggingface(trained: Any, model: Path, folder: Path) -> None:
    """Write a model for transformers.

    Raises `UserError` unless it was read from a Hugging Face folder, or trained on from one.
    """
    if not model_files(model)[0]:
        raise UserError(
            f"{model}: was not read from a Hugging Face folder, so that transformers does not have "
            "it; --to onnx writes it, and --to ctranslate2 one that generates"
        )
    write_pretrained(trained.model, model, folder)
