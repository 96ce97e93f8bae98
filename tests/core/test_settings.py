from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tomli_w

from pellucid.core.errors import UsageError
from pellucid.core.settings import check_ranges, flat, from_mapping, to_mapping
from pellucid.system.files import read_toml


@dataclass(frozen=True)
class Ranged:
    width: int | None = 12
    share: float = 0.5

    def __post_init__(self) -> None:
        check_ranges(self, width="[1, inf]", share="[0, 1)")


@dataclass(frozen=True)
class Inner:
    width: int = 12
    heads: int = 3
    scale: Literal["sqrt_d_k", "d_k"] | float = "sqrt_d_k"

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")


@dataclass(frozen=True)
class Outer:
    name: str = "run"
    rate: float = 0.5
    fast: bool = False
    files: tuple[Path, ...] = ()
    pair: tuple[int, int] = (2, 3)
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


FULL = Outer("a", 1.0, True, (Path("x.tsv"), Path("y.tsv")), (5, 7), 11, Inner(35, 5, 0.25))


def test_a_round_trip_through_a_file_keeps_everything(tmp_path: Path) -> None:
    for settings in (FULL, Outer()):
        (tmp_path / "config.toml").write_text(tomli_w.dumps(to_mapping(settings)))
        assert from_mapping(Outer, read_toml(tmp_path / "config.toml"), "config.toml") == settings


def test_none_is_left_out() -> None:
    assert "limit" not in to_mapping(Outer())


def test_what_a_file_leaves_out_stays_as_in_the_base() -> None:
    changed = from_mapping(Outer, {"inner": {"width": 15}}, "f.toml", base=FULL)
    assert changed.inner == Inner(15, 5, 0.25)
    assert changed.files == FULL.files


@pytest.mark.parametrize(
    "values, words",
    [
        ({"nmae": "a"}, ["f.toml: unknown setting nmae", "did you mean name?"]),
        ({"inner": {"widht": 3}}, ["inner.widht", "did you mean width?", "[inner]"]),
        ({"rate": "fast"}, ["f.toml: rate: expected a number, got 'fast'"]),
        ({"fast": 1}, ["fast: expected true or false, got 1"]),
        ({"inner": {"width": True}}, ["inner.width: expected a whole number, got True"]),
        ({"inner": {"width": 2.5}}, ["inner.width: expected a whole number, got 2.5"]),
        ({"inner": 7}, ["inner: expected a table", "got 7"]),
        ({"files": "x.tsv"}, ["files: expected a list (a path), got 'x.tsv'"]),
        ({"files": [3]}, ["files[0]: expected a path, got 3"]),
        ({"pair": [1, 2, 3]}, ["pair: expected a list (2 of a whole number)"]),
        ({"inner": {"scale": "d_kk"}}, ["sqrt_d_k, d_k or a number", "did you mean d_k?"]),
        ({"inner": {"scale": ["d_k"]}}, ["sqrt_d_k, d_k or a number", "got ['d_k']"]),
        ({"inner": {"heads": 5}}, ["f.toml: [inner] heads (5) must divide width (12)"]),
    ],
)
def test_a_fault_names_file_key_and_remedy(values: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        from_mapping(Outer, values, "f.toml")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "there is no such file"),
        (b"a = \xff", "not UTF-8 text (byte 4)"),
        (b"a = ", "not valid TOML"),
        (b"a = " + b"[" * 5003, "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"f\.toml") as caught:
        read_toml(path)
    assert words in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_bytes(b"\xef\xbb\xbfa = 7\n")
    assert read_toml(tmp_path / "f.toml") == {"a": 7}


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_toml(tmp_path)


@dataclass(frozen=True)
class Shape:
    """Some shape."""


@dataclass(frozen=True)
class Round(Shape):
    kind: str = field(default="round", init=False)
    radius: float = 1.0


@dataclass(frozen=True)
class Square(Shape):
    kind: str = field(default="square", init=False)
    side: float = 2.0


@dataclass(frozen=True)
class Drawn:
    shape: Shape = field(default_factory=Round)


def test_of_several_tables_the_tag_says_which() -> None:
    for drawn in (Drawn(), Drawn(Square(3.0))):
        assert from_mapping(Drawn, to_mapping(drawn), "x.toml") == drawn
    assert from_mapping(Drawn, {"shape": {"radius": 5.0}}, "x.toml") == Drawn(Round(5.0))
    # without a tag it stays what it was
    base = Drawn(Square(7.0))
    assert from_mapping(Drawn, {"shape": {"side": 5.0}}, "x.toml", base) == Drawn(Square(5.0))
    turned = from_mapping(Drawn, {"shape": {"kind": "round"}}, "x.toml", base)
    assert turned == Drawn(Round())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "sqare"}, r"shape\.kind: no 'sqare' \(did you mean square\?\)"),
        ({"kind": 3}, r"shape\.kind: no 3; expected one of round, square"),
        ({"kind": "square", "radius": 1.0}, r"unknown setting shape\.radius"),
        ({"side": 1.0}, r"unknown setting shape\.side"),
    ],
)
def test_a_table_of_no_kind_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_mapping(Drawn, {"shape": table}, "x.toml")


@dataclass(frozen=True)
class Part:
    size: float
    names: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "f.toml: parts is missing; expected a list (a table (Part))"),
        (
            {"parts": [{"size": 3, "names": []}, {"names": []}]},
            "f.toml: parts[1].size is missing; expected a number",
        ),
    ],
)
def test_a_setting_without_a_default_that_is_missing_is_named(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        from_mapping(Whole, values, "f.toml")
    assert str(caught.value) == message


def test_nested_tables_become_dotted_names() -> None:
    nested = {"a": {"b": {"c": 2}, "d": [3]}, "e": 5, "f": {}}
    assert flat(nested) == {"a.b.c": 2, "a.d": [3], "e": 5}
    assert list(flat(nested)) == ["a.b.c", "a.d", "e"]


def test_a_value_of_another_type_is_refused_in_words() -> None:
    for wrong, message in (
        ({"width": "12"}, "width must be a whole number, got '12'"),
        ({"width": 12.0}, "width must be a whole number, got 12.0"),
        ({"share": "x"}, "share must be a number, got 'x'"),
        ({"share": [0.5]}, r"share must be a number, got \[0.5\]"),
    ):
        with pytest.raises(UsageError, match=f"^{message}$"):
            Ranged(**wrong)  # type: ignore[arg-type]
    assert Ranged(np.int64(3), np.float32(0.5)).width == 3  # type: ignore[arg-type]
    assert Ranged(None, 0).width is None
