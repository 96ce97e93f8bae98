"""Generate a corpus of invented Turkish nouns with their forms.

It needs no download. The task is inflection. The nouns are drawn syllable by syllable; a few of the
short ones happen to be real words. Their endings follow the rules of Turkish without its
exceptions, so a model that has learnt all rules makes no errors, unlike with real words.
"""

from itertools import product

from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair, hash_fraction, split_by_hash

NOUNS, FORMS = 1250, 8
BACK, FRONT = "aıou", "eiöü"
FIRST, LAST = "bcdfghjklmnprsştvyz", "çfhkklmnprstşyz"
VOICELESS, SOFTENED = "çfhkpsşt", str.maketrans("pçtk", "bcdğ")
OWNERS = {"": "", "PSS1S": "Im", "PSS2S": "In", "PSS3S": "I"}
CASES = {"NOM": "", "ACC": "I", "DAT": "A", "LOC": "DA", "ABL": "DAn", "GEN": "In"}
CELLS = tuple(product(("SG", "PL"), OWNERS, CASES))


def _drawn(choices: str, *place: object) -> str:
    """Draw one of the choices, by a hash of `place`."""
    return choices[int(hash_fraction(repr(place)) * len(choices))]


def _noun(number: int) -> str:
    """Make noun `number`: one to three syllables, with vowel harmony in six of seven."""
    syllables = int(_drawn("12223", number, "syllables"))
    vowels = _drawn("bbbfffm", number, "vowels")
    kind = {"b": BACK, "f": FRONT, "m": BACK + FRONT}[vowels]
    parts = (_drawn(FIRST, number, i) + _drawn(kind, number, i, "v") for i in range(syllables))
    closed = syllables == 1 or _drawn("yyn", number, "closed") == "y"
    return "".join(parts) + (_drawn(LAST, number, "last") if closed else "")


def _vowels(word: str) -> list[str]:
    """Return the vowels of a word."""
    return [letter for letter in word if letter in BACK + FRONT]


def _with(word: str, ending: str) -> str:
    """Add an ending to a word by vowel harmony and consonant softening.

    In the ending A stands for a or e and I for ı, i, u or ü, by the last vowel of the word; D for d
    or t.

    >>> _with("kitap", "I"), _with("kitap", "lAr"), _with("kitap", "DA"), _with("top", "A")
    ('kitabı', 'kitaplar', 'kitapta', 'topa')
    """
    if ending[:1] in ("A", "I") and len(_vowels(word)) > 1:
        word = word[:-1] + word[-1].translate(SOFTENED)
    for letter in ending:
        last = _vowels(word)[-1]
        if letter == "A":
            letter = "a" if last in BACK else "e"
        elif letter == "I":
            letter = "ııuuiiüü"["aıoueiöü".index(last)]
        elif letter == "D":
            letter = "t" if word[-1] in VOICELESS else "d"
        word += letter
    return word


def decline(noun: str, number: str, owner: str, case: str) -> str:
    """Return the form of a noun for a number, an owner and a case.

    number: "SG" or "PL". owner: a key of `OWNERS`, "" for none. case: a key of `CASES`.

    >>> decline("araba", "SG", "PSS3S", "LOC"), decline("araba", "SG", "", "DAT")
    ('arabasında', 'arabaya')
    >>> decline("ev", "PL", "PSS1S", "ABL"), decline("ekmek", "SG", "", "ACC")
    ('evlerimden', 'ekmeği')
    """
    word = noun if number == "SG" else _with(noun, "lAr")
    if owner:
        ending = OWNERS[owner]
        if word[-1] in BACK + FRONT:
            ending = "sI" if owner == "PSS3S" else ending[1:]
        word = _with(word, ending)
    ending = CASES[case]
    if ending and owner == "PSS3S":
        ending = "n" + ending
    elif ending[:1] in ("A", "I") and word[-1] in BACK + FRONT:
        ending = ("n" if case == "GEN" else "y") + ending
    return _with(word, ending)


def read_inflections(_: Contents, __: str) -> Splits:
    """Generate invented Turkish nouns and eight forms of each.

    A source is a noun, a tab and the features of a form, the target the form. All forms of a noun
    are on one side of the split. Both arguments are ignored.
    """
    nouns = dict.fromkeys(_noun(number) for number in range(2 * NOUNS))  # some are drawn twice
    pairs = []
    for noun in [noun for noun in nouns if len(noun) > 2][:NOUNS]:
        chosen = sorted(CELLS, key=lambda cell: hash_fraction(repr((noun, cell))))[:FORMS]
        for number, owner, case in chosen:
            features = ";".join(part for part in ("N", case, number, owner) if part)
            pairs.append(TextPair(f"{noun}\t{features}", (decline(noun, number, owner, case),)))
    lemma = lambda pair: pair.source.partition("\t")[0]  # noqa: E731
    return split_by_hash(pairs, valid=0.1, test=0.1, key=lemma)
