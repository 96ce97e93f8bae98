"""Read a user's pairs: TSV, CSV, JSON lines, or two parallel text files.

All may be gzipped, and are UTF-8. Every error is a `UserError` that names the file and, if the
error is in one, the line.
"""

import csv
import gzip
import json
import logging
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten

from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.settings import nearest
from pellucid.data.pairs import Splits, TextPair, entry, split_by_hash, split_text
from pellucid.data.quality import kept
from pellucid.system.files import check_file
from pellucid.system.language import plural

_log = logging.getLogger(__name__)

LONGEST_LINE = 50_000
"""In characters. A file with a longer line is no file of sentences, and an error."""

COLUMNS = ("source", "target")
GIVE_MORE = "give a validation file, or another share"

SOURCES = {"source", "src", "input", "question", "prompt", "text", "word"}
TARGETS = {"target", "tgt", "trg", "output", "answer", "response", "label", "pronunciation"}
"""Usual names of columns in other files, in small letters. A first line with one of each names the
columns; of a first line with only one a warning says that it may."""
TITLE = re.compile("[A-Za-z_]{3,}")
"""A word that could be the name of a column. No corpus of Pellucid has exactly one pair of two such
words."""


def read_pairs(
    path: Path, columns: tuple[str, ...] | None = None, leave_out: Collection[str] = ()
) -> tuple[TextPair, ...]:
    """Read the pairs of one file.

    Its name gives the format: .tsv, .csv or .jsonl, also with .gz. TSV (without quoting) and CSV
    have exactly two columns, or a first line that names the columns: with "source" and "target", or
    one of `SOURCES` and one of `TARGETS`, as a warning says. Any other first line is a pair, unless
    `columns` gives names. A warning quotes it if it may be a header after all: in every CSV, and in
    a TSV whose first line has one of those names, or that has at least 21 pairs of which only the
    first is two plain ASCII words. In CSV, blanks before a quoted field are skipped. JSON lines are
    objects whose target is a text or a list of texts, all of them correct.

    columns: the names of the columns or JSON keys to read, which the file must have, default
    "source" and "target"; or their numbers, from 1, in a TSV or CSV without header, which may then
    have more than two columns. The last is the target; the others, joined by tabs, are the source.
    leave_out: faults (`data.quality`) whose pairs are left out.

    Blank lines and pairs with an empty text (`is_empty`) are left out too; warnings count them.
    Raises `UserError` naming the file, and the line if the error is in one, also if no pair is
    left; `UsageError` for another format.
    """
    if not is_file_of_pairs(path):
        raise UsageError(
            f"{path}: expected a file named .tsv, .csv or .jsonl (also with .gz after it), or two "
            "parallel text files given together"
        )
    rows = _rows(path)
    filled = [row for row in rows if any(field.strip() for field in row[1])]
    if not filled:
        raise UserError(f"{path}: is empty; {_expected(path)}")
    if empty := len(rows) - len(filled):
        _log.warning("%s: empty lines left out: %s", path, f"{empty:,}")
    if _format(path) == ".jsonl":
        pairs = list(json_pairs(path, filled, columns or COLUMNS))
    else:
        pairs = _column_pairs(path, filled, columns)
    lines = [number for number, _ in filled][-len(pairs) :] if pairs else []
    if not pairs:
        raise UserError(f"{path}: has column names but no pairs")
    if not (chosen := kept(path, lines, pairs, leave_out)):
        raise UserError(f"{path}: no pair is left; {_expected(path)}")
    return chosen


def is_file_of_pairs(path: Path) -> bool:
    """Return whether a file's name says that it holds pairs, and not one text per line."""
    return _format(path) in (".tsv", ".csv", ".jsonl")


def is_text_file(paths: Sequence[Path]) -> bool:
    """Return whether the paths are a single text file, named .txt or .txt.gz."""
    return len(paths) == 1 and _format(paths[0]) == ".txt"


