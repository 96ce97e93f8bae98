"""Show examples/transformer.py in two columns: forward, and backward next to it.

A statement of a forward and the statements of its backward that undo it are in one row. So the left
column is read downwards, as it runs, and the right one upwards. A name shows its shape, from a run
in which no two sizes are equal.
"""

from __future__ import annotations

import ast
import html
import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid.apps.teach import course_file

FILE = course_file("transformer.py")
EDITIONS = {"en": FILE, "ko": FILE.with_name("transformer.ko.py")}
"""The file that each language's page shows: the same code, other comments."""
E, H, NUMBERS = 28, 4, (456_788, 60_000, 300_023)
"""Sizes for the shapes, all different; in the file N = E = 64."""


class Function(NamedTuple):
    """A function of the file that contains its backward."""

    name: str
    about: str
    signature: str
    backward: str
    """First line of the backward."""
    rows: list[tuple[list[ast.stmt], list[ast.stmt]]]
    """(Statements of the forward, statements of the backward that undo them)."""


def functions(source: str) -> Iterator[Function]:
    """Yield the functions that contain a backward, in the order of the file."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        inner = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        if [each.name for each in inner] != ["backward"]:
            continue
        about, *forward = (each for each in node.body if each is not inner[0])
        assert isinstance(about, ast.Expr)
        yield Function(
            node.name,
            ast.literal_eval(about.value),
            lines[node.lineno - 1].strip(),
            lines[inner[0].lineno - 1].strip(),
            rows(forward, inner[0].body, lines),
        )


def rows(
    forward: list[ast.stmt], backward: list[ast.stmt], lines: list[str]
) -> list[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Match each statement of a forward with the statements of the backward that undo it.

    They have the same number in their comments, or the backward calls a function that the forward
    statement made. Any other statement stays with the one before it.
    """
    made: list[list[ast.stmt]] = [[] for _ in forward]
    at = max(i for i, each in enumerate(forward) if not names_alone(each))
    for statement in backward:
        found = [
            i
            for i, each in enumerate(forward)
            if numbers(each, lines) & numbers(statement, lines) or stored(each) & called(statement)
        ]
        at = max(found, default=at)
        made[at].append(statement)
    return [([one], undone) for one, undone in zip(forward, made, strict=True)]


def names_alone(statement: ast.stmt) -> bool:
    """Return whether a statement only returns names, and so computes nothing."""
    value = getattr(statement, "value", None)
    names = value.elts if isinstance(value, ast.Tuple) else [value]
    return isinstance(statement, ast.Return) and all(isinstance(each, ast.Name) for each in names)


def numbers(statement: ast.stmt, lines: list[str]) -> set[str]:
    """Return the step numbers in the comments of a statement and of the line above it."""
    first = statement.lineno - 1
    above = lines[first - 1].strip()
    own = lines[first : statement.end_lineno]
    comments = [line.partition("  # ")[2] for line in own]
    comments += [above[2:]] if above.startswith("# ") else []
    heads = [re.match(r"[\d, ]+\.", comment) for comment in comments]
    return {number for head in heads if head for number in re.findall(r"\d+", head[0])}


def stored(statement: ast.stmt) -> set[str]:
    """Return the names that a statement assigns, also in part."""
    return {
        name
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for each in ast.walk(target)
        for name in ([each.id] if isinstance(each, ast.Name) else [])
    }


def called(statement: ast.stmt) -> set[str]:
    """Return the names that a statement calls, alone or as entries of a dictionary."""
    functions = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    parts = [each.value if isinstance(each, ast.Subscript) else each for each in functions]
    return {each.id for each in parts if isinstance(each, ast.Name)}


