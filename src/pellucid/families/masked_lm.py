"""The encoder alone: it fills [MASK] in a text, and learns from texts with masked tokens."""

from __future__ import annotations

from pellucid.evaluation.evaluate import encode_targets, evaluate_masked
from pellucid.families.family import ModelFamily, export_onnx
from pellucid.models.config import MaskedLMConfig
from pellucid.models.masked_lm import MaskedLM
from pellucid.pipelines import MaskedLMPipeline

MASKED_LM = ModelFamily(
    name="pellucid-masked-lm",
    about="A Transformer's encoder alone: it fills [MASK] in a text.",
    task="fill",
    data="masked",
    config=MaskedLMConfig,
    build=MaskedLM,
    pipeline=MaskedLMPipeline,
    assemble=lambda model, made, search: MaskedLMPipeline(model, made[0]),
    tokenizers=lambda trained: [trained.tokenizer],
    vocabularies=("vocab_size",),
    added_tokens=1,  # the mask is the vocabulary's last
    encode=encode_targets,
    evaluate=evaluate_masked,
    export={"onnx": export_onnx},
)
