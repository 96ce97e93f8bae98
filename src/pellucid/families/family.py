"""The record of one model family: all that the rest of Pellucid knows of a kind of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pellucid.core.errors import UsageError, UserError
from pellucid.data.batches import Examples
from pellucid.data.tokenizers import Tokenizer
from pellucid.evaluation.evaluate import HeldOut, Scores
from pellucid.generation import SearchConfig

Encode = Callable[..., Examples]
Export = Callable[[Any, Path, str, Mapping[str, bytes]], None]


def export_onnx(trained: Any, folder: Path, weights: str, files: Mapping[str, bytes]) -> None:
    """Write a model of any family as ONNX graphs."""
    from pellucid.interop.onnx import write_onnx  # loading a model stays quick without it

    if weights != "float32":
        raise UsageError("--weights int8 is CTranslate2's; ONNX graphs hold float32")
    write_onnx(trained.model, folder, files)


def export_ctranslate2(
    trained: Any, folder: Path, weights: Any, files: Mapping[str, bytes]
) -> None:
    """Write a model that generates for CTranslate2. Its tokenizers must be ours."""
    from pellucid.interop.ctranslate2 import write_ctranslate2

    if not isinstance(trained.target, Tokenizer):
        raise UserError(
            "for a model of Hugging Face's CTranslate2 has its own ct2-transformers-converter, "
            "which knows its tokenizer; pellucid export --to huggingface writes what that reads"
        )
    write_ctranslate2(trained.model, trained.source, trained.target, folder, weights, files)


@dataclass(frozen=True)
class ModelFamily:
    """A model, its configuration, its pipeline, and how it is trained, evaluated and shown.

    A new family is one file with such a record, and its row in `FAMILIES`.
    """

    name: str
    """`model_type` in config.json and in recipes."""
    about: str
    """One sentence for model cards."""
    task: Literal["answer", "continue", "fill"]
    """What it does with a text: answers it, continues it, or fills [MASK] in it."""
    data: Literal["pairs", "texts", "masked"]
    """What it learns from: pairs, whole texts, or texts of which some tokens are masked."""
    config: type[Any]
    build: Callable[..., Any]
    """build(config, seed=0) -> the model, with its initial weights."""
    pipeline: type[Any]
    assemble: Callable[[Any, Sequence[Any], SearchConfig], Any]
    """assemble(model, tokenizers, search) -> the pipeline; one tokenizer may serve two sides."""
    tokenizers: Callable[[Any], list[Any]]
    """tokenizers(pipeline) -> one for each vocabulary."""
    vocabularies: tuple[str, ...]
    """The settings that hold the vocabularies' sizes, the source's first."""
    encode: Encode
    """encode(pipeline, pairs, max_tokens=, first_target_only=) -> examples as the model reads them.
    """
    evaluate: Callable[[Any, HeldOut, str], Scores]
    """evaluate(pipeline, held-out data, metric) -> scores."""
    validation: Callable[..., Callable[[Any], Mapping[str, float]]] | None = None
    """validation(pipeline, pairs, metric, most) -> what scores answers to at most so many held-out
    pairs while training; None where there are no answers to score."""
    added_tokens: int = 0
    """Entries of the last vocabulary that are no tokens of its tokenizer."""
    export: Mapping[str, Export] = field(default_factory=dict)
    """By engine: write(pipeline, folder, weights, further files)."""
    check_tokenizers: Callable[[Any, bool], None] = lambda config, shared: None
    """check_tokenizers(config, shared) raises `UsageError` when they cannot go together."""

    @property
    def generates(self) -> bool:
        """Whether it generates text token by token, so that there are search settings."""
        return self.task != "fill"

    def tokens(self, config: Any) -> list[int]:
        """Return how many tokens the tokenizer of each vocabulary has."""
        sizes = [getattr(config, name) for name in self.vocabularies]
        return [*sizes[:-1], sizes[-1] - self.added_tokens]

    def sized(self, config: Any, tokenizers: Sequence[Tokenizer]) -> Any:
        """Return the configuration with vocabularies as large as the tokenizers.

        tokenizers: the source's and the target's; they may be one.
        """
        ends = (tokenizers[0], tokenizers[-1]) if len(self.vocabularies) == 2 else tokenizers[-1:]
        sizes = [tokenizer.vocab_size for tokenizer in ends]
        sizes[-1] += self.added_tokens
        return replace(config, **dict(zip(self.vocabularies, sizes, strict=True)))
