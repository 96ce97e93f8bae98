"""The encoder-decoder: it answers a text, and learns from pairs."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.errors import UsageError
from pellucid.data.batches import Examples, encode_pairs
from pellucid.data.pairs import TextPair
from pellucid.evaluation.evaluate import evaluate_answers, validation_metric
from pellucid.families.family import ModelFamily, export_ctranslate2, export_onnx
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.seq2seq import Seq2Seq
from pellucid.pipelines import Seq2SeqPipeline


def _encode(
    trained: Seq2SeqPipeline, pairs: Sequence[TextPair], *, max_tokens: int, first_target_only: bool
) -> Examples:
    ids = trained.model.config
    frame = trained.source.encode("")  # another program's puts its own begin and end around texts
    return encode_pairs(
        pairs,
        trained.source,
        trained.target,
        max_tokens=max_tokens,
        first_target_only=first_target_only,
        begin=(ids.bos_token_id, *frame[:-1]),
        end=ids.eos_token_id,
    )


def _check_tokenizers(config: Seq2SeqConfig, shared: bool) -> None:
    if config.tie_embeddings == "all" and not shared:
        raise UsageError('model.tie_embeddings = "all" needs tokenizer.shared = true')


SEQ2SEQ = ModelFamily(
    name="pellucid-seq2seq",
    about="An encoder-decoder Transformer.",
    task="answer",
    data="pairs",
    config=Seq2SeqConfig,
    build=Seq2Seq,
    pipeline=Seq2SeqPipeline,
    assemble=lambda model, made, search: Seq2SeqPipeline(model, made[0], made[-1], search),
    tokenizers=lambda trained: [trained.source, trained.target],
    vocabularies=("source_vocab_size", "target_vocab_size"),
    encode=_encode,
    evaluate=evaluate_answers,
    validation=validation_metric,
    export={"onnx": export_onnx, "ctranslate2": export_ctranslate2},
    check_tokenizers=_check_tokenizers,
)
