"""Task of an encoder alone: it fills [MASK] in a text.

It is trained on texts with masked tokens.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import KINDS, Tokenizer
from pellucid.models.config import MaskedLMConfig
from pellucid.models.masked_lm import MaskedLM, Pooling
from pellucid.tasks.scores import Scores
from pellucid.tasks.task import Task, check_best, check_text, checked_texts, similar

MASK = "[MASK]"
"""The text of a masked token, whatever the tokenizer."""

GLUED = re.compile(r"(?<=\S)(?=\[MASK\])|(?<=\[MASK\])(?=\S)")
"""Boundaries between a mask and other text without white space."""

_HOLE = "\ufffc"  # one character, which a tokenizer joins to no other, while a text is tokenized


class Guess(NamedTuple):
    """One predicted token for a mask, or one predicted label."""

    token: str
    """Text of the token, with the space before it if it is byte-level; or the label."""
    p: float | None
    """Probability of the token, if the model gives one."""
    text: str
    """The whole text with the token in place of its mask; other masks stay. For a label, the text
    or the token that it belongs to."""


Blank = list[Guess]
"""The likeliest tokens for one mask, or labels of one text or token, in descending order."""


@dataclass(frozen=True, repr=False)
class MaskedLMTask(Task):
    """A `MaskedLM` with its tokenizer, which is both `source` and `target`."""

    name = "pellucid-masked-lm"
    about = "A Transformer's encoder alone: it fills [MASK] in a text."
    kind = "fill"
    config_class = MaskedLMConfig
    model_class = MaskedLM
    vocabularies = ("vocab_size",)
    added_tokens = 1  # the mask is the vocabulary's last

    model: MaskedLM

    @property
    def max_source_length(self) -> int:
        """The most tokens that a text may have: two positions are begin and end."""
        return super().max_source_length - 2

    def guesses(self, text: str, best: int = 5) -> list[Blank]:
        """Predict each [MASK] in a text; return the `best` likeliest tokens for each.

        A mask is one token. All masks are predicted at once, so that none sees another's
        prediction. Ties go to the lower id. With another program's tokenizer its own mask, such as
        <mask>, is read as [MASK] too. A warning lists what training never saw. Raises `UserError`
        for a text without [MASK], with more than `max_source_length` tokens, or of which at least
        half was not seen in training, `UsageError` if `best` is below 1 or the text is not a str.
        """
        check_text(text, "guesses")
        check_best(best)
        if not isinstance(self.source, Tokenizer):  # its own way to write a mask, such as <mask>
            text = text.replace(self.source.tokens([self.model.config.mask_id])[0], MASK)
        text = self.spaced(text)
        ids = self._framed(text)
        places = [i for i, token in enumerate(ids) if token == self.model.config.mask_id]
        if not places:
            raise UserError(f"no {MASK} to fill: write it where a token is to be predicted")
        self.warn_unread([text])
        rows = to_host(self.model(Packed.of([ids]), inference=True))
        p = np.exp(ops.log_softmax(rows[places])[0])
        order = np.argsort(-p, axis=1, kind="stable")[:, :best]
        pieces = text.split(MASK)
        return [
            [self._guess(int(token), float(row[token]), pieces, i) for token in tokens]
            for i, (row, tokens) in enumerate(zip(p, order, strict=True))
        ]

    def embed(self, texts: Iterable[str], pooling: Pooling = "mean") -> np.ndarray:
        """Embed texts; return an array (N, E) with one vector per text.

        pooling: see `MaskedLM.embeddings`. Texts of similar length are computed together. A warning
        lists what training never saw. Raises `UserError` for a text with more than
        `max_source_length` tokens, or of which at least half was not seen in training; `UsageError`
        for a single str in place of a list, or what is no text.
        """
        texts = checked_texts(texts, "embed", self.columns)
        rows = [self._framed(text) for text in texts]
        self.warn_unread(texts)
        found = np.zeros((len(rows), self.model.config.d_model), self.model.dtype)
        for together in similar(rows):
            packed = Packed.of([rows[i] for i in together])
            found[together] = to_host(self.model.embeddings(packed, pooling))
        return found

    def unread(self, text: str) -> list[str]:
        """Return the characters or words of a text that have no token; masks are ignored."""
        return super().unread(self.spaced(text).replace(MASK, ""))

    def _framed(self, text: str) -> list[int]:
        """Return the token ids of a text between begin and end tokens."""
        config = self.model.config
        return [config.bos_token_id, *self.token_ids(text), config.eos_token_id]

    def _read(self, text: str, answer: str | None) -> dict[str, Sequence[int]]:
        """Run the model on a text, for observers.

        Return the token ids that its stack read.
        """
        ids = self._framed(text)
        self.model.rows(Packed.of([ids]), inference=True)
        return {"encoder": ids}

    def spaced(self, text: str) -> str:
        """Put a space between each [MASK] and the text next to it if the tokens are words."""
        words = getattr(self.source, "kind", None) == "word"
        return GLUED.sub(" ", text) if words else text

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text without begin and end; each [MASK] is one token.

        A byte-level token includes the space before it, so a space before a mask is dropped. Raises
        `UserError` for more than `max_source_length` tokens, and for a text of which at least half
        was not seen in training.
        """
        self.check_seen(self.spaced(text).replace(MASK, ""))
        if isinstance(self.source, Tokenizer):
            ids = self._encode_around_holes(self.source, self.spaced(text))
        else:
            (written,) = self.source.tokens([self.model.config.mask_id])
            ids = self.source.encode(text.replace(MASK, written))
        if len(ids) > self.max_source_length:
            raise UserError(
                f"{len(ids)} tokens, more than the {self.max_source_length} that this model can "
                "read; shorten it"
            )
        return ids

    def _completed(
        self, scores: Scores, batches: Sequence[Batch], pairs: Sequence[TextPair], metric: str
    ) -> Scores:
        """Add the accuracy: the share of masked tokens whose likeliest prediction is right."""
        each = zip(*map(self.model.predicted, batches), strict=True)
        found, right = map(np.concatenate, each)
        return replace(scores, accuracy=float((found == right).sum() / max(len(right), 1)))

    def _encode_around_holes(self, tokenizer: Tokenizer, text: str) -> list[int]:
        """Tokenize a text with each mask replaced by one character; return the token ids.

        The tokens that contain such a character become the mask token. The text is tokenized as a
        whole because a token may depend on the text around it.
        """
        left, *rest = text.split(MASK)
        holes = set()
        for piece in rest:
            left = left.rstrip() if KINDS[tokenizer.kind].bytewise else left
            holes.add(len(left))
            left += _HOLE + piece
        ids: list[int] = []
        last = -1  # the hole whose mask was put last
        for token, start, end in tokenizer.spans(left):
            inside = [i for i in range(start, end) if i in holes]
            if not inside:
                ids.append(token)
            for hole in inside:
                if hole != last:
                    ids.append(self.model.config.mask_id)
                last = hole
        return ids

    def _guess(self, token: int, p: float, pieces: Sequence[str], i: int) -> Guess:
        """Make the guess of a token for mask i; `pieces` is the text split at its masks."""
        is_mask = token == self.model.config.mask_id
        written = MASK if is_mask else self.source.tokens([token])[0]
        before, after = MASK.join(pieces[: i + 1]), MASK.join(pieces[i + 1 :])
        glued = isinstance(self.source, Tokenizer) and KINDS[self.source.kind].bytewise
        if glued or written.startswith((" ", "##")):
            before = before.rstrip()
        return Guess(written, p, (before + written.removeprefix("##") + after).strip())
