"""Every page of the documentation has a Korean page that says the same, section by section."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import differences as differences_script
import korean
import results

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (
    "decoding",
    "differences",
    "families",
    "findings",
    "glossary",
    "lab",
    "labels",
    "quality",
    "robustness",
    "scale",
    "serve",
    "speed",
    "view",
)
CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
SPELLED = 100
"""Below this a number may be a word in English, as in five minutes, and digits in Korean."""


def sections(text: str) -> list[tuple[str, str]]:
    """Split a page at its headings: (heading, text below it without code)."""
    parts = re.split(r"^(#+ .*)$", CODE.sub("", text), flags=re.MULTILINE)
    assert not parts[0].strip(), "a page begins with its heading"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def code(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of every block of code, comments and their gaps left out."""
    found = []
    for language, body in CODE.findall(text):
        lines = (re.sub(r"\s*(?<!\S)# .*", "", line) for line in body.splitlines())
        found.append((language, "\n".join(lines)))
    return found


def same_code(wanted: tuple[str, str], body: tuple[str, str]) -> bool:
    """Compare two blocks; of a session in Korean, which another test runs, only the command."""
    if "$ pellucid --lang ko " not in body[1]:
        return wanted == body
    command = body[1].replace("--lang ko ", "").partition("\n")[0]
    return command == wanted[1].partition("\n")[0]


def tables(text: str) -> list[list[str]]:
    """Return the rows of a page as their cells."""
    rows = re.findall(r"^\|(.*)\|$", CODE.sub("", text), re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def numbers(text: str) -> Counter[str]:
    """Count the figures of a text; 2 million counts as the 200만 that Korean writes."""

    def in_korean(match: re.Match[str]) -> str:
        return f"{float(match[1]) * 100:.0f}"

    return Counter(NUMBER.findall(re.sub(r"(\d+(?:\.\d+)?) million", in_korean, text)))


def lost_and_more(english: str, korean: str) -> tuple[list[str], list[str]]:
    """Return the figures that the Korean text lacks, and those that only it has."""
    has, want = numbers(korean), numbers(english)
    more = [n for n in (has - want).elements() if not n.isdigit() or int(n) >= SPELLED]
    return list((want - has).elements()), more


def links(text: str) -> list[str]:
    """Return the targets of a text's links, Korean pages by their English names."""
    return sorted(target.replace(".ko.", ".") for target in re.findall(r"\]\(([^)]+)\)", text))


def differences(english: str, korean: str) -> list[str]:
    """Return what the Korean page has otherwise than the English one, a line for each thing."""
    ours, theirs = sections(korean), sections(english)
    if [head.split()[0] for head, _ in ours] != [head.split()[0] for head, _ in theirs]:
        return [f"headings: {[h for h, _ in theirs]} in English, {[h for h, _ in ours]} in Korean"]
    found = []
    for (head, expected), (name, text) in zip(theirs, ours, strict=True):
        where = f"{head} ({name})"
        if links(expected) != links(text):
            found.append(f"{where}: links {links(expected)} in English, {links(text)} in Korean")
        rows, theirs_rows = tables(text), tables(expected)
        if len(rows) != len(theirs_rows):
            found.append(f"{where}: {len(theirs_rows)} rows in English, {len(rows)} in Korean")
        for row, wanted in zip(rows, theirs_rows, strict=False):
            told = [lost_and_more(*cells) for cells in zip(wanted, row, strict=False)]
            if len(row) != len(wanted) or any(map(any, told)):
                found.append(f"{where}: row {' | '.join(wanted)} is {' | '.join(row)}")
        lost, more = lost_and_more(expected, text)
        if lost:
            found.append(f"{where}: not in the Korean text: {', '.join(lost)}")
        if more:
            found.append(f"{where}: only in the Korean text: {', '.join(more)}")
    for wanted, body in zip(code(english), code(korean), strict=False):
        if not same_code(wanted, body):
            found.append(f"code: {wanted[1]!r} is {body[1]!r}")
    if len(code(english)) != len(code(korean)):
        found.append(f"code: {len(code(english))} blocks, {len(code(korean))} in Korean")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_korean_page_has_the_same_sections_numbers_code_and_links(name: str) -> None:
    english, ours = (
        (DOCS / f"{name}{ending}").read_text(encoding="utf-8") for ending in (".md", ".ko.md")
    )
    assert differences(english, ours) == []


def test_a_difference_is_named() -> None:
    english = (
        "# Page\n\nUp to 1.5 by [this](a.md).\n\n| a | 2 million |\n\n```\nx = 1  # one\n```\n"
    )
    same = "# 쪽\n\n[여기](a.ko.md): 1.5까지, 5분.\n\n| 가 | 200만 |\n\n```\nx = 1  # 일\n```\n"
    assert differences(english, same) == []
    for old, new, told in (
        ("1.5까지", "1.6까지", "not in the Korean text: 1.5"),
        ("5분", "5.5분", "only in the Korean text: 5.5"),
        ("200만", "20만", "row a | 2 million is 가 | 20만"),
        ("a.ko.md", "b.md", "links ['a.md'] in English, ['b.md'] in Korean"),
        ("x = 1", "x = 2", "'x = 2"),
        ("# 쪽", "# 쪽\n\n## 더", "headings"),
    ):
        assert told in "\n".join(differences(english, same.replace(old, new)))


@pytest.mark.parametrize("name", PAGES)
def test_hangul_does_not_break_the_markup(name: str) -> None:
    """Two tildes strike a text out; ** between a bracket and a letter ends nothing."""
    text = CODE.sub("", (DOCS / f"{name}.ko.md").read_text(encoding="utf-8"))
    assert not re.search(r"\S~\S", re.sub("`[^`]*`", "", text))
    for before, inside, after in re.findall(r"(^|.)\*\*(.+?)\*\*(.|$)", text, re.MULTILINE):
        assert not (re.match(r"\w", after) and re.match(r"\W", inside[-1])), inside
        assert not (re.match(r"\w", before) and re.match(r"\W", inside[0])), inside


SOURCES = (
    *sorted(DOCS.rglob("*.ko.md")),
    ROOT / "README.ko.md",
    ROOT / "scripts" / "korean.toml",
    ROOT / "scripts" / "website" / "korean.toml",
    ROOT / "viewer" / "src" / "text.ts",
    ROOT / "viewer" / "src" / "chapters.ts",
    *sorted((ROOT / "examples").glob("*.ko.py")),
    *sorted((ROOT / "src" / "pellucid" / "apps" / "teach").rglob("*.ko.md")),
    *sorted((ROOT / "src" / "pellucid" / "apps").rglob("*.toml")),
)
"""Everything that is written in Korean."""
QUOTED = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"(?=[^\n]*(?:글|라고|는 말))|《[^》]*》")
PARTICLES = (
    "이|가|은|는|을|를|과|와|의|에|도|만|로|으로|이나|나|마다|에서|까지|보다|처럼|이고|이며|인"
)


