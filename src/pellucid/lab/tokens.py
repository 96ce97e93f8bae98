"""A study's own tokenizer.json, of any kind that Hugging Face's library reads."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from pellucid.core.errors import UserError
from pellucid.data.tokenizers import BOS, EOS, SPECIALS, Tokenizer


class Framed(Tokenizer):
    """Puts the begin and end tokens round every text, as seed 003 does with its sources too."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts."""
        return [[BOS, *ids, EOS] for ids in super().encode_all(texts)]


def file_tokenizers(text: str, frame_source: bool) -> tuple[Tokenizer, Tokenizer]:
    """Return the source's and the target's tokenizer from the text of one tokenizer.json.

    Raises `UserError` unless ids 0 to 3 are padding, begin, end and unknown.
    """
    try:
        cores = [tokenizers.Tokenizer.from_str(text) for _ in range(2)]
    except Exception as error:  # the library raises bare Exception for every fault in the file
        raise UserError(f"the study's tokenizer is damaged ({error}); copy it again") from None
    found = [cores[0].token_to_id(name) for name in SPECIALS]
    if found != list(range(len(SPECIALS))):
        raise UserError(
            f"the study's tokenizer: expected {', '.join(SPECIALS)} as ids 0 to 3, got {found}"
        )
    # "bpe" here says only that no list of unknown characters can be made from the vocabulary.
    source = (Framed if frame_source else Tokenizer)(cores[0], "bpe")
    return source, Tokenizer(cores[1], "bpe") if frame_source else source
