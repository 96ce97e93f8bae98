"""Test the site's workbench in real browsers against the command line.

    python scripts/test_course.py [Chromium] [Firefox] [--train] [--only=notebooks,train,...]

`make test-course` runs it. A page of this checkout's workbench is served on this machine alone,
with the official files of Pyodide. tests/course/drive.html uses it in every installed browser as a
learner does: each exercise with each named mistake and a right answer, in English and Korean. Every
sentence must be the one that `pellucid exercise` prints. Every op's backward must be right as it
is, and wrong when changed. The articles' notebooks run from their first cell to their last, and
must print the stored output; a changed cell must be kept when the page comes again. The page in two
columns must show the values that are computed here.
With --train, the answers then train a Transformer in the page, and all Korean notebooks run too,
instead of those with pictures.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from queue import Empty, Queue
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "website")]

import articles  # noqa: E402
import columns  # noqa: E402
import numpy as np  # noqa: E402
import workbench  # noqa: E402
from markdown import Markdown  # noqa: E402

import test_wasm  # noqa: E402
from pellucid.apps.cli.exercise import exercise  # noqa: E402
from pellucid.apps.teach.exercise import EXERCISES, read  # noqa: E402
from pellucid.system.language import Language, speaking  # noqa: E402

BROWSERS = {
    "Chromium": (
        ("chromium", "chromium-browser", "google-chrome", "chrome"),
        ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--user-data-dir={}"),
    ),
    "Firefox": (("firefox", "firefox-esr"), ("--headless", "--no-remote", "--profile", "{}")),
}  # fmt: skip
SILENT = 900
"""Seconds without a message after which a browser is stopped."""
ROUNDING = re.compile(r"\d+e-\d+|0e\+00")
"""The error of a right result: rounding, which differs between processors."""

Case = dict[str, str]


def cases() -> list[Case]:
    """Return all answers to try: each mistake of each exercise, then the right answer."""
    found = []
    for name in EXERCISES:
        one = read(name)
        for mistake, change in [*one["mistakes"].items(), ("", {"change": {}})]:
            body = one["solution"].strip()
            for old, new in change["change"].items():
                body = body.replace(old, new)
            code = f"import numpy as np\n\n\ndef {name}({', '.join(one['arguments'])}):\n"
            code += textwrap.indent(body, "    ") + "\n"
            found.append({"name": name, "mistake": mistake, "code": code})
    return found


def natively(case: Case, language: Language) -> list[str]:
    """Return the lines that `pellucid exercise` prints about an answer."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{case['name']}.py").write_text(case["code"], encoding="utf-8")
        with speaking(language), redirect_stdout(StringIO()) as printed:
            exercise(case["name"], folder=Path(folder))
    return printed.getvalue().splitlines()[: len(read(case["name"])["returns"])]


def site(folder: Path) -> None:
    """Write the workbench's page in both languages, without the rest of the site."""
    shutil.copytree(ROOT / "docs" / "workbench", folder / "workbench")
    for language, where in (("en", "workbench"), ("ko", "ko/workbench")):
        (folder / where).mkdir(parents=True, exist_ok=True)
        body = workbench.place(korean=language == "ko")
        page = f'<!doctype html><html lang="{language}"><meta charset="utf-8"><body>{body}'
        (folder / where / "workbench.html").write_text(page, encoding="utf-8")
    workbench.write(folder)
    (folder / "assets").mkdir()
    shutil.copy(ROOT / "docs" / "assets" / "columns.js", folder / "assets")
    body = Markdown(extensions=["md_in_html"]).convert(columns.page("en", "transformer.py"))
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><body>{body}'
    (folder / "columns.html").write_text(page, encoding="utf-8")
    shutil.copy(ROOT / "tests" / "course" / "drive.html", folder)


class Handler(http.server.SimpleHTTPRequestHandler):
    """HTTP server of the folder that collects the page's messages."""

    said: Queue[dict[str, Any]] = Queue()

    def do_POST(self) -> None:
        """Store one message."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.said.put(json.loads(content))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def stored(number: str, language: str) -> list[dict[str, Any]]:
    """Return an article's cells of code as the page gets them."""
    suffix = "" if language == "en" else ".ko"
    path = ROOT / "examples" / f"article_{number}{suffix}.ipynb"
    _, _, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [workbench.cell(each) for each in cells if each["cell_type"] == "code"]


