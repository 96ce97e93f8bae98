"""Train article 003's WordPiece vocabulary: `python scripts/article_tokenizer.py OUT.json`.

The WordPiece trainer of `tokenizers` is not deterministic, so the file it wrote once is kept next
to the study (studies/article-003.tokenizer.json); a second run writes a slightly
different one. The settings are the article's: BertWordPieceTokenizer without lower-casing or
stripping accents, vocab_size 32,000, min_frequency 3, limit_alphabet 6,000, questions and answers
together.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

from pellucid.data.corpora import load_corpus
from pellucid.data.tokenizers import SPECIALS


def main(path: Path) -> None:
    """Train the tokenizer, write it to `path`, and print its size."""
    pairs = load_corpus("chatbot-ko", "all").train
    tokenizer = BertWordPieceTokenizer(unk_token=SPECIALS[3], strip_accents=False, lowercase=False)
    tokenizer.train_from_iterator(
        [text for pair in pairs for text in (pair.source, *pair.targets)],
        vocab_size=32_000,
        min_frequency=3,
        limit_alphabet=6_000,
        # Ours first, then the three that the article's trainer adds and its model never sees.
        special_tokens=[*SPECIALS, "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False,
    )
    core = tokenizer._tokenizer
    core.post_processor = None
    path.write_text(core.to_str() + "\n", encoding="utf-8")
    lengths = [len(core.encode(text).ids) + 1 for pair in pairs for text in pair.targets]
    print(f"V = {core.get_vocab_size():,}; {sum(lengths) / len(lengths):.3f} loss tokens an answer")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
