"""The command line: finds the verb, and turns every fault into one clear message.

Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted, 141 no longer read while training.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pellucid import __version__
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import nearest

VERBS = {
    "demo": "train two small models on real data and show what they learnt (5 minutes)",
    "chat": "train the Korean chatbot (5 minutes) and talk to it",
    "train": "train a named recipe, or one of your own, on its data or on yours",
    "evaluate": "score a trained model on pairs it was not trained on",
    "generate": "give a trained model text: as arguments, on standard input, or at a prompt",
    "store": "write a trained model again in fewer bytes: float16, int8",
    "export": "write a trained model for another engine: CTranslate2, ONNX",
    "view": "draw what attention does with a sentence: here, as a figure, as a page",
    "lab": "change one thing, repeat over seeds, get an honest interval",
    "recipes": "list the recipes that come with Pellucid",
    "bench": "measure how fast this machine trains, and where the time goes",
    "check": "hold every derivative against finite differences on this machine",
    "explain": "explain a topic: equation, derivation next to our code, a numeric check",
    "plot": "draw what the articles draw: softmax, activations, positions, variance",
}

USAGE = """\
usage: pellucid VERB [OPTIONS]

Transformers whose every derivative is written by hand: train, measure and use them.

{verbs}

`pellucid VERB --help` shows a verb's options; --debug (or PELLUCID_DEBUG=1) shows tracebacks.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to the process's own."""
    _open_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = _take_debug(given) or os.environ.get("PELLUCID_DEBUG", "") not in ("", "0")
    logging.basicConfig(format="pellucid: %(message)s", level=logging.WARNING)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # the argument parser's way of ending
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141 if _trains(given) else 0
    except KeyboardInterrupt:
        return 130
    except Exception as fault:
        if debug:
            traceback.print_exc()
        else:
            print(f"pellucid: {describe(fault)}", file=sys.stderr)
        return 2 if isinstance(fault, UsageError) else 1


def describe(fault: Exception) -> str:
    """Say what went wrong in the user's terms.

    >>> describe(UserError("words.tsv, line 3: expected 2 columns, got 1"))
    'words.tsv, line 3: expected 2 columns, got 1'
    """
    if isinstance(fault, UserError):
        return str(fault)
    if isinstance(fault, OSError) and fault.strerror:
        where = f"{fault.filename}: " if fault.filename else ""
        hint = "; nothing saved before is lost" if fault.errno == errno.ENOSPC else ""
        return f"{where}{fault.strerror}{hint}"
    if isinstance(fault, UnicodeEncodeError) and fault.encoding.lower() not in ("utf-8", "utf8"):
        return (
            f"the output is {fault.encoding}, which has no {fault.object[fault.start]!r}; set "
            "PYTHONIOENCODING=utf-8, or a UTF-8 locale, and run it again"
        )
    if isinstance(fault, MemoryError):
        return "out of memory; a smaller batch (data.batch_tokens), beam or model needs less"
    return (
        f"an unexpected fault, {type(fault).__name__}: {fault}\n"
        "Run the same command with --debug for the traceback, and please report it."
    )


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage(), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"pellucid {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise UsageError(f"no verb {verb!r}{nearest(verb, VERBS)}; there are: {', '.join(VERBS)}")
    command = importlib.import_module(f"pellucid.cli.{verb}")
    return int(command.run(rest))


def _trains(arguments: list[str]) -> bool:
    """Whether a command has more to do than to print, so that being cut short leaves it undone."""
    return arguments[:1] in (["train"], ["chat"], ["demo"]) or arguments[:2] == ["lab", "run"]


def _open_streams() -> None:
    """Give a process that was started without a standard stream an empty one.

    Otherwise the next file opened would take its place, and what is printed end up in it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, opened)


def _usage() -> str:
    width = max(map(len, VERBS))
    return USAGE.format(verbs="\n".join(f"  {verb:<{width}}  {VERBS[verb]}" for verb in VERBS))


def _take_debug(arguments: list[str]) -> bool:
    """Remove --debug, wherever it stands among the options; after a bare -- it is text."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" not in arguments[:end]:
        return False
    arguments.remove("--debug")
    return True
