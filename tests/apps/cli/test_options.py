"""Options: repeated lists, None, and help that fits the terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.main import main
from pellucid.apps.cli.options import SamplingOptions, parse
from pellucid.core.errors import UsageError
from pellucid.generation import SearchConfig

Capture = pytest.CaptureFixture[str]
HELP = [[name] for name in COMMANDS if name != "lab"] + [
    ["lab", "run"],
    ["lab", "report"],
    ["lab", "list"],
    ["train", "g2p-demo"],
    [],
]


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_fits_80_columns_and_breaks_between_words(
    command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "2000")
    assert main([*command, "--help"]) == 0
    words = [re.findall(r"\w[\w'.-]*", text) for text in (narrow, capsys.readouterr().out)]
    assert words[0] == words[1]
    for odd in ("{None}", "'\"'\"'", "default: None", "default: )", "default: ''"):
        assert odd not in narrow


@dataclass(frozen=True)
class Inner:
    """Settings of the parser's test."""

    way: Literal["near", "far"] | None = None
    """One of two, in a text that is long enough to be continued on a second line, which the help
    must join to the first."""
    name: str = "the demo's"
    """What it is called."""


@dataclass
class Calls:
    """A command that remembers how it was called."""

    calls: list[Any] = field(default_factory=list)

    def command(
        self,
        first: str = "",
        /,
        *,
        number: int | None = 3,
        pair: tuple[str, str] | None = None,
        output: tuple[Path, ...] = (),
        both_ends: tuple[int, int] = (3, 5),
        inner: Inner = Inner(),
    ) -> int:
        """Do nothing.

        Args:
            first: A word.
            number: A number, described by a text so long that it goes on, in the source, on
                a line of its own.
            pair: Two words.
            output: Files.
        """
        self.calls.append((first, number, pair, output, inner))
        return 7

    def run(self, *arguments: str) -> Any:
        """Parse arguments and return what the command got."""
        assert parse(self.command, "test", arguments) == 7
        return self.calls[-1]


def test_none_is_a_value_of_what_may_be_unset() -> None:
    _, number, pair, _, inner = Calls().run(
        *("--number", "None", "--pair", "None", "--inner.way", "None")
    )
    assert (number, pair, inner.way) == (None, None, None)
    assert Calls().run("--pair", "a", "b", "--inner.way", "far")[2:5:2] == (
        ("a", "b"),
        Inner("far"),
    )


def test_help_joins_lines_and_shows_types_and_defaults_plainly(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert parse(Calls().command, "test", ["--help"]) == 0
    shown = capsys.readouterr().out
    assert "usage: pellucid test [FIRST]" in shown.replace("[-h] [OPTIONS] ", "")
    for line in (
        "goes on, in the source, on a line of its own. (default: 3)",
        "a second line, which the help must join to the first.",
        "--inner.way {near,far}",
        "What it is called. (default: the demo's)",
    ):
        assert line in shown


def test_a_repeated_list_is_refused() -> None:
    with pytest.raises(UsageError, match="--output is given 2 times"):
        Calls().run("--output", "a", "--output=b")
    with pytest.raises(UsageError, match="--both-ends is given 2 times"):
        Calls().run("--both_ends", "1", "2", "--both-ends", "3", "4")


@pytest.mark.parametrize("wrong", [["--number", "x"], ["--inner.way", "up"], ["--nubmer", "5"]])
def test_wrong_use_names_the_option(wrong: list[str], capsys: Capture) -> None:
    with pytest.raises(UsageError) as stop:
        Calls().run(*wrong)
    assert wrong[0] in str(stop.value)
    assert "None" not in str(stop.value)
    assert capsys.readouterr().err == ""


def test_sampling_is_on_if_any_option_of_it_is_given() -> None:
    search = SearchConfig(max_length=7)
    assert SamplingOptions().config(search, search) is None
    config = SamplingOptions(seed=3, top_k=2).config(search, search)
    assert config is not None
    assert (config.seed, config.top_k, config.max_length, config.samples) == (3, 2, 7, 1)
    several = SamplingOptions(samples=5).config(search, search)
    assert several is not None
    assert several.samples == 5
    with pytest.raises(UsageError, match="seed must be at least 0, got -1"):
        SamplingOptions(seed=-1).config(search, search)
    says = "best = 2 is of a search, and these answers are sampled: leave it out"
    with pytest.raises(UsageError, match=says):
        SamplingOptions(seed=1).config(SearchConfig(beam=2, best=2), SearchConfig(beam=2))


def test_search_options_have_one_name_in_every_command(capsys: Capture) -> None:
    names = [f"--{name}" for name in ("beam", "max-length", "length-penalty", "best")]
    for command in ("generate", "evaluate", "view"):
        assert main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(f" {name} " in shown for name in names), command
