from __future__ import annotations

import gzip
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from pellucid.core.errors import UsageError, UserError
from pellucid.data.files import (
    LONGEST_LINE,
    read_either,
    read_lines,
    read_pairs,
    read_parallel,
    read_split,
    with_more,
)
from pellucid.data.pairs import Splits, TextPair, entry
from pellucid.data.tokenizers import normaliser
from pellucid.training.config import TokenizerConfig

TWO = (TextPair("a b", ("x y",)), TextPair("c", ("z",)))


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    "name, content",
    [
        ("p.tsv", "a b\tx y\nc\tz\n"),
        ("p.tsv", "a b\tx y\r\nc\tz"),
        ("p.tsv", "\ufeffa b\tx y\nc\tz\n"),
        ("p.tsv", "target\tnote\tsource\nx y\t1\ta b\nz\t\tc\n"),
        ("p.tsv.gz", "a b\tx y\nc\tz\n"),
        ("p.csv", "a b,x y\nc,z\n"),
        ("p.csv", 'source,target\r\n"a b","x y"\r\nc,z'),
        ("p.csv", 'source, target\na b,"x y"\nc,z'),
        ("p.csv.gz", "a b,x y\nc,z\n"),
        ("p.jsonl", '{"source": "a b", "target": "x y"}\n{"target": ["z"], "source": "c"}\n'),
        ("p.jsonl.gz", '{"source": "a b", "target": "x y"}\n{"target": ["z"], "source": "c"}\n'),
    ],
)
def test_every_format(name: str, content: str, tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, name, content)) == TWO


@pytest.mark.parametrize(
    "name, content",
    [
        ("p.tsv", "Q\tA\tlabel\na b\tx y\t0\nc\tz\t1\n"),
        ("p.csv", "Q,A,label\r\na b,x y,0\r\nc,z,2   "),
        ("p.jsonl", '{"Q": "a b", "A": "x y", "label": 0}\n{"Q": "c", "A": "z"}\n'),
    ],
)
def test_columns_by_name(name: str, content: str, tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, name, content), ("Q", "A")) == TWO


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.tsv", "label\ta\tb\nyes\tone\ttwo\n"),
        ("p.csv", "a,b,label\none,two,yes\n"),
        ("p.jsonl", '{"a": "one", "b": "two", "label": "yes"}\n'),
    ],
)
def test_three_columns_are_a_pair_of_texts_with_a_tab_between_and_a_target(
    name: str, content: str, tmp_path: Path
) -> None:
    pairs = read_pairs(write(tmp_path, name, content), ("a", "b", "label"))
    assert pairs == (TextPair("one\ttwo", ("yes",)),)
    with pytest.raises(UserError, match="no pair is left"):
        read_pairs(write(tmp_path, name, content.replace("two", " ")), ("a", "b", "label"))


def test_columns_by_number_in_a_file_that_does_not_name_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "p.tsv", "walk\twalked\tV;PST\ngo\twent\tV;PST\n")
    first, second = read_pairs(path, ("1", "3", "2"))
    assert first == TextPair("walk\tV;PST", ("walked",))
    assert second == TextPair("go\tV;PST", ("went",))
    assert not caplog.text
    with pytest.raises(UserError, match=r"line 1: expected columns 1, 4, .* it has 3; `data.col"):
        read_pairs(path, ("1", "4"))
    with pytest.raises(UserError, match="line 1: expected columns 0, 2, counted from 1"):
        read_pairs(path, ("0", "2"))
    named = write(tmp_path, "n.tsv", "3\t1\na\tb\n")
    assert read_pairs(named, ("1", "3")) == (TextPair("b", ("a",)),)
    titled = write(tmp_path, "t.tsv", "word\tform\twhat\nwalk\twalked\tV;PST\n")
    assert len(read_pairs(titled, ("1", "3", "2"))) == 2
    assert "line 1 is read as a pair, 'word' to 'form'" in caplog.text


