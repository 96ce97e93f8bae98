"""The Python side of the workbench.

The page's script `docs/workbench/worker.js` calls it in the browser. It runs in Pyodide with NumPy
and the library alone. The messages come from the functions that `pellucid exercise` uses.
"""

from __future__ import annotations

import ast
import base64
import dis
import importlib
import io
import json
import linecache
import os
import platform
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.apps.cli.exercise import checked, verdict
from pellucid.apps.cli.language import translated
from pellucid.apps.teach import course_file, exercise
from pellucid.check import TOLERANCE, OpCase, op_cases
from pellucid.core.errors import UserError
from pellucid.core.vjp import Pair, pair_of
from pellucid.system.language import Language, Text, speaking

FOLDER = Path("exercises")
MOST_PRINTED = 4000
"""The most characters to show of a learner's output."""

WIDTHS = "hangul-widths.ttf"
"""The file of a font that has the width of Korean letters, and draws nothing."""

BATCH = 32
"""Numbers per step, half as many as in the file, because NumPy is slower in the browser."""

Say = Callable[[str], Any]


def about() -> str:
    """Return the versions of Python and NumPy."""
    return f"Python {platform.python_version()}, NumPy {np.__version__}"


def check(name: str, answers: str, language: Language) -> str:
    """Check one answer.

    `answers` is all of them as JSON, since one may import another. Returns JSON: `lines`, the
    messages; `marks`, whether each is about a right result; `solved`; `printed`, the output of the
    code; `line`, the line of an error.
    """
    path = _written(json.loads(answers)) / f"{name}.py"
    with speaking(language), redirect_stdout(io.StringIO()) as printed:
        try:
            results = checked(name, path)
        except NotImplementedError:
            empty = Text("The function is still empty.", "함수가 아직 비어 있습니다.")
            return _said([empty.to(language)], [False], False, printed)
        except UserError as error:
            about_it = str(error).replace(f"{FOLDER}{os.sep}", "")
            line = re.search(rf"\b{name}\.py, line (\d+)", about_it)
            number = int(line[1]) if line else None
            return _said([translated(about_it)], [False], False, printed, number)
        marks = [result.passed for result in results]
        return _said([verdict(result) for result in results], marks, all(marks), printed)


def _written(answers: dict[str, str]) -> Path:
    """Write the answers as files that can import each other; return their folder."""
    FOLDER.mkdir(exist_ok=True)
    for each, code in answers.items():
        path = FOLDER / f"{each}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != code:
            path.write_text(code, encoding="utf-8")
    linecache.clearcache()
    return FOLDER


def _said(
    lines: list[str],
    marks: list[bool],
    solved: bool,
    printed: io.StringIO | None = None,
    line: int | None = None,
) -> str:
    """Encode the result of a check as JSON."""
    out = printed.getvalue()[:MOST_PRINTED] if printed else ""
    said = {"lines": lines, "marks": marks, "solved": solved, "printed": out, "line": line}
    return json.dumps(said, ensure_ascii=False)


# any op's backward, changed


def rows_of(op: str) -> list[OpCase]:
    """Return the rows of `pellucid check` for an op."""
    return [case for case in op_cases() if case.op == op]


def pair_of_op(op: str) -> Pair:
    """Return the forward and backward of an op."""
    from pellucid import ops

    return rows_of(op)[0].of or pair_of(getattr(ops, op))


def change(op: str, source: str, language: Language) -> str:
    """Check an op with a changed backward; return the same as `check`, a line per row."""
    pair = pair_of_op(op)
    file = f"{pair.backward.__name__}.py"
    scope = dict(vars(sys.modules[pair.backward.__module__]))
    try:
        exec(compile(source, file, "exec"), scope)
        backward = scope[pair.backward.__name__]
        lines, marks = zip(*_checked_rows(op, backward, language), strict=True)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line, says = frames[-1].lineno if frames else None, str(error)
        if isinstance(error, SyntaxError):
            line, says = error.lineno, error.msg
        with speaking(language):
            where = translated(f"{file}, line {line}") if line else file
        return _said([f"{where}: {type(error).__name__}: {says}"], [False], False, None, line)
    return _said(list(lines), list(marks), all(marks))


