"""`pellucid exercise NAME`: write a backward; mistakes are recognised and named."""

import runpy
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.apps.cli.kept import keep, read_kept
from pellucid.apps.cli.language import printed_language, tr, wrapped
from pellucid.apps.teach import course_file
from pellucid.apps.teach.exercise import EXERCISES, Result, advice, diagnose, page, read, text
from pellucid.core.errors import UserError
from pellucid.core.settings import check_known


def exercise(
    name: str = "",
    /,
    *,
    hint: bool = False,
    solution: bool = False,
    train: bool = False,
    folder: Path = Path("exercises"),
) -> int:
    """Write a forward or backward yourself; mistakes are recognised by their numbers, and named.

    The first time it writes a file with the equation and an empty function. Fill it in and run the
    command again: gradients are compared with central differences in float64, a forward with
    Pellucid's. Exit code 1 if one is wrong or the function is empty. Without a name, lists the
    exercises.

    Args:
        name: Which exercise; unset: list them and what is solved.
        hint: Show a hint; each time one more, up to three.
        solution: Show a right answer.
        train: Put your right answers into a whole Transformer, and train it for half a minute.
        folder: Where your files and progress.json are.
    """
    from pellucid.apps.cli.console import Output  # its packages are not in the site's workbench

    console, file = Output(), folder / "progress.json"
    progress = read_kept(file, solved=bool, hints=int)

    def say(line: str) -> None:
        console.say(wrapped(line, console.width))

    if train:
        code: int = runpy.run_path(str(course_file("your_transformer.py")))["main"](
            folder, printed_language()
        )
        return code
    if not name:
        width = max(map(len, EXERCISES))
        for number, each in enumerate(EXERCISES, start=1):
            mark = "✓" if progress.get(each, {}).get("solved") else " "
            title = text(read(each)["title"], printed_language())
            say(f"{mark} {number:>2}  {each:<{width}}  {title}")
        say(_standing(progress))
        return 0
    check_known("exercise", name, EXERCISES)
    failed = False
    mine = progress.setdefault(name, {"solved": False, "hints": 0})
    path = folder / f"{name}.py"
    if solution:
        console.say(read(name)["solution"].strip())
    elif hint:
        hints = read(name)["hints"]
        mine["hints"] = min(mine["hints"] + 1, len(hints))
        keep(file, progress)  # before anything is printed: the output may be closed
        for number, each in enumerate(hints[: mine["hints"]], start=1):
            say(f"{number}. {text(each, printed_language())}")
    elif not path.exists():
        keep(file, progress)
        path.write_text(page(name, printed_language()), encoding="utf-8")
        console.say(textwrap.indent(read(name)["equation"].strip(), "  "))
        say(tr("Wrote {}. Fill in the function, then run this command again.").format(path))
    else:
        try:
            results = checked(name, path)
        except NotImplementedError:
            say(tr("{} is still empty; --hint helps.").format(path))
            return 1
        failed = not all(result.passed for result in results)
        mine["solved"] = not failed
        keep(file, progress)
        for result in results:
            say(verdict(result))
        say(tr("Try again; --hint helps.") if failed else _standing(progress))
        if not failed:
            say(tr("Our own derivation: {}").format(f"pellucid explain {read(name)['topic']}"))
    return 1 if failed else 0


def verdict(result: Result) -> str:
    """Describe whether a result is right, and the mistake in it."""
    name, yours, right = result.name, result.yours, result.right
    if result.passed:
        return tr("{}: right, to {:.0e}").format(name, result.off)
    if yours.shape != right.shape:
        wrong = tr("{}: wrong, its shape is {}; expected {}.").format(
            name, yours.shape, right.shape
        )
    elif np.isfinite(result.off):
        off = 100 * result.off
        wrong = tr("{}: wrong, {} % off.").format(name, f"{off:.0f}" if off >= 1 else f"{off:.1g}")
    else:
        wrong = tr("{}: wrong, it has values that are not finite.").format(name)
    if result.mistake is not None:
        return f"{wrong} {result.mistake.to(printed_language())}"
    if yours.shape == right.shape:
        at = np.unravel_index(np.argmax(np.abs(np.nan_to_num(yours) - right)), right.shape)
        where = ", ".join(map(str, at))
        far = tr("No known mistake. The furthest: [{}] is {:.6f}, and should be {:.6f}.")
        return f"{wrong} {far.format(where, yours[at], right[at])}"
    return wrong


def _standing(progress: dict[str, Any]) -> str:
    """Describe how many exercises are solved, and which one is next."""
    left = [name for name in EXERCISES if not progress.get(name, {}).get("solved")]
    done = tr("Solved: {} of {}.").format(len(EXERCISES) - len(left), len(EXERCISES))
    return f"{done} {tr('Next:')} pellucid exercise {left[0] if left else '--train'}"


def checked(name: str, path: Path) -> list[Result]:
    """Run the learner's file, and check the function in it; return the results.

    The file may import the learner's other files. Raises `NotImplementedError` if the function is
    still empty, and `UserError` for an error in the learner's files, with its line if known.
    """
    folder, before = path.parent.resolve(), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        function = runpy.run_path(str(path)).get(name)
        if not callable(function):
            raise UserError(f"{path}: expected a function {name}, found none; keep its name")
        return list(diagnose(name, function))
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).resolve().parent == folder]
        if isinstance(error, NotImplementedError) and own and own[-1].name == name:
            raise
        file, line = (own[-1].filename, own[-1].lineno) if own else (path, None)
        about = str(error).rstrip()  # NumPy's on shapes ends with a space
        if isinstance(error, SyntaxError):
            file, line, about = error.filename or path, error.lineno, error.msg
        here = path.with_name(Path(file).name)
        where = f"{here}, line {line}" if line else str(here)
        hint = advice(about)
        says = f". {hint.to(printed_language())}" if hint else ""
        raise UserError(f"{where}: {type(error).__name__}: {about}{says}") from error
    finally:
        sys.path.remove(str(folder))
        for module in set(sys.modules) - before:
            if Path(getattr(sys.modules[module], "__file__", None) or "/").parent == folder:
                del sys.modules[module]  # a file that was corrected since is read again
