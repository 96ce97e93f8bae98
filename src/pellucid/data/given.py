"""Pairs that a program passes in: tuples, mappings or a table.

`lines_of` converts them to JSON lines, `pairs_of` to pairs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.data.files import COLUMNS, json_pairs, read_either
from pellucid.data.pairs import TextPair
from pellucid.data.quality import kept

THREE = ("source", "second", "target")
"""Names of three columns: a pair of texts, or a text and its features, with a target."""


def paths_in(data: Any) -> list[Any] | None:
    """Return data as a list of paths; None if it is not a path, or a list or tuple of paths.

    A string is a path. An empty list gives [].

    >>> paths_in("my.tsv"), paths_in([("a", "b")])
    (['my.tsv'], None)
    """
    if isinstance(data, str | PathLike):
        return [data]
    every = isinstance(data, list | tuple) and all(isinstance(x, str | PathLike) for x in data)
    return list(data) if every else None


def table_of(data: Any) -> tuple[list[str], list[tuple[Any, ...]]] | None:
    """Return the column names and the rows of a pandas, Polars or Arrow table.

    None for other data. A lazy Polars table is computed.
    """
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        data = data.collect()
    if hasattr(data, "to_pylist") and hasattr(data, "column_names"):
        return list(data.column_names), list(zip(*data.to_pydict().values(), strict=True))
    if hasattr(data, "iter_rows"):
        return list(map(str, data.columns)), list(data.iter_rows())
    if hasattr(data, "itertuples"):
        return list(map(str, data.columns)), list(data.itertuples(index=False, name=None))
    return None


def lines_of(
    data: Any, columns: Sequence[str] | None, what: str
) -> tuple[tuple[str, ...], list[str]]:
    """Convert data to JSON lines; return the names of the columns, and the lines.

    data: a pandas, Polars or Arrow table, or an iterable of tuples or lists (two or three texts),
    mappings or `TextPair`s. columns: the names of two or three columns. By default they are source
    and target; if the first row has three texts they are source, second and target; for a table
    without source and target, all its two or three columns. what: the name of the argument in
    errors. Other values than texts and lists are converted by `str`, missing ones (None, NaN) to
    "". A mapping may lack a column here. Raises `UsageError` naming a row of another type or
    length, and for a table with other columns.

    >>> lines_of([("a", "b")], None, "train")
    (('source', 'target'), ['{"source": "a", "target": "b"}'])
    """
    if (table := table_of(data)) is not None:
        names, each = table
        named = columns or (COLUMNS if set(COLUMNS) <= set(names) else tuple(names))
        if not 2 <= len(named) <= 3 or not set(named) <= set(names):
            raise UsageError(
                f"{what}: expected the columns {', '.join(columns or COLUMNS)}, and the table has "
                f'{", ".join(names)}; name two or three of them: data={{"columns": […]}}'
            )
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in each]
    elif not isinstance(data, Iterable):
        raise UsageError(f"{what}: expected files, or pairs of texts; got {data!r}")
    else:
        rows = list(data)
        first = rows[0] if rows else ()
        wide = isinstance(first, tuple | list) and len(first) == 3
        named = columns or (THREE if wide else COLUMNS)
    lines = []
    for i, row in enumerate(rows):
        if isinstance(row, TextPair):
            row = (row.source, row.targets)
        if isinstance(row, tuple | list) and len(row) == len(named):
            row = dict(zip(named, row, strict=True))
        if not isinstance(row, Mapping):
            expected = f"({', '.join(named)})"
            raise UsageError(f"{what}[{i}]: expected {expected}, each a text; got {row!r}")
        found = {name: _text(row[name]) for name in named if name in row}
        lines.append(json.dumps(found, ensure_ascii=False))
    return tuple(named), lines


def _text(value: Any) -> Any:
    """Convert a table cell for JSON: a text, a list of texts, or "" if it is missing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) or getattr(value, "ndim", False):
        return list(map(_text, value))
    return "" if str(value) in ("None", "nan", "NaT", "<NA>") else str(value)


def pairs_of(data: Any, columns: Sequence[str] | None = None) -> tuple[TextPair, ...]:
    """Return the pairs in files, or in data that a program passes in.

    data: a path or a list of paths (`read_either`), or as in `lines_of`. A list or tuple of
    `TextPair`s is returned as a tuple, without checks; else pairs with an empty text (`is_empty`)
    are left out, with a warning. columns: as in `data.columns`. Raises `UserError` naming the file
    or the row.

    >>> pairs_of([("a", "b")])
    (TextPair(source='a', targets=('b',)),)
    """
    if (files := paths_in(data)) is not None:
        return read_either([Path(file) for file in files], tuple(columns) if columns else None)
    if isinstance(data, list | tuple) and all(isinstance(row, TextPair) for row in data):
        return tuple(data)
    named, lines = lines_of(data, columns, "data")
    rows = [(number, [line]) for number, line in enumerate(lines, 1)]
    return kept(Path("data"), range(1, len(rows) + 1), list(json_pairs(Path("data"), rows, named)))
