"""The commands. A new one is a row here and a module of its name with a function of its name.

The function's parameters are the options, its docstring is the help. A command whose options depend
on its arguments has `run(arguments)` instead.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from pellucid.apps.cli.language import tr, wrapped


class Command(NamedTuple):
    """One command of `pellucid`."""

    name: str
    summary: str

    def run(self, arguments: list[str]) -> int:
        """Run it with the arguments after its name; return the exit code."""
        module = importlib.import_module(f"pellucid.apps.cli.{self.name}")
        from pellucid.apps.cli.options import parse

        if hasattr(module, "run"):
            return int(module.run(arguments))
        return parse(getattr(module, self.name), self.name, arguments)


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "demo", "train two small models on real data and show what they learnt (5 minutes)"
        ),
        Command("chat", "train the Korean chatbot (5 minutes) and talk to it"),
        Command("train", "train a recipe by name, or your own settings and data"),
        Command("runs", "compare the runs in a folder: settings that differ, scores, minutes"),
        Command("evaluate", "score a trained model on data held out of training"),
        Command("generate", "answer texts: arguments, a file, standard input or a prompt"),
        Command("quantize", "write a smaller copy of a model: float16 or int8"),
        Command("export", "write a model for another engine: CTranslate2, ONNX or Hugging Face"),
        Command("view", "draw a model's attention: in the terminal, as a figure, as a web page"),
        Command("serve", "answer requests over HTTP: the OpenAI and LibreTranslate conventions"),
        Command("lab", "run a study: change one thing, repeat over random seeds, report intervals"),
        Command("models", "list the trained models that come with Pellucid"),
        Command("recipes", "list the recipes that `train` knows by name"),
        Command("bench", "measure how fast this machine trains, and where the time goes"),
        Command("check", "verify every derivative against finite differences"),
        Command("explain", "explain a topic: equation, derivation next to our code, numeric check"),
        Command("exercise", "derive a backward yourself: it is checked, and mistakes are named"),
        Command("plot", "draw learning curves, or what the articles draw: softmax, variance, ..."),
        Command("completion", "print what bash or zsh completes commands and options with"),
        Command("env", "list versions, processor and threads: what a bug report needs"),
    )
}

UNFINISHED = (["demo"], ["chat"], ["train"], ["lab", "run"])
"""Commands that stop before their work is done when their output is closed."""


def listed(summaries: Mapping[str, str]) -> str:
    """Format names and summaries as two columns of the terminal, in the user's language."""
    columns, indent = shutil.get_terminal_size().columns, max(map(len, summaries)) + 4
    return "\n".join(
        wrapped(tr(summary), columns, f"  {name}".ljust(indent), " " * indent)
        for name, summary in summaries.items()
    )