def module(file: Path = FILE) -> Any:
    """Return the file as a module of its own."""
    spec = importlib.util.spec_from_file_location("shown_in_columns", file)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def shapes(file: Path = FILE) -> dict[tuple[str, str], str]:
    """Return the shape of each name in each function, in letters.

    Of several calls, the one of the decoder's last layer counts: L queries and S keys.

    >>> shapes()["attention", "w"], shapes()["attention.backward", "dv"]
    ('(N, H, L, S)', '(N, H, S, D)')
    """
    t = module(file)
    t.E, t.H = E, H
    source, target = t.batch(NUMBERS)
    letters = {
        len(NUMBERS): "N", E: "E", E // 2: "E/2", H: "H", E // H: "D", t.F: "F", len(t.TARGET): "V",
        source.shape[1]: "S", target.shape[1] - 1: "L", target.shape[1]: "L + 1",
        len(t.SOURCE): "words",
    }  # fmt: skip
    found, _ = traced(t, NUMBERS)
    return {
        key: f"({', '.join(str(letters.get(n, n)) for n in array.shape)})"
        for key, array in found.items()
    }


def traced(t: Any, numbers: Sequence[int]) -> tuple[dict[tuple[str, str], np.ndarray], float]:
    """Run forward and backward on numbers.

    Return arrays by (function, name), and loss. Of several calls, the one of the decoder's last
    layer counts: L queries and S keys.
    """
    found: dict[tuple[str, str], np.ndarray] = {}

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != t.__file__:
            return None
        if frame.f_code.co_name == "softmax" and caller(frame) == "loss_and_gradients":
            return None  # not attention's
        if event == "return":
            of = frame.f_code.co_qualname.replace(".<locals>", "")
            for name, value in frame.f_locals.items():
                if isinstance(value, np.ndarray) and value.ndim:
                    if of.endswith("backward"):  # the decoder's last layer comes first
                        found.setdefault((of, name), value)
                    else:
                        found[of, name] = value
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        loss, _ = t.loss_and_gradients(t.initial(np.random.default_rng(0)), *t.batch(numbers))
    finally:
        sys.settrace(before)
    return found, float(loss)


def as_text(array: np.ndarray) -> str:
    """Return an array's shape, and the corners of its first matrix.

    >>> print(as_text(np.arange(12.0).reshape(2, 3, 2)))
    (2, 3, 2)
    [0] = [[0. 1.]
           [2. 3.]
           [4. 5.]]
    """
    first = (0,) * (array.ndim - 2)
    head = f"[{', '.join(map(str, first))}] = " if first else ""
    text = np.array2string(
        array[first], precision=3, suppress_small=True, threshold=36, edgeitems=3, prefix=head
    )
    return f"({', '.join(map(str, array.shape))}{',' * (array.ndim == 1)})\n{head}{text}"


def caller(frame: FrameType) -> str:
    """Return the name of the function that called a frame."""
    return frame.f_back.f_code.co_name if frame.f_back else ""


TOKEN = re.compile(r"(#.*)|(\"[^\"\n]*\")|([^\W\d]\w*)")


def code(text: str, known: dict[str, str]) -> str:
    """Format Python as HTML: comments in italics, names with their shapes.

    >>> code("y = f(x)  # 1.", {"x": "(N, E)"})
    'y = f(<span title="x: (N, E)">x</span>)  <i># 1.</i>'
    """

    def shown(found: re.Match[str]) -> str:
        comment, quoted, name = found.groups()
        if comment:
            return f"<i>{html.escape(comment)}</i>"
        if quoted or name not in known:
            return html.escape(found[0])
        return f'<span title="{name}: {known[name]}">{name}</span>'

    parts, end = [], 0
    for found in TOKEN.finditer(text):
        parts += [html.escape(text[end : found.start()]), shown(found)]
        end = found.end()
    return "".join([*parts, html.escape(text[end:])])


def piece(statements: list[ast.stmt], lines: list[str]) -> str:
    """Return the lines of statements with the comments above them."""
    found = []
    for each in statements:
        first = each.lineno - 1
        while lines[first - 1].strip().startswith("# "):
            first -= 1
        found += lines[first : each.end_lineno]
    return textwrap.dedent("\n".join(found))


