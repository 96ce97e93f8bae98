"""The commands. A new one is a row here and a module of its name with `run(arguments)`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """One command of `pellucid`."""

    name: str
    summary: str

    @property
    def module(self) -> str:
        """The module whose `run(arguments)` does it and returns the exit code."""
        return f"pellucid.cli.{self.name}"


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "demo", "train two small models on real data and show what they learnt (5 minutes)"
        ),
        Command("chat", "train the Korean chatbot (5 minutes) and talk to it"),
        Command("train", "train a recipe by name, or your own settings and data"),
        Command("evaluate", "score a trained model on data held out of training"),
        Command("generate", "answer texts: arguments, a file, standard input or a prompt"),
        Command("quantize", "write a smaller copy of a model: float16 or int8"),
        Command("export", "write a model for another engine: CTranslate2 or ONNX"),
        Command("view", "draw a model's attention: in the terminal, as a figure, as a web page"),
        Command("serve", "answer requests over HTTP: the OpenAI and LibreTranslate conventions"),
        Command("lab", "run a study: change one thing, repeat over random seeds, report intervals"),
        Command("recipes", "list the recipes that `train` knows by name"),
        Command("bench", "measure how fast this machine trains, and where the time goes"),
        Command("check", "verify every derivative against finite differences"),
        Command("explain", "explain a topic: equation, derivation next to our code, numeric check"),
        Command("plot", "draw what the articles draw: softmax, activations, positions, variance"),
    )
}

RENAMED = {"store": "quantize"}
"""Old names of commands, which still work."""

UNFINISHED = (["demo"], ["chat"], ["train"], ["lab", "run"])
"""How commands begin whose work is left undone when nobody reads their output any more."""


def listed(summaries: Mapping[str, str]) -> str:
    """Write names and summaries as two columns, within the terminal's width."""
    columns, indent = shutil.get_terminal_size().columns, max(map(len, summaries)) + 4
    return "\n".join(
        textwrap.fill(
            summary,
            columns,
            initial_indent=f"  {name}".ljust(indent),
            subsequent_indent=" " * indent,
        )
        for name, summary in summaries.items()
    )
