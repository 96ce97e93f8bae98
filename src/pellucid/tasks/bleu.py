"""BLEU and chrF, computed by sacreBLEU."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple
from unicodedata import name, normalize

from pellucid.core.errors import optional
from pellucid.tasks.metric import Measured, Metric, check_references

RESAMPLES = 1000


class Figure(NamedTuple):
    """One score of a set of outputs, from 0 to 100."""

    name: str
    value: float
    interval: tuple[float, float] | None
    """95 % bootstrap interval within 0 to 100. None if it was not asked for, and if it does not
    exist: for one output, for a score of 0, or if a resample shares no word with its references."""
    signature: str
    """sacreBLEU's signature, which states how the score was computed: tokenizer, case, smoothing,
    version, seed."""

    def written(self) -> str:
        """Format the score with its interval and signature."""
        between = " (95 %: {:.2f} to {:.2f})".format(*self.interval) if self.interval else ""
        return f"{self.value:.2f}{between}, {self.signature}"


WITHOUT_BLANKS = {
    "CJK": "zh", "HIRAGANA": "char", "KATAKANA": "char", "THAI": "char", "LAO": "char",
    "KHMER": "char", "MYANMAR": "char", "TIBETAN": "char",
}  # fmt: skip
"""sacreBLEU's tokenizer for each script without blanks between words, by the first word of its
letters' Unicode names. The Japanese tokenizer needs MeCab, so Japanese is compared by
characters."""


def tokenizer_for(references: Sequence[Sequence[str]]) -> str:
    """Return the sacreBLEU tokenizer for the script of most letters in references.

    "char" also for a mix of Chinese characters with more than a tenth as many letters of the other
    scripts in `WITHOUT_BLANKS`, as in Japanese.

    >>> tokenizer_for([["我今天去学校上课。"]]), tokenizer_for([["彼は本を読む"]])
    ('zh', 'char')
    >>> tokenizer_for([["오늘 학교에 간다."], ["Er liest 本."]])
    '13a'
    """
    letters = Counter(c for row in references for text in row for c in text if c.isalpha())
    found: Counter[str] = Counter()
    for letter, count in letters.items():
        found[WITHOUT_BLANKS.get(name(letter, "").partition(" ")[0], "13a")] += count
    if found["char"] + found["zh"] <= found["13a"]:
        return "13a"
    return "char" if 10 * found["char"] > found["zh"] else "zh"  # Japanese is half of Chinese signs


def bleu(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    intervals: bool = True,
    tokenize: str | None = None,
) -> tuple[Figure, Figure, Figure]:
    """Compute cased BLEU, lower-cased BLEU and chrF of detokenised outputs.

    Each output has one or more references. Both are normalised to Unicode's NFC, and not further.
    tokenize: name of a sacreBLEU tokenizer; default, `tokenizer_for`: "13a" (mteval-v13a), and
    another one for scripts without blanks between words.

    Source: Papineni et al. 2002, Popović 2015, in the form of Post 2018 (sacreBLEU). The intervals
    are those of its bootstrap (Koehn 2004) with 1,000 samples. The seed is the environment variable
    SACREBLEU_SEED, or 12345.

    Raises `UserError` if sacreBLEU is not installed; `ValueError` if the numbers of outputs and of
    reference lists differ or are 0, or if an output has no reference.

    >>> round(bleu(["A dog runs fast."], [["a dog runs fast."]], intervals=False)[1].value, 6)
    100.0
    """
    check_references(outputs, references)
    check_installed()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    outputs = [normalize("NFC", text) for text in outputs]
    rows = [[normalize("NFC", text) for text in row] for row in references]
    columns = list(zip_longest(*rows))
    how = tokenize or tokenizer_for(rows)
    return (
        _figure("BLEU", BLEU(tokenize=how), outputs, columns, intervals),
        _figure(
            "BLEU lower-cased", BLEU(lowercase=True, tokenize=how), outputs, columns, intervals
        ),
        _figure("chrF", CHRF(), outputs, columns, intervals),
    )


SCORES = {"bleu": True, "bleu_lower": True, "chrf": True}


def compute(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    intervals: bool,
    tokenize: str | None = None,
) -> Measured:
    """Compute BLEU, lower-cased BLEU and chrF as a metric; see `bleu`."""
    figures = dict(zip(SCORES, bleu(outputs, references, intervals, tokenize), strict=True))
    return Measured(
        {name: figure.value for name, figure in figures.items()},
        {name: figure._asdict() for name, figure in figures.items()},
        {figure.name: figure.written() for figure in figures.values()},
    )


def check_installed() -> None:
    """Raise `UserError` if sacreBLEU is missing."""
    optional("sacrebleu", "BLEU and chrF need sacreBLEU, which is not installed", extra="eval")


def _figure(
    name: str, metric: Any, outputs: Sequence[str], columns: Sequence[Any], intervals: bool
) -> Figure:
    """Compute one sacreBLEU metric with its interval and signature."""
    score, interval = metric.corpus_score(outputs, columns, n_bootstrap=1), None
    if intervals and len(outputs) > 1 and score.score > 0:
        try:
            score = metric.corpus_score(outputs, columns, n_bootstrap=RESAMPLES)
        except TypeError:
            # sacreBLEU 2.6 cannot average resamples of which some have no word in common with their
            # references: such a low score has no interval.
            score = metric.corpus_score(outputs, columns, n_bootstrap=1)
        else:  # its JSON is the public way to the interval
            signature = str(metric.get_signature())
            found = json.loads(score.format(width=6, signature=signature, is_json=True))
            middle, half = found["confidence_mean"], found["confidence_var"]
            interval = (max(0.0, middle - half), min(100.0, middle + half))
    return Figure(name, float(score.score), interval, str(metric.get_signature()))


BLEUS = tuple(
    Metric(
        name="bleu" if tokenize is None else f"bleu-{tokenize}",
        about="BLEU, cased and lower-cased, and chrF by sacreBLEU, for sentences"
        + ("" if tokenize is None else f", with its tokenizer {tokenize}"),
        scores=SCORES,
        compute=partial(compute, tokenize=tokenize),
        check=check_installed,
    )
    for tokenize in (None, "13a", "intl", "zh", "char")
)
"""One metric with the tokenizer for the script of the references, and one for each named
tokenizer."""
