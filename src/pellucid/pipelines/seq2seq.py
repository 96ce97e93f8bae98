"""A trained encoder-decoder: texts in, answers out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.data.tokenizers import Tokenizer
from pellucid.generation import Decodes, compile_model
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn import Recorder
from pellucid.pipelines.base import GenerationPipeline, Reading

# White space after a mark that ends a sentence and any closing quotes or brackets; the marks of
# Chinese and Japanese need none after them.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|(?<=[。！？])")


@dataclass(frozen=True)
class Seq2SeqPipeline(GenerationPipeline):
    """A `Seq2Seq` in eval mode with all that is needed to use it."""

    model: Seq2Seq
    source: Tokenizer
    target: Tokenizer

    @property
    def longest(self) -> int:
        """The most tokens a text may have."""
        return self.model.config.max_position_embeddings

    def parts(self, text: str) -> list[str] | None:
        """Return a text in as few pieces as the model can read, split where sentences end.

        None: a sentence by itself is too long.
        """
        return split_sentences(text, lambda part: len(self.source.encode(part)), self.longest)

    def room(self, source: Sequence[int]) -> int:
        """Return the most tokens that an answer can have next to begin or end."""
        return self.model.config.max_position_embeddings - 1

    def read(self, source: Sequence[int], answer: Sequence[int]) -> Reading:
        """Teacher-force an answer; return its log-probabilities and attention."""
        bos, eos = self.model.config.bos_token_id, self.model.config.eos_token_id
        batch = Batch(Packed.of([source]), Packed.of([[bos, *answer, eos]]))
        with Recorder() as recorder:
            rows, _ = self.model.decode_rows(batch, inference=True)
        log_p, _ = ops.log_softmax(to_host(self.model.output(rows)))
        layers = [name for name in recorder.maps if name.endswith("multihead_attn")]
        weights = np.zeros((len(answer) + 1, len(source)), log_p.dtype)
        if layers:
            weights = to_host(recorder.maps[layers[-1]].weights)[0].mean(axis=0)
        return Reading(log_p[np.arange(len(answer) + 1), [*answer, eos]], weights)

    def speaker(self) -> Decodes:
        """Return what search and sampling decode with, compiled once for many texts."""
        return compile_model(self.model, self.arithmetic)

    def opening(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that the encoder reads."""
        return list(source)

    def written(self, source: Sequence[int], said: Sequence[int]) -> str:
        """Return the text of an answer."""
        return self.target.decode(said)


def split_sentences(text: str, count: Callable[[str], int], longest: int) -> list[str] | None:
    """Return the text in as few pieces of at most `longest` tokens as whole sentences allow.

    `count` returns the tokens of a piece. None: a sentence by itself is too long. A text that is
    short enough comes back as it is; white space between pieces is left out, and a text of nothing
    else comes back empty.

    >>> split_sentences("It rains. Does it? Yes!", len, 18)
    ['It rains. Does it?', 'Yes!']
    """
    if count(text) <= longest:
        return [text]
    pieces: list[str] = []
    start = 0
    for stop in [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]:
        if pieces and count((pieces[-1] + text[start:stop]).strip()) <= longest:
            pieces[-1] += text[start:stop]
        elif text[start:stop].strip():
            pieces.append(text[start:stop])
        start = stop
    pieces = [piece.strip() for piece in pieces] or [""]
    return pieces if all(count(piece) <= longest for piece in pieces) else None
