"""The registry of commands.

A new command is an entry here, and a module of its name with a function of its name. The function's
parameters are the options, its docstring is the help. A command whose options depend on its
arguments has `run(arguments)` instead.
"""

import importlib
import shutil
from collections.abc import Mapping

from pellucid.apps.cli.language import tr, wrapped

COMMANDS = {
    "demo": "train two small models on real data and show what they learnt (5 minutes)",
    "data": "report what is in a file of pairs: lengths, labels, duplicates, suspicious rows",
    "train": "train a recipe by name, or your own settings and data",
    "speedrun": "repeat the record: seconds to a quality, over random seeds (20 minutes)",
    "runs": "compare the runs in a folder: settings that differ, scores, minutes",
    "evaluate": "score a trained model on data held out of training",
    "baseline": "score a linear model of character n-grams on the split of a recipe of labels",
    "generate": "answer texts: arguments, a file, standard input or a prompt",
    "quantize": "write a smaller copy of a model: float16 or int8",
    "export": "write a model for another engine: CTranslate2, ONNX or Hugging Face",
    "view": "draw a model's attention: in the terminal, as a figure, as a web page",
    "learn": "train a Transformer in a browser's page, and look inside while it learns",
    "serve": "answer requests over HTTP: the OpenAI and LibreTranslate conventions",
    "lab": "run a study: change one thing, repeat over random seeds, report intervals",
    "models": "list the trained models that come with Pellucid",
    "recipes": "list the recipes that `train` knows by name",
    "check": "verify every derivative against finite differences",
    "explain": "explain a topic: equation, derivation next to our code, numeric check",
    "exercise": "derive a backward yourself: it is checked, and mistakes are named",
    "worksheet": "a backward to compute on paper, with its answers: PDF or SVG",
    "plot": "draw learning curves, or what the articles draw: softmax, variance, ...",
    "completion": "print what bash or zsh completes commands and options with",
    "env": "list versions, processor and threads: what a bug report needs",
}
"""A one-line summary of each command."""

UNFINISHED = ("demo", "train", "speedrun", "lab run", "check", "exercise", "explain")
"""Commands that have not done their work if their output is closed early; the exit code is then an
error."""


def run_command(name: str, arguments: list[str]) -> int:
    """Run a command with the arguments after its name; return the exit code."""
    module = importlib.import_module(f"pellucid.apps.cli.{name}")
    from pellucid.apps.cli.options import parse

    if hasattr(module, "run"):
        return int(module.run(arguments))
    return parse(getattr(module, name), name, arguments)


def listed(summaries: Mapping[str, str]) -> str:
    """Format names with summaries in two columns, in the user's language."""
    columns, indent = shutil.get_terminal_size().columns, max(map(len, summaries)) + 4
    return "\n".join(
        wrapped(tr(summary), columns, f"  {name}".ljust(indent), " " * indent)
        for name, summary in summaries.items()
    )