def _checked_rows(
    op: str, backward: Callable[..., Any], language: Language
) -> Iterator[tuple[str, bool]]:
    """Yield (message, whether it is right) for each row of an op with a backward."""
    for row in rows_of(op):
        pair = Pair(pair_of_op(op).forward, backward)
        case = OpCase(row.op, row.note, row.arrays, row.fixed, pair)
        errors = case.errors()
        wrong = {
            array: error
            for array, error in zip(row.arrays, errors.values(), strict=True)
            if not error <= TOLERANCE
        }
        if wrong:
            found = ", ".join(f"d{array}: {_off(error)}" for array, error in wrong.items())
            says = Text(
                f"{row.name}: {found} off the finite difference",
                f"{row.name}: 유한 차분과 다릅니다. {found}",
            )
        else:
            furthest = max(errors.values())
            says = Text(
                f"{row.name}: right, to {furthest:.0e}", f"{row.name}: {furthest:.0e}까지 맞습니다"
            )
        yield says.to(language), not wrong


def _off(error: float) -> str:
    return f"{100 * error:.2g} %" if np.isfinite(error) else "∞"


# a Transformer of one's own

trained: dict[str, Any] = {}
"""The module and the parameters of the last training."""


def train(answers: str, language: Language, say: Say) -> str:
    """Train transformer.py with the right answers in it.

    `say` receives each line at once.
    """
    folder = _written(json.loads(answers))
    course = Path(exercise.__file__).parent / "course" / "your_transformer.py"
    yours = runpy.run_path(str(course))

    def live(t: Any) -> None:
        t.N, plain = BATCH, t.train

        def shown(*words: Any) -> None:
            say(" ".join(map(str, words)))
            print(*words)

        def kept(*given: Any) -> Any:
            t.print = shown
            trained.update(module=t, parameters=plain(*given))
            del t.print
            return trained["parameters"]

        t.train = kept

    functions = yours["solved"](folder)
    names = ", ".join(functions) or Text("none yet", "아직 없음").to(language)
    head = Text("yours", "내 함수").to(language)
    say(f"{head}: {names} ({len(functions)}/{len(yours['PLACES'])})")
    found = yours["trained"](yours["built"](functions, [live]), say=say, language=language)
    return json.dumps({"right": found["right"], "of": found["of"], "solved": len(functions)})


def ask(number: int) -> str:
    """Translate a number with the trained model; return answer and attention as JSON."""
    t, p = trained["module"], trained["parameters"]
    (answer,) = t.answer(p, [number])
    with redirect_stdout(io.StringIO()) as looked:
        t.look(p, number)
    english, korean = t.words(number, t.ENGLISH), "".join(t.words(number, t.KOREAN))
    return json.dumps(
        {
            "english": " ".join(english),
            "answer": answer,
            "right": answer == korean,
            "looked": looked.getvalue(),
        }
    )


# the articles' notebooks


class ElsewhereError(Exception):
    """Raised by functions that do not work in a browser: they train, with native tokenizers."""


def _elsewhere(*_: Any, **__: Any) -> Any:
    raise ElsewhereError