NUMBERS = re.compile(r"[\d.,]*\d(?:e[-+]?\d+)?|[-+−]|\s+")
"""Parts of the output that may differ from the stored one: times, rounding, and column widths."""
ELSEWHERE = re.compile(r"lesson\.(?:chatbot|train)\(|\b(?:chatbot|record)\b")
"""A cell that need not run in a browser: it trains with packages, or uses the result of that."""


HANGUL = re.compile("[가-힣]")


def amiss(given: dict[str, Any], expected: dict[str, Any], language: str) -> str:
    """Describe the error in a cell after all have run; "" if there is none."""
    if given["error"] or given["state"] not in ("right", "elsewhere", "minutes"):
        return f"{given['state']}: {given['error'] or 'it was not run'}"
    if given["state"] == "elsewhere" and not ELSEWHERE.search(expected["source"]):
        return "said to need what a browser has not"
    if given["state"] == "minutes" and not expected["minutes"]:
        return "left out"
    found, native = (NUMBERS.sub("", each["printed"]) for each in (given, expected))
    here = given["state"] == "right"  # or else the stored output is shown
    if found != (native.replace(".png", ".svg") if here else native):
        return f"printed {given['printed']!r}, stored {expected['printed']!r}"
    drawn = [each["name"] for each in given["pictures"]]
    if len(drawn) != len(expected["pictures"]) or not all(drawn):
        return f"drew {drawn}"
    labelled = all(HANGUL.search(each["text"]) for each in given["pictures"])
    if here and language == "ko" and not labelled:
        return f"drew {drawn} without Korean labels"
    return ""


def misshown(shown: dict[str, str], message: dict[str, Any]) -> list[str]:
    """Return the differences between the values in two columns and those computed here."""
    found, _ = columns.traced(columns.module(), columns.NUMBERS)
    wrong = []
    for (of, name), array in found.items():
        text = shown.get(f"{of} {name}")
        if text is None:
            continue
        _, _, value = text.partition(" = ")
        given, native = (
            [float(each) for each in re.findall(r"-?\d+\.?\d*(?:e[-+]\d+)?", one)]
            for one in (value, columns.as_text(array))
        )
        if len(given) != len(native) or not np.allclose(given, native, rtol=1e-2, atol=2e-3):
            wrong.append(f"columns: {of} {name}: {value}, here {columns.as_text(array)}")
    if len(shown) < 60 or not message["hidden"]:
        wrong.append(f"columns: {len(shown)} names, closed: {message['hidden']}")
    for how in ("keyed", "tapped"):
        if not re.fullmatch(r"\w+: \(.+?\) = \(\d.*", message[how], re.DOTALL):
            wrong.append(f"columns: {how}: {message[how]}")
    return wrong


def faults(message: dict[str, Any], native: dict[tuple[str, str, str], list[str]]) -> list[str]:
    """Return the errors in one message of the page."""
    match message:
        case {"kind": "exercise", "language": language, "name": name, "mistake": mistake}:
            expected, found = native[name, mistake, language], message["lines"]
            if [ROUNDING.sub("", each) for each in found] != [
                ROUNDING.sub("", each) for each in expected
            ]:
                return [f"{language} {name} {mistake or 'right'}: {found}, natively {expected}"]
        case {"kind": "op", "language": language, "name": name}:
            wrong = [each for each in message["plain"] if "%" in each or "Error" in each]
            if wrong or not message["plain"]:
                return [f"{language} {name}, unchanged: {wrong}"]
            if not any("%" in each for each in message["changed"]):
                return [f"{language} {name}, changed: {message['changed']}"]
        case {"kind": "notebook", "language": language, "name": name, "cells": cells}:
            states = Counter(each["state"] for each in cells)
            took = message["ms"] / 1000
            print(f"    {language} {name}: {dict(states)}, {took:.0f} s", flush=True)
            return [
                f"{language} {name}, cell {i}: {fault}"
                for i, (given, expected) in enumerate(
                    zip(cells, stored(name, language), strict=True)
                )
                if (fault := amiss(given, expected, language))
            ]
        case {"kind": "columns", "shown": shown}:
            return misshown(shown, message)
        case {"kind": "train", "said": said, "lines": lines}:
            print(textwrap.indent(f"{said}\n{lines[0]}", "    "))
            if "14/14" not in said or not lines[0].endswith("사십오만육천칠백팔십팔"):
                return [f"train: {said} {lines}"]
        case {"kind": "ready"}:
            editor, ready = (f"{message[each] / 1000:.1f} s" for each in ("editor", "ms"))
            spent = f"{message['spent']:.1f} s of processor time"
            print(
                f"  {message['about']}, {message['language']}: editor after {editor}, ready after "
                f"{ready}, {spent}",
                flush=True,
            )
        case {"kind": "kept", "values": values, "offered": offered}:
            if not all([*values, *offered]):
                return [f"{message['language']} a changed cell: {values}, {offered}"]
        case {"kind": "end", "error": error}:
            return [error]
    return []


