"""The decoder alone: it continues a text, and learns from texts."""

from __future__ import annotations

from pellucid.evaluation.evaluate import encode_targets, evaluate_texts
from pellucid.families.family import ModelFamily, export_ctranslate2, export_onnx
from pellucid.models.causal_lm import CausalLM
from pellucid.models.config import CausalLMConfig
from pellucid.pipelines import CausalLMPipeline

CAUSAL_LM = ModelFamily(
    name="pellucid-causal-lm",
    about="A Transformer's decoder alone: it continues a text.",
    task="continue",
    data="texts",
    config=CausalLMConfig,
    build=CausalLM,
    pipeline=CausalLMPipeline,
    assemble=lambda model, made, search: CausalLMPipeline(
        model, made[0], made[0], search, begins=made[0].begins
    ),
    tokenizers=lambda trained: [trained.tokenizer],
    vocabularies=("vocab_size",),
    encode=encode_targets,
    evaluate=evaluate_texts,
    export={"onnx": export_onnx, "ctranslate2": export_ctranslate2},
)
