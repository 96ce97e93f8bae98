"""Corpora and command lines, valid and invalid: an answer or one message, in time."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults import children, models, training
from benchmarks.faults.mode import Case

from pellucid.apps.cli.commands import COMMANDS

Draw = np.random.Generator

# Corpora

BROKEN = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xff\xfe", b"\0", b"a" * 60_000]
TEXTS = [
    b"\t", b"\t\t", b"\n", b"\n\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b'"', b'""', b",", b"\\", b"{",
    b"}", b"[]", b"null", b"1e999", b"\x1b[31m", "\u2028".encode(), "\u200b".encode(),
    "\U0001f600".encode(), "\u05d0".encode(), b" " * 300, b"[MASK]", b"<unk>", b"source\ttarget\n",
    "\u00e9".encode(), "\uac00".encode() * 40, b"a" * 400, "e\u0301".encode(), b"\x7f", b"\x0c",
]  # fmt: skip


def pairs(draw: Draw, kind: str, count: int) -> bytes:
    """Make a corpus of `count` pairs in a file format."""
    letters = list("abcdefg éß가")
    texts = [
        ("".join(draw.choice(letters, draw.integers(1, 9))) or "a").strip() or "a"
        for _ in range(2 * count)
    ]
    rows = list(zip(texts[::2], texts[1::2], strict=True))
    if kind == "tsv":
        return "".join(f"{a}\t{b}\n" for a, b in rows).encode()
    if kind == "csv":
        return "".join(f'"{a}","{b}"\n' for a, b in rows).encode()
    if kind == "jsonl":
        return "".join(json.dumps({"source": a, "target": [b, a]}) + "\n" for a, b in rows).encode()
    return "".join(f"{a}\n" for a, _ in rows).encode()


def spoilt(data: bytes, draw: Draw) -> bytes:
    """Insert, delete, change, repeat or cut off bytes, up to three times.

    They are mostly whole characters, because a file that is not UTF-8 is refused before its content
    matters.
    """
    changed = bytearray(data)
    for _ in range(draw.integers(4)):
        at = int(draw.integers(len(changed) + 1))
        whole = draw.integers(8) > 0
        what = draw.integers(5 if whole else 7)
        end = at + int(draw.integers(1, 30))
        if whole:
            at, end = (_boundary(changed, place) for place in (at, end))
        if what == 0:
            changed[at:at] = TEXTS[draw.integers(len(TEXTS))]
        elif what == 1:
            del changed[at:end]
        elif what == 2:
            changed[at:at] = changed[at:end] * int(draw.integers(1, 90))
        elif what == 3:
            del changed[at:]
        elif what == 4:
            changed[at:end] = b"\n".join(bytes([byte]) for byte in range(32, 127))
        elif what == 5:
            changed[at:at] = BROKEN[draw.integers(len(BROKEN))]
        elif at < len(changed):
            changed[at] ^= 1 << int(draw.integers(8))
    return bytes(changed)


def _boundary(data: bytes, at: int) -> int:
    """Return the next position between two characters."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


class Corpora:
    """Each case trains two steps on a corpus that may be damaged, and answers."""

    units = "corpora"
    kinds = ("tsv", "csv", "jsonl", "txt", "parallel", "tsv.gz")

    def __init__(self, place: Path) -> None:
        self.place = place
        training.write(place / "corpus", 2, 2, 2)
        train = ["train", "tiny.toml", "--run", "run"]
        children.warm(place / "corpus", train, ["generate", "run", "abc"])

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw, kind = np.random.default_rng(number), self.kinds[number % len(self.kinds)]
        folder = self.place / "corpus"
        shutil.rmtree(folder / "run", ignore_errors=True)
        names = ["a.txt", "b.txt"] if kind == "parallel" else [f"a.{kind}"]
        count = int(draw.integers(1, 90))
        for name in names:
            data = spoilt(pairs(draw, kind.removesuffix(".gz"), count), draw)
            if kind.endswith(".gz"):
                packed = gzip.compress(data, mtime=0)
                data = spoilt(packed, draw) if draw.integers(3) == 0 else packed
            (folder / name).write_bytes(data)
        family = ["tiny.toml"]
        if kind == "txt":
            _write_gpt(folder)
            family = ["gpt.toml"]
        ended = children.command(["train", *family, "--run", "run", "--data.train", *names], folder)
        became, seconds = children.verdict(ended), ended.seconds
        if became == "done":
            asked = children.command(["generate", "run", "abc"], folder)
            seconds = max(seconds, asked.seconds)
            became = children.verdict(asked)
            became = "trained" if became == "done" else f"TRAINED, {became.upper()}"
        return Case(kind, became, seconds=seconds, figures=ended.err if became.isupper() else "")


def _write_gpt(folder: Path) -> None:
    text = (folder / "tiny.toml").read_text("utf-8")
    text = re.sub(r"(en|de)coder_layers = 1\n", "", text)
    kind = '[model]\nmodel_type = "pellucid-causal-lm"\nnum_hidden_layers = 1\n'
    (folder / "gpt.toml").write_text(text.replace("[model]\n", kind), "utf-8")


# Command lines

