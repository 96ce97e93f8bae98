"""The command line: run a command, and turn every error into one clear message.

Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted, 143 ended by SIGTERM, 141 output closed
before the work of one of the commands `UNFINISHED` ended.
"""

import contextlib
import errno
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from pellucid import __version__
from pellucid.apps.cli.commands import COMMANDS, UNFINISHED, listed, run_command
from pellucid.apps.cli.language import take, take_language, tr, translated, warn, wrapped
from pellucid.core.errors import UsageError, UserError, without
from pellucid.core.parts import use
from pellucid.core.settings import check_known
from pellucid.system.language import Language, speaking

HELP = ("-h", "--help", "help")
USAGE = "usage: pellucid COMMAND [OPTIONS]"
HEAD = "Transformers whose every derivative is written by hand: train, measure and use them."
FOOT = (
    "`pellucid COMMAND --help` lists a command's options. --debug (or PELLUCID_DEBUG=1) shows "
    "tracebacks. --import FILE reads a Python file with parts of your own. `pellucid --lang ko "
    "COMMAND` (or PELLUCID_LANG=ko) speaks Korean; unset: the locale's language."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to `sys.argv`."""
    _open_streams()
    typed = list(sys.argv[1:] if arguments is None else arguments)
    debug = _take_debug(typed) or os.environ.get("PELLUCID_DEBUG", "") not in ("", "0")
    logging.basicConfig(handlers=[Warnings()])
    logging.getLogger("pellucid.kernels").setLevel(logging.INFO)  # when they take time to compile
    asked: Language | None = None
    try:
        asked = take_language(typed)
        with speaking(asked):
            while (part := take(typed, "--import")) is not None:
                if not part:
                    raise UsageError("--import expects a Python file, or the name of a module")
                use(part)
            code = _run(typed)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # the argument parser ends like this
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return (
            141 if any(typed[: len(start)] == start for start in map(str.split, UNFINISHED)) else 0
        )
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            with speaking(asked):
                print(f"pellucid: {_shown(translated(describe(error)))}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


class Warnings(logging.Handler):
    """Logging handler that prints messages on standard error, above a progress bar.

    They are warnings, and notes that kernels are being compiled.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        with contextlib.suppress(OSError):
            warn(record.getMessage())


def describe(error: Exception) -> str:
    """Describe an error in the user's terms.

    >>> describe(UserError("words.tsv, line 3: expected 2 columns, got 1"))
    'words.tsv, line 3: expected 2 columns, got 1'
    """
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (message := without(error)):
        return message
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; nothing saved before is lost" if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror}{hint}"
    if isinstance(error, UnicodeEncodeError) and error.encoding.lower() not in ("utf-8", "utf8"):
        return (
            f"the output is {error.encoding}, which has no {error.object[error.start]!r}; set "
            "PYTHONIOENCODING=utf-8, or a UTF-8 locale, and run it again"
        )
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller batch (data.batch_tokens), beam or model"
    return (
        f"unexpected {type(error).__name__}: {error}\n"
        "This is a bug in Pellucid: please report it, with the traceback that --debug shows."
    )


def _shown(message: str) -> str:
    """Wrap a message at a terminal; elsewhere keep each line whole, for `grep`."""
    if not sys.stderr.isatty():
        return message
    columns, first = shutil.get_terminal_size().columns, " " * len("pellucid: ")
    lines = [wrapped(line, columns, first, "  ") for line in message.split("\n")]
    return "\n".join(lines).removeprefix(first)


def _run(arguments: list[str]) -> int:
    """Run the command that the arguments name, or print help or version."""
    if arguments and arguments[0] in HELP:
        named = [word for word in arguments if word not in HELP]
        if named:
            return _run([*named, "--help"])
    if not arguments or arguments[0] in HELP:
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        if more := " ".join(arguments[1:]):
            raise UsageError(f"{more}: more than this command takes; see pellucid --help")
        print(f"pellucid {__version__}")
        return 0
    name, *rest = arguments
    check_known("command", name, COMMANDS)
    return run_command(name, rest)


def _usage() -> str:
    """Return the help of the whole program."""
    columns = shutil.get_terminal_size().columns
    head, foot = (wrapped(tr(text), columns) for text in (HEAD, FOOT))
    return "\n".join([tr(USAGE), "", head, "", listed(COMMANDS), "", foot])


def _open_streams() -> None:
    """Open missing standard streams as empty ones.

    Otherwise the next file that is opened would take the place of one, and receive everything that
    is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, opened)


def _take_debug(arguments: list[str]) -> bool:
    """Remove --debug from the options; return whether it was there.

    Everything after a bare -- is text.
    """
    if "--debug" not in takewhile("--".__ne__, arguments):
        return False
    arguments.remove("--debug")
    return True