def rejected_words() -> list[str]:
    rows = tables((DOCS / "glossary.ko.md").read_text(encoding="utf-8"))[2:]
    return [word for *_, cell in rows for word in cell.split(", ") if word != "–"]


def rejected(text: str) -> list[str]:
    """Return the rejected words of a text, with what follows them; code and quotations left out."""
    prose = QUOTED.sub("", CODE.sub("", text))
    words = "|".join(rejected_words())
    pattern = rf"(?<![가-힣])(?<!변동 )(?:{words})들?(?:{PARTICLES})?(?![가-힣])"
    return re.findall(pattern, prose)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_one_korean_word_for_one_thing(path: Path) -> None:
    if path.name != "glossary.ko.md":
        assert rejected(path.read_text(encoding="utf-8")) == []


def test_a_rejected_word_is_found() -> None:
    text = "너비(폭이 아니라)와 보폭, 폭주, 하이퍼매개변수. 매개변수는 `폭`이다.\n```\n폭\n```\n"
    assert rejected(text) == ["폭이", "매개변수는"]
    assert len(rejected_words()) > 30


PLAIN_STYLE = ("findings.ko.md", "lab.ko.md", "python.ko.md")
"""Pages whose tables still end sentences in 한다; those of findings are claims to be tested."""


def plain_sentences(cell: str) -> list[str]:
    """Return the ends of sentences in 한다, where tables and help have 합니다."""
    ends = re.findall(r"[가-힣]+(?<!니)다(?=[.(]|\s*$|: )", cell)
    return [end for end in ends if not end.endswith(("마다", "보다"))]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.ko.md")), ids=lambda path: path.name)
def test_tables_are_polite(path: Path) -> None:
    cells = [cell for row in tables(path.read_text(encoding="utf-8")) for cell in row]
    found = [end for cell in cells for end in plain_sentences(cell)]
    assert bool(found) == (path.name in PLAIN_STYLE), found


def test_help_is_polite() -> None:
    path = ROOT / "src" / "pellucid" / "apps" / "cli" / "korean.toml"
    help_texts = tomllib.loads(path.read_text(encoding="utf-8"))
    texts = [*help_texts.pop("errors").values(), *help_texts.values()]
    assert [end for text in texts for end in plain_sentences(text)] == []
    assert plain_sentences("더한다(예). 스텝마다 더합니다: 같다") == ["더한다", "같다"]


def test_the_pages_of_differences_are_up_to_date() -> None:
    assert differences_script.main(["--check"]) == 0, "run: python scripts/differences.py"


def test_every_word_of_the_generated_pages_is_used() -> None:
    used: set[str] = set()
    recorded = korean.key_of

    def key_of(text: str) -> str:
        used.add(recorded(text))
        return recorded(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(korean, "key_of", key_of)
        differences_script.pages()
        for path, language, names in results.PAGES:
            if language == "ko":
                results.render(path.read_text(encoding="utf-8"), language, names)
    assert sorted(korean.catalogue().keys() - used) == []


def test_a_text_without_korean_is_an_error() -> None:
    assert korean.korean("17 heads of width 2") == "차원 2인 헤드 17개"
    assert korean.korean("gelu − relu, bleu", {"gelu", "relu", "bleu"}) == "gelu − relu, bleu"
    with pytest.raises(LookupError, match="for: lower by \\{0\\} wolves"):
        korean.korean("lower by 3 wolves")