OPTION = re.compile(
    r"^│ (?:-\w, )?(--[\w.-]+)(?:, --[\w.-]+)?(?: (\{[^}]*\}|\[PATH|(?:INT|FLOAT|PATH|STR)\b"
    r"(?: (?:INT|FLOAT|PATH|STR)\b)?))?",
    re.MULTILINE,
)
"""An option in a help text, and the placeholder of its value."""
LONG = ("demo", "check", "lab", "serve")
"""Commands that may run for more than 10 s; Ctrl-C must end them."""
PATIENCE = 1.0
"""Seconds after which such a command gets Ctrl-C."""
OFTEN = {"train": 6, "generate": 6, "view": 4, "evaluate": 3, "quantize": 2, "serve": 2, "lab": 2}
"""How often a command is used relative to others: those with more options, more often."""
NUMBERS = (["1", "2", "3", "7"], ["-1", "0", "1000000000", "99999999999999999999", "x", "", "1.5"])
FRACTIONS = (
    ["0.5", "1", "0.1", "2"],
    ["-1", "0", "nan", "inf", "-inf", "1e300", "1e-300", "x", "", "0,5"],
)
WORDS = (
    ["abc", "a b", "가나다", "a[MASK]", "\U0001f600"],
    ["", "-", "--", "a" * 5000, "\t", "\n", "%s", "{}", "../x", "[red]x[/red]", "\x1b[31m"],
)
PATHS = (
    ["words.tsv", "run", "new", "x.html", "x.png", "x.svg", "x.txt"],
    ["model", "damaged", "tiny.toml", "none", "", ".", "/dev/null", "/dev/zero", "/proc/version"],
)
SUBJECTS: dict[str, tuple[list[str], list[str]]] = {
    "train": (["tiny.toml", "--resume run"], ["none", "model", "words.tsv", "--resume", ""]),
    "lab": (["list"], ["run none", "run tiny.toml", "report none", "report", "run", "x", ""]),
    "explain": (["attention", "softmax", "layer-norm"], ["none", "", "attention none"]),
    "plot": (["softmax", "activations", "positions", "variance"], ["none", ""]),
    "quantize": (["model new", "run new"], ["model model", "none new", "model", "damaged new"]),
    "export": (["model new"], ["none new", "model", "damaged new", "model model"]),
    **dict.fromkeys(
        ("generate", "evaluate", "view", "serve"),
        (["model", "run"], ["damaged", "none", "words.tsv", ".", ""]),
    ),
}
"""Arguments after a command: (valid, invalid)."""
STDIN = [b"", b"abc\n", b"abc\nabd\n\n", b"\xff\n", b"a[MASK]c\n", b"\0\n", b"a" * 9000]


class Commands:
    """Each case is a command line made from a help text, with valid and invalid options."""

    units = "command lines"

    def __init__(self, place: Path) -> None:
        self.place = place
        self.options: dict[str, list[tuple[str, str]]] = {}
        self.names = [name for name in COMMANDS for _ in range(OFTEN.get(name, 1))]
        training.write(place / "whole", 2, 2, 2)
        with (place / "whole" / "tiny.toml").open("a") as file:
            file.write("minutes = 0.02\n")  # a run with any other settings ends
        models.write(place / "whole" / "model")
        shutil.copytree(place / "whole" / "model", place / "whole" / "damaged")
        models.flipped_bit(place / "whole" / "damaged", np.random.default_rng(0))
        train = ["train", "tiny.toml", "--run", "run"]
        children.warm(place / "whole", train, ["generate", "run", "abc"])
        for name in COMMANDS:
            subject = {"train": ["tiny.toml"], "lab": ["run"]}.get(name, [])
            told = children.command([name, *subject, "--help"], place / "whole").out
            self.options[name] = OPTION.findall(told)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw, folder = np.random.default_rng(number), self.place / "commands"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.place / "whole", folder)
        name = self.names[number % len(self.names)]
        words = self.words(name, draw)
        most = PATIENCE if name in LONG else children.MOST_SECONDS
        ended = children.command(words, folder, _pick(STDIN, draw), most)
        became = children.verdict(ended)
        if became == "SLOW" and name in LONG and ended.code in (0, 130, 143):
            became = "stopped by Ctrl-C"
        told = json.dumps(words) + ended.err[-300:] if became[:1].isupper() else ""
        return Case(name, became, seconds=ended.seconds, figures=told)

    def words(self, name: str, draw: Draw) -> list[str]:
        """Make one command line."""
        subject = _one_of(SUBJECTS[name], draw).split() if name in SUBJECTS else []
        texts = {"generate": draw.integers(3), "view": min(1, draw.integers(8))}.get(name, 0)
        subject += [_one_of(WORDS, draw) for _ in range(texts)]
        words = [name, *subject]
        for _ in range(draw.integers(4)):
            if options := self.options[name]:
                option, shown = options[draw.integers(len(options))]
                words += [option, *self.values(shown, draw)]
        if draw.integers(12) == 0:
            words.append(_pick(["--nonsense", "-x", "--", "extra", "--=", "--help", "-h"], draw))
        if name == "serve":
            words += ["--port", "0"]
        return words

    def values(self, shown: str, draw: Draw) -> list[str]:
        """Return values for an option, by the placeholder in the help."""
        if not shown:
            return []  # a switch
        if shown.startswith("{"):
            return [_one_of((shown[1:-1].split(","), ["none", "None", "x", ""]), draw)]
        kinds = {"INT": NUMBERS, "FLOAT": FRACTIONS, "PATH": PATHS}
        return [_one_of(kinds.get(word.strip("["), WORDS), draw) for word in shown.split()]


def _one_of(values: tuple[list[str], list[str]], draw: Draw) -> str:
    """Return a valid value in three cases of four, else an invalid one."""
    right, wrong = values
    return _pick(wrong if draw.integers(4) == 0 else right, draw)


def _pick(values: Any, draw: Draw) -> Any:
    return values[draw.integers(len(values))]