class Notebook:
    """The names that a notebook's cells have defined, and those that it lacks here."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.lacking: set[str] = set()
        """Names that would have been defined by cells that could not run."""


notebooks: dict[str, Notebook] = {}


def cell(name: str, source: str, language: Language, anew: bool) -> str:
    """Run a cell of a notebook after those that ran before; `anew` forgets what they defined.

    Returns, as JSON: `printed`; `pictures`, as data: addresses; `error`, in words, and its `line`;
    `elsewhere`, whether it needs something that is not in a browser, or a name that such a cell
    would have defined.
    """
    _ready()
    if anew or name not in notebooks:
        notebooks[name] = Notebook()
    notebook, file = notebooks[name], "cell.py"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    error, line, elsewhere, defined = None, None, False, set[str]()
    with speaking(language), redirect_stdout(io.StringIO()) as printed:
        try:
            body, shown = ast.parse(source, file), None
            if body.body and isinstance(last := body.body[-1], ast.Expr):
                body.body.pop()
                shown = ast.Expression(last.value)
            code = compile(body, file, "exec")
            stores = (one for one in dis.get_instructions(code) if one.opname == "STORE_NAME")
            defined = {one.argval for one in stores}
            exec(code, notebook.names)
            if shown is not None:
                value = eval(compile(shown, file, "eval"), notebook.names)
                if value is not None:
                    print(repr(value), end="")
        except ElsewhereError:
            elsewhere = True
        except (Exception, SystemExit) as found:
            elsewhere = isinstance(found, NameError) and found.name in notebook.lacking
            frames = [f for f in traceback.extract_tb(found.__traceback__) if f.filename == file]
            line = frames[-1].lineno if frames else getattr(found, "lineno", None)
            error = f"{type(found).__name__}: {found}"
    if elsewhere:  # a name from before would stand for what this cell would have made
        error = line = None
        notebook.lacking |= defined
        for each in defined:
            notebook.names.pop(each, None)
    said = {
        "printed": printed.getvalue(),
        "pictures": _pictures(printed.getvalue()),
        "error": error,
        "line": line,
        "elsewhere": elsewhere,
    }
    return json.dumps(said, ensure_ascii=False)


def _ready() -> None:
    """Put what the articles share on the path; what trains in it does not work here."""
    folder = str(course_file("lesson.py").parent)
    if folder not in sys.path:
        sys.path.append(folder)
        os.environ["MPLBACKEND"] = "agg"
        sys.argv = ["notebook"]
        lesson = importlib.import_module("lesson").Lesson
        lesson.train, lesson.suffix = _elsewhere, ".svg"


def draws() -> None:
    """Let matplotlib, once it is here, leave the text of its pictures to the browser's fonts.

    So Korean labels need no font in the site. Formulas stay shapes: their signs are of fonts that
    the browser has not.
    """
    from matplotlib import font_manager, rcParams
    from matplotlib.backends.backend_svg import RendererSVG

    font_manager.fontManager.addfont(Path(__file__).with_name(WIDTHS))
    rcParams["svg.fonttype"] = "none"
    as_text = RendererSVG._draw_text_as_text

    def drawn(self: Any, gc: Any, x: float, y: float, s: str, *how: Any, **more: Any) -> None:
        formula = "$" in s and not re.search("[가-힣]", s)
        draw: Any = RendererSVG._draw_text_as_path if formula else as_text
        draw(self, gc, x, y, s, *how, **more)

    RendererSVG._draw_text_as_text = drawn  # type: ignore[method-assign]


def _pictures(printed: str) -> list[str]:
    """Return the pictures that a cell has saved, as addresses that contain them."""
    paths = map(Path, re.findall(r"^(?:picture|그림): (.*[.]svg)$", printed, re.MULTILINE))
    drawn = (path.read_text(encoding="utf-8") for path in paths if path.exists())
    own = (re.sub("'(?:DejaVu Sans|Hangul widths)'", "system-ui", svg) for svg in drawn)
    return [f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}" for svg in own]


# transformer.py in two columns, with values


def values(numbers: str, language: Language) -> str:
    """Return every array of a forward and backward over some numbers, as text, by its name."""
    import columns

    t = columns.module(course_file("transformer.py"))
    asked = [int(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d{3})*", numbers)]
    if not asked or not set(asked) <= set(range(1, 1_000_000)):
        says = Text("Numbers from 1 to 999,999, please.", "1부터 999,999까지의 수를 적으세요.")
        return json.dumps({"error": says.to(language)}, ensure_ascii=False)
    found, loss = columns.traced(t, asked)
    shown = {f"{of} {name}": columns.as_text(array) for (of, name), array in found.items()}
    return json.dumps({"loss": loss, "values": shown}, ensure_ascii=False)