def test_csv_quotes(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", '"a, ""b""","x\ny"\n c , z\n"d",\'e" f\'\n')
    assert read_pairs(path) == (
        TextPair('a, "b"', ("x\ny",)),
        TextPair(" c ", (" z",)),
        TextPair("d", ("'e\" f'",)),
    )


@pytest.mark.parametrize("row", ['"a", "b, c"', ' "a","b, c"', '\t"a",\t"b, c"'])
def test_csv_blanks_before_a_quote(row: str, tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", f'source, "target"\n{row}\nd, e "f"\n')
    assert read_pairs(path) == (TextPair("a", ("b, c",)), TextPair("d", (' e "f"',)))


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path, "p.tsv", '"a\t"b" c\n')) == (TextPair('"a', ('"b" c',)),)


def test_several_targets(tmp_path: Path) -> None:
    path = write(tmp_path, "p.jsonl", '{"source": "a", "target": ["b", "c"]}')
    assert read_pairs(path) == (TextPair("a", ("b", "c")),)


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = "a\u2028b\x85c\vd\fe\rf\tg\n"
    assert read_pairs(write(tmp_path, "p.tsv", odd)) == (
        TextPair("a\u2028b\x85c\vd\fe\rf", ("g",)),
    )


@pytest.mark.parametrize(
    ("name", "content", "quoted"),
    [
        ("p.csv", "Q,A\na b,x y\n", ["'Q' to 'A'"]),
        ("p.csv.gz", f'"a {"b" * 50}",x\na b,x y\n', ["'a…' to 'x'"]),
        ("p.tsv", "Word\tsound\na b\tx y\n", ["'Word' to 'sound'"]),
        ("p.tsv", "German\tEnglish\n" + "ein Hund\ta dog\n" * 20, ["'German' to 'English'"]),
        ("p.tsv", "German\tEnglish\n" + "ein Hund\ta dog\n" * 19, []),
        ("p.tsv", "Hund\tdog\nKatze\tcat\n" + "ein Hund\ta dog\n" * 20, []),
        ("p.tsv", "a b\tx y\nc\tz\n", []),
        ("p.csv", "source,target\nc,z\n", []),
    ],
)
def test_a_first_line_that_may_be_names_is_a_pair_and_a_warning_quotes_it(
    name: str, content: str, quoted: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = read_pairs(write(tmp_path, name, content))
    assert len(pairs) == content.count("\n") - ("target" in content)
    assert [text for text in caplog.messages for part in quoted if part in text] == caplog.messages
    assert len(caplog.messages) == len(quoted)


@pytest.mark.parametrize("first", ["Source,Target", "word, pronunciation", "\ufeffSRC,tgt"])
def test_usual_names_of_a_source_and_a_target_are_no_pair(
    first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "p.csv", f"{first}\r\nword,wˈɜɹd\r\na,b")
    pairs = (TextPair("word", ("wˈɜɹd",)), TextPair("a", ("b",)))
    assert read_pairs(path) == pairs
    (message,) = caplog.messages
    assert "line 1 is read as the names of the columns" in message
    assert read_pairs(path, ("1", "2")) == pairs


@pytest.mark.parametrize("first", ["answer,question", "word,b", "a,label"])
def test_one_usual_name_alone_is_a_pair(
    first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(read_pairs(write(tmp_path, "p.csv", f"{first}\nc,d\n"))) == 2
    assert "line 1 is read as a pair" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.tsv", "source\ttarget\n\na\tb\n\t\n\n"),
        ("p.csv", "\na,b\n,\n\n"),
        ("p.jsonl", '\n{"source": "a", "target": "b"}\n \n\n'),
    ],
)
def test_empty_lines_are_left_out_and_counted(
    name: str, content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_pairs(write(tmp_path, name, content)) == (TextPair("a", ("b",)),)
    assert "empty lines left out: 3" in caplog.text


ERRORS = [
    ("p.tsv", "", "p.tsv: is empty"),
    ("p.tsv", " \n\n", "p.tsv: is empty"),
    ("p.tsv.gz", "", "p.tsv.gz: is empty"),
    ("p.csv", "source,target\n", "p.csv: has column names but no pairs"),
    ("p.tsv", "a\tb\nc\n", "p.tsv, line 2: expected 2 columns with a tab between them, got 1"),
    ("p.tsv", "a\tb\nc  k ə\n", "got 1; put a tab between the source and the target"),
    ("p.csv", ",,\n,\n", "p.csv: is empty"),
    ("p.tsv", "a\tb\tc\n", "line 1: expected 2 columns .* got 3; say which .* as in 1 2 3"),
    ("p.csv", "a,b\nc\td\n", "p.csv, line 2: expected 2 columns with a comma"),
    ("p.tsv.csv", "a,b\nc\td\n", "p.tsv.csv, line 2: expected 2 columns with a comma"),
    ("p.tsv.csv.gz", "a,b\nc\td\n", "line 2: expected 2 columns with a comma"),
    ("p.csv", 'a,"x\ny\nz"\nc\n', "p.csv, line 4: expected 2 columns"),
    ("p.csv", 'a,b\nc,"d\n', "p.csv, line 2: not valid CSV: unexpected end of data"),
    ("p.csv", 'a,b\n"c" x,d\n', "p.csv, line 2: not valid CSV"),
    ("p.tsv", "c\t \n", "p.tsv: no pair is left; expected one pair of texts on each line"),
    ("p.tsv", "가\t나\n다\t라\n".encode("cp949"), "p.tsv, line 1: not UTF-8 .byte 0xb0.*CP949"),
    ("p.tsv", b"a\tb\nc\t\xff\n", "p.tsv, line 2: not UTF-8 .byte 0xff"),
    ("p.tsv", "가\t나\n".encode("utf-16"), "p.tsv: is UTF-16; save it as UTF-8"),
    ("p.tsv", "가\t나\n".encode("utf-16-le"), "p.tsv: is UTF-16; save it as UTF-8"),
    ("p.tsv", "hé\tllo\n".encode("utf-16-be"), "p.tsv: is UTF-16; save it as UTF-8"),
    ("p.tsv", "мир\tда\n".encode("utf-16-le"), "p.tsv: is UTF-16; save it as UTF-8"),
    ("p.tsv", "мир\tда\0".encode(), "p.tsv, line 1: holds a NUL byte"),
    ("p.tsv", b"a\tb\nc\0\td\n", "p.tsv, line 2: holds a NUL byte"),
    ("p.tsv", "a\tb\n" + "x" * 100_000 + "\ty\n", "p.tsv, line 2: 100,002 characters, more than"),
    ("p.csv", "a,b\n" + "x" * 200_000 + ",y\n", "p.csv, line 2: 200,002 characters"),
    ("p.jsonl", "[" * 100_000, "p.jsonl, line 1: 100,000 characters"),
    ("p.jsonl", "[" * 40_000, "p.jsonl, line 1: not valid JSON"),
    ("p.jsonl", '{"source": "a", "target": "b"}\n{', "p.jsonl, line 2: not valid JSON"),
    ("p.jsonl", '{"source": "a", "target": "b"}\n\n{}', "line 3: no key 'source'"),
    ("p.jsonl", "[1]", "p.jsonl, line 1: expected an object like"),
    ("p.jsonl", '{"sorce": "a", "target": "b"}', "line 1: no key 'source' .did you mean sorce"),
    ("p.jsonl", '{"source": 1, "target": "b"}', "p.jsonl, line 1: 'source' must be a text"),
    ("p.jsonl", '{"source": "a", "target": [null]}', "line 1: .*'target' a text or a list"),
    ("p.jsonl", '{"source": "a", "target": []}', "p.jsonl: no pair is left"),
    ("p.jsonl", '{"source": "\\ud800", "target": "b"}', "line 1: holds half of a surrogate pair"),
]


@pytest.mark.parametrize("name, content, says", ERRORS)
def test_each_error_is_one_message(
    name: str, content: str | bytes, says: str, tmp_path: Path
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(UserError, match=says) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    "name, expected", [("p.txt", "text"), ("p.txt.gz", "text"), ("p.tsv.gz", "pair of texts")]
)
def test_what_was_expected_is_a_pair_in_a_file_of_pairs_alone(
    name: str, expected: str, tmp_path: Path
) -> None:
    for content in (" \n", "x" * 50_001):
        with pytest.raises(UserError, match=f"expected one {expected} on each line$"):
            read_lines(write(tmp_path, name, content))


def test_the_longest_line_that_counts(tmp_path: Path) -> None:
    line = "x" * (LONGEST_LINE - 2) + "\ty"
    assert len(read_pairs(write(tmp_path, "p.tsv", line + "\n"))) == 1
    with pytest.raises(UserError, match="line 1: 50,001 characters"):
        read_pairs(write(tmp_path, "p.tsv", line + "y\n"))


def test_what_is_not_a_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(UserError, match=r"folder.tsv: is a folder"):
        read_pairs(tmp_path / "folder.tsv")
    with pytest.raises(UserError, match=r"none.tsv: there is no such file$"):
        read_pairs(tmp_path / "nowhere" / "none.tsv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"none.tsv: there is no such file in {tmp_path}, where"):
        read_pairs(Path("none.tsv"))
    write(tmp_path, "words_train.tsv", "a\tb\n")
    with pytest.raises(UserError, match=r"where relative .* \(did you mean words_train.tsv\?\)"):
        read_pairs(Path("words-train.tsv"))
    with pytest.raises(UserError, match="cannot be read: Not a directory"):
        read_pairs(write(tmp_path, "file", "a") / "p.tsv")
    whole = gzip.compress(b"a\tb\n" * 997)
    for damaged in (b"a\tb\n", whole[:-20], whole[:30] + b"\0" * 9 + whole[39:]):
        (tmp_path / "cut.tsv.gz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"cut.tsv.gz: is not a whole gzip file"):
            read_pairs(tmp_path / "cut.tsv.gz")


def test_a_format_of_another_kind(tmp_path: Path) -> None:
    for name in ("p.txt", "p.xlsx", "p", "p.gz"):
        with pytest.raises(UsageError, match=r"expected a file named .tsv, .csv or .jsonl"):
            read_pairs(write(tmp_path, name, "a\tb\n"))


@pytest.mark.parametrize("columns", [None, ("target", "source")])
def test_a_column_that_is_there_twice(columns: tuple[str, ...] | None, tmp_path: Path) -> None:
    path = write(tmp_path, "p.tsv", "source\ttarget\ttarget\na\tb\tc\n")
    with pytest.raises(UserError, match=r"line 1: more than one column 'target'; rename"):
        read_pairs(path, columns)
    assert read_pairs(path, ("source", "source")) == (TextPair("a", ("a",)),)


@pytest.mark.parametrize("name, content", [("p.csv", "Q,B\na,b\n"), ("p.tsv", "Q\tB\na\tb\n")])
def test_a_column_that_is_not_there(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 1: no column 'A'.*there are: Q, B"):
        read_pairs(write(tmp_path, name, content), ("Q", "A"))


def test_parallel_files(tmp_path: Path) -> None:
    source = write(tmp_path, "train.de.gz", "a b\nc\n")
    target = write(tmp_path, "train.en", "x y\r\nz")
    assert read_parallel(source, target) == TWO
    longer = write(tmp_path, "longer.en", "x\ny\nz\n")
    with pytest.raises(UserError, match=r"train.de.gz has 2 lines and .*longer.en has 3"):
        read_parallel(source, longer)
    gap = write(tmp_path, "gap.en", "x\n \n")
    assert read_parallel(source, gap) == (TextPair("a b", ("x",)),)


def test_an_inner_empty_line_keeps_the_others_in_place(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, "t.txt", "a\n\nb\n\n")) == ["a", "", "b", ""]


def lines(n: int) -> str:
    return "".join(f"source {i % 101}\ttarget {i}\n" for i in range(n))


def test_a_share_is_held_out_by_source(tmp_path: Path) -> None:
    split = read_split([write(tmp_path, "p.tsv", lines(997))], held_out=0.2)
    assert len(split.train) + len(split.valid) == 997
    assert split.valid
    assert not {p.source for p in split.train} & {p.source for p in split.valid}
    assert split.test == ()


def test_sources_that_are_one_text_once_normalised_are_on_one_side(tmp_path: Path) -> None:
    spelt = "".join(f"{word} {n}\tx\n" for n in range(101) for word in ("Ab", "aB", "ab"))
    split = read_split(
        [write(tmp_path, "p.tsv", spelt)], held_out=0.2, same=normaliser(["lowercase"])
    )
    sides = [{pair.source.lower() for pair in side} for side in (split.train, split.valid)]
    assert all(sides)
    assert sum(map(len, sides)) == 101


TWINS = {
    "a blank behind": lambda word: word + " ",
    "a tab and a no-break space before": lambda word: "\xa0 " + word,
    "capitals": str.upper,
    "a title's capital": str.title,
    "zero width": lambda word: word[:1] + "\u200b" + word[1:],
    "a byte order mark": lambda word: "\ufeff" + word,
    "a soft hyphen": lambda word: word[:2] + "\xad" + word[2:],
    "decomposed": lambda word: unicodedata.normalize("NFD", word),
    "full width": lambda word: "".join(chr(ord(c) + 0xFEE0) if c < "\x7f" else c for c in word),
    "a variant's number": lambda word: f"{word}(2)",
}


@pytest.mark.parametrize("form", TWINS)
@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
def test_texts_that_people_see_as_one_are_on_one_side(
    form: str, kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A model that knows a word with a blank behind it from training is asked no new word."""
    words = [f"wörd{i}가" for i in range(101)]
    rows = "".join(f"{w}\t{i * i}\n{TWINS[form](w)}\t{i * i}\n" for i, w in enumerate(words))
    with caplog.at_level("INFO"):
        split = read_split(
            [write(tmp_path, "p.jsonl", as_json(rows))],
            held_out=0.2,
            same=TokenizerConfig(kind=kind).group,
        )
    sides = [{pair.target for pair in side} for side in (split.train, split.valid)]
    assert all(sides)
    assert sum(map(len, sides)) == 101
    assert "101 of 202 sources are another one with other capitals" in caplog.text


def as_json(rows: str) -> str:
    pairs = (row.split("\t", 1) for row in rows.removesuffix("\n").split("\n"))
    made = ({"source": source, "target": target} for source, target in pairs)
    return "".join(json.dumps(pair) + "\n" for pair in made)


def test_a_split_without_twins_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        split = read_split([write(tmp_path, "p.tsv", lines(997))], held_out=0.2, same=entry)
    assert split == read_split([write(tmp_path, "p.tsv", lines(997))], held_out=0.2)
    assert not caplog.text


def test_columns_that_seem_swapped_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Labels first: a share of the sources is a share of two, or whole classes are held out."""
    expected = r"have 2 different sources \(no, yes\): are the columns the other way round"
    labels = "".join(f"{'yes' if i % 2 else 'no'}\ttext {i}\n" for i in range(211))
    with pytest.raises(UserError, match=expected):
        read_split([write(tmp_path, "p.tsv", labels)], held_out=0.05)
    assert not caplog.text
    names = "".join(f"class {i % 7}\ttext {i}\n" for i in range(211))
    assert read_split([write(tmp_path, "q.tsv", names)], held_out=0.3).valid
    assert "have 7 different sources (class 0, class 1, class 2): are the columns" in caplog.text


def test_files_for_every_side(tmp_path: Path) -> None:
    train = write(tmp_path, "train.tsv", lines(5))
    parallel = [write(tmp_path, "v.de", "a b\nc\n"), write(tmp_path, "v.en", "x y\nz\n")]
    split = read_split([train], parallel, [train], held_out=0.5)
    assert (len(split.train), split.valid, len(split.test)) == (5, TWO, 5)
    assert len(read_split([train], held_out=0).train) == 5


def test_more_pairs_join_the_training_pairs_unless_their_source_is_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = Splits(TWO, (TextPair("held", ("h",)),), (TextPair("tested", ("t",)),))
    assert with_more(given, ()) is given
    more = [write(tmp_path, "a.tsv", "new\tn\nHELD\tx\n"), write(tmp_path, "b.tsv", "tested\ty\n")]
    split = with_more(given, more, same=normaliser(["lowercase"]))
    assert split == Splits((*TWO, TextPair("new", ("n",))), given.valid, given.test)
    assert "2 of 3 further pairs" in caplog.text


def test_too_few_pairs_to_hold_any_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"p.tsv: too few pairs \(1\) to hold out 5.0% of them"):
        read_split([write(tmp_path, "p.tsv", "a\tb\n")], held_out=0.05)


@pytest.mark.parametrize("name", ["b.tsv", "b.csv", "b.jsonl", "b.tsv.gz"])
def test_two_files_of_pairs_are_not_parallel(name: str, tmp_path: Path) -> None:
    texts, pairs = write(tmp_path, "a.txt", "a\tx\n"), write(tmp_path, name, "a\tx\n")
    for paths in ([texts, pairs], [pairs, texts], [pairs, pairs]):
        with pytest.raises(UsageError, match=rf"{name}: is a file of pairs.*put .* into one file"):
            read_split(paths, held_out=0.1)


def test_three_files_are_not_parallel(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"two parallel texts; got .*a, .*b, .*c$"):
        read_split([tmp_path / name for name in "abc"], held_out=0.1)
    with pytest.raises(UsageError, match=r"two parallel texts; got nothing$"):
        read_either([], None)


def test_a_text_file_is_one_text_with_its_line_ends(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_bytes("One.\r\n\n  Two \u2028 still two.\nThree.\n\nFour.\n".encode())
    whole = "One.\n\n  Two \u2028 still two.\nThree.\n\nFour."
    split = read_split([book], held_out=0.3, texts=True, stream=True)
    (first,), (last,) = split.train, split.valid
    assert first.source + last.source == whole
    assert 0 < len(last.source) < len(first.source)
    alone = read_split([book], held_out=0, texts=True, stream=True)
    assert [pair.source for pair in alone.train] == [whole]
    assert read_split([book], [book], held_out=0.3, texts=True, stream=True).valid == alone.train