def processor_time(session: int) -> float:
    """Return the seconds that a browser's processes have computed so far; 0.0 but on Linux."""
    spent = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(") ")[2].split()
            spent += sum(map(int, fields[11:13])) if int(fields[3]) == session else 0
    return spent / os.sysconf("SC_CLK_TCK") if spent else 0.0


def tried(program: str, options: tuple[str, ...], address: str, native: Any) -> list[str]:
    """Run all cases in one browser; return the errors."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *(option.format(profile) for option in options), address]
        quiet = subprocess.DEVNULL
        running = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            while True:
                message = Handler.said.get(timeout=SILENT)
                message["spent"] = processor_time(running.pid)
                seen[message["kind"]] += 1
                found += faults(message, native)
                if message["kind"] == "end":
                    break
        except Empty:
            found.append(f"nothing was heard for {SILENT} s")
        finally:
            os.killpg(running.pid, 15)
            running.wait()
    counts = ", ".join(f"{seen[kind]} {kind}" for kind in ("exercise", "op", "notebook", "train"))
    spent = f"{message['spent']:.0f} s of processor time" if seen else ""
    print(f"  {counts}; {len(found)} faults; {spent}", flush=True)
    return found


def main() -> int:
    """Test every installed browser; return 1 if there is an error."""
    chosen = [each for each in sys.argv[1:] if not each.startswith("--")]
    only = {part for each in sys.argv[1:] for part in each.removeprefix("--only=").split(",")}
    everything_asked = not any(each.startswith("--only=") for each in sys.argv[1:])
    installed = {
        name: (path, options)
        for name, (programs, options) in BROWSERS.items()
        if (path := next(filter(None, map(shutil.which, programs)), None))
        and (not chosen or name in chosen)
    }
    if not installed:
        print("make test-course: no Chromium and no Firefox is installed; nothing was run")
        return 0
    if "PELLUCID_PYODIDE" not in os.environ:
        test_wasm.install()
    os.environ["COLUMNS"] = "10000"  # a sentence on one line

    def wanted(part: str) -> bool:
        return everything_asked or part in only

    train = "--train" in sys.argv[1:] or "train" in only
    answers = [case for case in cases() if not case["mistake"]] if train else []
    everything = cases() if wanted("exercises") else answers
    # The same code as in English, but for what the pictures say.
    korean = [
        number
        for number in articles.FIGURES
        if train or any(cell["pictures"] for cell in stored(number, "ko"))
    ]
    languages: tuple[Language, ...] = ("en", "ko")
    native = {
        (case["name"], case["mistake"], language): natively(case, language)
        for language in languages
        for case in everything
    }
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site(folder)
        titles = {
            each: dict(zip(languages, read(each)["title"], strict=True)) for each in EXERCISES
        }
        given_to = {
            "cases": everything,
            "titles": titles,
            "ops": list(workbench.ops()) if wanted("ops") else [],
            "notebooks": {
                language: list(notebooks) if wanted("notebooks") else []
                for language, notebooks in zip(languages, (articles.FIGURES, korean), strict=True)
            },
            "train": train,
        }
        (folder / "cases.json").write_text(json.dumps(given_to), encoding="utf-8")
        handler = functools.partial(Handler, directory=name)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}/drive.html"
            for browser, (program, options) in installed.items():
                print(f"{browser}: {len(everything)} answers in two languages", flush=True)
                started = time.monotonic()
                found = tried(program, options, address, native)
                print(f"  {time.monotonic() - started:.0f} s", *found, sep="\n  ", flush=True)
                failed |= bool(found)
            server.shutdown()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