WORDS = {
    "en": {
        "title": "A Transformer in two columns",
        "about": (
            "[`transformer.py`]({source}), the forward on the left, its backward on the "
            "right: beside each step is what undoes it. Read the left column downwards, as it "
            "runs, and the right one upwards; the lines of one box run downwards. Point at a "
            "name, or tap it, for its shape: N sentences, S source and L target tokens, E width, "
            "H heads, D = E / H, F inside the networks, V words to choose from. In a box that "
            "has the focus, the arrows ← and → go from name to name. [Train it in the "
            "browser](workbench/workbench.md#own=transformer), with your own functions in it."
        ),
        "forward": "forward ↓",
        "backward": "backward ↑",
        "live": "Numbers to translate",
        "compute": "Compute the values in this page",
        "loads": "Python then runs in this page; the first time it loads about 18 MB.",
    },
    "ko": {
        "title": "두 단으로 읽는 트랜스포머",
        "about": (
            "[`transformer.ko.py`]({source})의 순전파를 왼쪽에, 역전파를 오른쪽에 놓았습니다. 각 "
            "단계와 그것을 거꾸로 가는 코드가 나란히 있습니다. 왼쪽은 실행되는 대로 위에서 "
            "아래로, 오른쪽은 아래에서 위로 읽으세요. 한 칸 안의 줄은 위에서 아래로 실행됩니다. "
            "이름을 가리키거나 누르면 모양이 보입니다. 초점이 있는 칸에서는 ←와 → 키로 이름을 "
            "하나씩 볼 수 있습니다. N은 문장, S는 원문 토큰, L은 번역문 토큰, E는 차원, H는 헤드, "
            "D = E / H, F는 피드포워드 네트워크 안의 차원, V는 고를 수 있는 단어의 수입니다. "
            "[브라우저에서 학습시켜 보세요](workbench/workbench.md#own=transformer). 직접 쓴 "
            "함수도 넣을 수 있습니다."
        ),
        "forward": "순전파 ↓",
        "backward": "역전파 ↑",
        "live": "번역할 수",
        "compute": "이 페이지에서 값 계산하기",
        "loads": "파이썬이 이 페이지 안에서 실행됩니다. 처음 한 번은 약 18 MB를 받습니다.",
    },
}


def page(language: Literal["en", "ko"], link: str) -> str:
    """Write the page as Markdown with HTML; `link` leads to the file."""
    source = EDITIONS[language].read_text(encoding="utf-8")
    words, known = WORDS[language], shapes()
    lines = source.splitlines()
    out = [f"# {words['title']}", words["about"].replace("{source}", link), live(language)]
    for function in functions(source):
        of = (function.name, f"{function.name}.backward")
        own = [{name: shape for (of, name), shape in known.items() if of == each} for each in of]
        boxes = [(words["forward"], words["backward"]), (function.signature, function.backward)]
        boxes += [(piece(one, lines), piece(two, lines)) for one, two in function.rows]
        cells = "".join(
            f'<pre class="{side}" tabindex="0" data-of="{each}">{code(text, names)}</pre>'
            if text
            else "<span></span>"
            for box in boxes[1:]
            for text, names, side, each in zip(box, own, ("forth", "back"), of, strict=True)
        )
        heads = "".join(f"<strong>{head}</strong>" for head in boxes[0])
        out += [
            f"## {function.name}",
            plain(function.about),
            f'<div class="two-columns">{heads}{cells}</div>',
        ]
    return "\n\n".join(out) + "\n"


def live(language: Literal["en", "ko"]) -> str:
    """Return the form that computes the values; docs/assets/columns.js shows it where it works."""
    words, up = WORDS[language], "../" if language == "ko" else ""
    numbers = ", ".join(map(str, NUMBERS))
    return (
        f'<form class="columns-live" data-workbench="{up}workbench/" hidden>'
        f'<label>{words["live"]} <input value="{numbers}" inputmode="numeric"></label> '
        f"<button>{words['compute']}</button> "
        f'<span role="status">{words["loads"]}</span></form>\n'
        f'<div class="columns-shown" role="status" hidden></div>\n'
        f'<script src="{up}assets/columns.js" defer></script>'
    )


def plain(text: str) -> str:
    """Return a docstring's first paragraph, escaped for Markdown."""
    first = " ".join(text.split("\n\n")[0].split())
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", first)