def read_parallel(
    source: Path, target: Path, leave_out: Collection[str] = ()
) -> tuple[TextPair, ...]:
    """Read two text files in which line i of one translates line i of the other.

    Pairs are left out as in `read_pairs`; the result may be empty. Raises `UserError` as
    `read_lines`, and if the numbers of lines differ.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources):,} {plural(len(sources), 'line')} and {target} has "
            f"{len(targets):,}; line i of one must translate line i of the other"
        )
    pairs = [TextPair(s, (t,)) for s, t in zip(sources, targets, strict=True)]
    return kept(source, range(1, len(pairs) + 1), pairs, leave_out)


def read_split(
    train: Sequence[Path],
    valid: Sequence[Path] = (),
    test: Sequence[Path] = (),
    *,
    held_out: float,
    columns: tuple[str, ...] | None = None,
    same: Callable[[str], str] = str,
    texts: bool = False,
    stream: bool = False,
    leave_out: Collection[str] = (),
) -> Splits:
    """Read a user's files: one path is a file of pairs, two paths are parallel texts.

    texts: all files are text files instead; each line that is not blank is a source without
    targets. stream: a text file is one text; only with `texts`, and one training file.

    Without validation files a share `held_out` of the training sources is held out by hash, with
    `stream` the last lines. All pairs of one source are on the same side, and so are sources that
    `same` maps to the same text. columns, leave_out: as in `read_pairs`. Raises `UserError` for
    errors in the files, and if this split has no training pairs, or no validation pairs although
    `held_out` is above 0.
    """

    def read(paths: Sequence[Path]) -> tuple[TextPair, ...]:
        """Read training, validation or test files as pairs; for `texts`, without targets."""
        if not texts:
            return read_either(paths, columns, leave_out) if paths else ()
        lines = (_text_lines(path, stream) for path in paths)
        return tuple(TextPair(text, ()) for some in lines for text in some)

    pairs, tested = read(train), read(test)
    sources = {pair.source for pair in pairs}
    targets = {target for pair in pairs for target in pair.targets}
    swapped = ""
    if 20 * len(sources) <= len(targets):
        some = ", ".join(shorten(source, 20) for source in sorted(sources)[:3])
        swapped = (
            f"{len(pairs):,} pairs have {len(sources)} different sources ({some}): are the columns "
            "the other way round?"
        )
    if valid:
        return Splits(pairs, read(valid), tested)
    if held_out and (twins := len(sources) - len(set(map(entry, sources)))):
        _log.info(
            f"{twins:,} of {len(sources):,} sources are another one with other capitals, blanks, "
            "invisible characters, composition or, as word(2), a number; they are on the same side "
            "of the split"
        )
    if stream:
        split = split_text(pairs[0].source, held_out)
    else:
        split = split_by_hash(pairs, valid=held_out, same=same)
    if not split.train or (held_out > 0 and not split.valid):
        raise UserError(
            f"{train[0]}: too few {'texts' if texts else 'pairs'} ({len(pairs):,}) to hold out "
            f"{held_out:.1%} of them for validation; {swapped or GIVE_MORE}"
        )
    if swapped:
        _log.warning("%s: %s", train[0], swapped)
    return replace(split, test=tested)


def _text_lines(path: Path, stream: bool) -> list[str]:
    """Read a text file; return its lines, or for `stream` the whole text as one."""
    if is_file_of_pairs(path):
        raise UsageError(
            f"{path}: is a file of pairs, and the texts to learn from are a text file; give "
            "another .txt, a text a line"
        )
    lines = read_lines(path)
    return ["\n".join(lines)] if stream else [line for line in lines if line.strip()]


def with_more(
    pairs: Splits,
    files: Sequence[Path],
    columns: tuple[str, ...] | None = None,
    same: Callable[[str], str] = str,
    leave_out: Collection[str] = (),
) -> Splits:
    """Return splits with the pairs of more files added to the training pairs.

    Each file is one of pairs (`read_pairs`). A pair whose source is that of a held-out pair, as
    compared by `same`, is left out; a warning counts them. Raises `UserError` for errors in the
    files.
    """
    if not files:
        return pairs
    more = [pair for path in files for pair in read_pairs(path, columns, leave_out)]
    held_out = {same(pair.source) for pair in (*pairs.valid, *pairs.test)}
    kept = [pair for pair in more if same(pair.source) not in held_out]
    if len(kept) < len(more):
        _log.warning(
            f"left out {len(more) - len(kept):,} of {len(more):,} further pairs: a held-out pair "
            "has the same source"
        )
    return replace(pairs, train=(*pairs.train, *kept))


def _expected(path: Path) -> str:
    """Describe the expected content of a file, for an error message."""
    return f"expected one {'pair of texts' if is_file_of_pairs(path) else 'text'} on each line"


def read_lines(path: Path) -> list[str]:
    r"""Read the lines of a UTF-8 file, gzipped or not, without line ends (\n or \r\n).

    Only these characters end a line: a sentence may contain others that Unicode calls line breaks.
    A byte order mark is removed. Raises `UserError` naming the file, and the line if there is one,
    for a file that is unreadable, empty or in another encoding, a NUL byte, and a line of more than
    `LONGEST_LINE` characters.
    """
    expected = _expected(path)
    data = _read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise UserError(f"{path}: is empty; {expected}")
    check_utf8(data, path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {_line_of(data, error.start)}: not UTF-8 (byte "
            f"0x{data[error.start]:02x}); convert the file, for instance from Korean Windows with "
            "iconv -f CP949 -t UTF-8"
        ) from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{path}, line {number}: {len(line):,} characters, more than {LONGEST_LINE:,}; "
                + expected
            )
    return lines


def check_utf8(data: bytes, name: str | Path, before: int = 0) -> None:
    """Raise `UserError` for bytes that are UTF-16, or that contain a NUL byte.

    name: the file's name. before: number of lines that precede these bytes; UTF-16 is recognised
    only in the first bytes of a file.
    """
    if not before and _is_utf16(data):
        raise UserError(f"{name}: is UTF-16; save it as UTF-8")
    if (nul := data.find(b"\0")) >= 0:
        raise UserError(
            f"{name}, line {before + _line_of(data, nul)}: holds a NUL byte, so it is not a text "
            "file; expected UTF-8"
        )


def _is_utf16(data: bytes) -> bool:
    """Return whether bytes are UTF-16; the last character may be incomplete.

    Without a byte order mark they must decode to printable text as UTF-16 but not as UTF-8, after
    NUL bytes are removed unless they are half of all bytes.
    """
    marked = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    if marked or b"\0" not in data:
        return marked
    other = data if 2 * data.count(b"\0") >= len(data) - 1 else data.replace(b"\0", b"")
    is16 = any(_is_text(data, code) for code in ("utf-16-le", "utf-16-be"))
    return is16 and not _is_text(other, "utf-8")


def _is_text(data: bytes, code: str) -> bool:
    """Return whether bytes decode to printable characters and white space only."""
    try:
        text = getincrementaldecoder(code)().decode(data)
    except UnicodeDecodeError:
        return False
    return all(map(str.isprintable, text.split()))


def read_either(
    paths: Sequence[Path], columns: tuple[str, ...] | None, leave_out: Collection[str] = ()
) -> tuple[TextPair, ...]:
    """Read the pairs of one file, or of two parallel text files.

    Raises as `read_pairs` and `read_parallel`; `UsageError` for another number of files, and for a
    file of pairs together with another file.
    """
    if len(paths) == 1:
        return read_pairs(paths[0], columns, leave_out)
    if len(paths) == 2:
        for path in paths:
            if is_file_of_pairs(path):
                raise UsageError(
                    f"{path}: is a file of pairs, but two files given together are parallel texts, "
                    "line i of one translating line i of the other; put all pairs into one file"
                )
        return read_parallel(paths[0], paths[1], leave_out)
    given = ", ".join(map(str, paths)) or "nothing"
    raise UsageError(f"expected one file of pairs, or two parallel texts; got {given}")


def _format(path: Path) -> str:
    """Return the suffix of a file's name, ignoring .gz."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _read_bytes(path: Path) -> bytes:
    """Read a file and decompress it if it is gzipped.

    Raises `UserError` if that fails.
    """
    try:
        check_file(path, pipes=True)  # a shell's <(command) is a pipe
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}, where relative names begin"
        near = nearest(path.name, (each.name for each in path.parent.glob("*")))
        raise UserError(f"{path}: there is no such file{where}{near}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; expected a file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: is not a whole gzip file; fetch or compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _line_of(data: bytes, offset: int) -> int:
    """Return the number of the line that an offset is in."""
    return data.count(b"\n", 0, offset) + 1


Row = tuple[int, list[str]]
"""The number of a line, and its fields."""

# Only before a quote that opens a field: anywhere else a blank is part of the text. The field is
# taken whole, so that nothing inside quotes is looked at.
_BLANKS_BEFORE_QUOTES = re.compile(r'(^|,)[ \t]*("[^"]*(?:""[^"]*)*")', re.MULTILINE)


def _rows(path: Path) -> list[Row]:
    """Read the rows of a file of pairs; a line of JSON is one field."""
    kind = _format(path)
    if kind == ".csv":
        return list(_csv_rows(path))
    lines = enumerate(read_lines(path), 1)
    return [(number, line.split("\t") if kind == ".tsv" else [line]) for number, line in lines]


def _csv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file. Raises `UserError` naming file and line."""
    text = _BLANKS_BEFORE_QUOTES.sub(r"\1\2", "\n".join(read_lines(path)))
    reader = csv.reader((line + "\n" for line in text.split("\n")), strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {number}: not valid CSV: {error}; a field that holds a quote or a "
            'comma goes in "double quotes", its quotes doubled'
        ) from None


def _column_pairs(
    path: Path, rows: Sequence[Row], columns: tuple[str, ...] | None
) -> list[TextPair]:
    """Make pairs of the rows of a TSV or CSV file; find its columns by name or number."""
    header = rows[0]
    first = [name.strip() for name in header[1]]
    names = columns or COLUMNS
    if set(names) <= set(first):
        if twice := next((name for name in names if first.count(name) > 1), None):
            raise UserError(f"{path}, line 1: more than one column {twice!r}; rename the others")
        at = [first.index(name) for name in names]
        return [_column_pair(path, row, at, len(first)) for row in rows[1:]]
    at, width = [0, 1], 2
    if columns and all(map(str.isdecimal, columns)):
        at, width = [int(number) - 1 for number in columns], len(first)
        if not all(0 <= i < width for i in at):
            raise UserError(
                f"{path}, line 1: expected columns {', '.join(columns)}, counted from 1, and it "
                f"has {width}; `data.columns` says which to take"
            )
    elif columns:
        missing = next(name for name in names if name not in first)
        raise UserError(
            f"{path}, line 1: no column {missing!r}{nearest(missing, first)}; there are: "
            + ", ".join(first)
        )
    pairs = [_column_pair(path, row, at, width) for row in rows]
    source, target = (shorten(first[i], 40, placeholder="…") for i in (at[0], at[-1]))
    if source.casefold() in SOURCES and target.casefold() in TARGETS:
        _log.warning(
            f"{path}: line 1 is read as the names of the columns, {source!r} and {target!r}; if it "
            "is a pair, write it on another line"
        )
        return pairs[1:]
    usual = not (SOURCES | TARGETS).isdisjoint(map(str.casefold, first))
    if usual or _format(path) == ".csv" or _begins_with_titles(pairs):
        _log.warning(
            f"{path}: line 1 is read as a pair, {source!r} to {target!r}; if it names the "
            "columns, give the names of source and target to `data.columns`"
        )
    return pairs


def _begins_with_titles(pairs: Sequence[TextPair]) -> bool:
    """Return whether, of at least 21 pairs, only the first is two plain ASCII words."""
    first, *others = (
        bool(TITLE.fullmatch(pair.source) and TITLE.fullmatch(pair.target)) for pair in pairs
    )
    return first and len(others) >= 20 and not any(others)


def _column_pair(path: Path, row: Row, at: list[int], width: int) -> TextPair:
    """Make the pair of one row; `at` are the indices of its columns."""
    number, fields = row
    if len(fields) != width:
        separator = "a tab" if _format(path) == ".tsv" else "a comma"
        clauses = [
            f"{path}, line {number}: expected {width} columns with {separator} between them, got "
            f"{len(fields)}"
        ]
        if len(fields) > width:
            clauses.append(
                "say which to read with `data.columns`: names in the first line, or numbers from "
                f"1, the target last, as in {' '.join(map(str, range(1, min(4, 1 + len(fields)))))}"
            )
        if len(fields) == 1:
            clauses.append(f"put {separator} between the source and the target")
        raise UserError("; ".join(clauses))
    *sources, target = (fields[i] for i in at)
    return _pair(path, number, sources, (target,))


def json_pairs(path: Path, rows: Sequence[Row], columns: tuple[str, ...]) -> Iterator[TextPair]:
    """Yield the pairs in rows of JSON, an object each. Raises `UserError` naming file and line.

    columns: the keys; the last is the target, the others, joined by tabs, are the source. path: the
    file's name in errors.
    """
    for number, (line,) in rows:
        where = f"{path}, line {number}"
        with raised_as(UserError, ValueError, RecursionError, where=f"{where}: not valid JSON"):
            record = json.loads(line)
        example = "{" + ", ".join(f'"{name}": "…"' for name in columns) + "}"
        if not isinstance(record, dict):
            raise UserError(f"{where}: expected an object like {example}")
        for name in columns:
            if name not in record:
                near = nearest(name, record)
                raise UserError(
                    f"{where}: no key {name!r}{near}; expected an object like {example}"
                )
        *sources, target = (record[name] for name in columns)
        targets = target if isinstance(target, list) else [target]
        if not all(isinstance(text, str) for text in (*sources, *targets)):
            raise UserError(
                f"{where}: {columns[0]!r} must be a text, {columns[-1]!r} a text or a list of texts"
            )
        yield _pair(path, number, sources, tuple(targets))


def _pair(path: Path, number: int, sources: Sequence[str], targets: tuple[str, ...]) -> TextPair:
    """Make a pair of texts. Raises `UserError` for half of a surrogate pair."""
    source = "\t".join(sources)
    try:
        "".join((source, *targets)).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(
            f"{path}, line {number}: holds half of a surrogate pair, which is no character"
        ) from None
    return TextPair(source, targets)
