"""The files that the site's workbench loads: the exercises, the library, and Python for a browser.

Python is Pyodide; runtime.toml names its files with their hashes. PELLUCID_PYODIDE says where a
page takes them from: a folder, which is copied into the site (unset: build/wasm/pyodide, if it is
there), an address, as https://cdn.jsdelivr.net/pyodide/v0.27.7/full/, or `none`.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import io
import json
import os
import re
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import array_api_compat
import articles
from fontTools.fontBuilder import FontBuilder
from fontTools.ttLib.tables._c_m_a_p import CmapSubtable
from fontTools.ttLib.tables._g_l_y_f import Glyph
from in_browser import WIDTHS, pair_of_op
from markdown import Markdown
from pages import LANGUAGES, Language

from pellucid.apps.teach.exercise import EXERCISES, page, read
from pellucid.check import op_cases

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "build" / "wasm" / "pyodide"
RUNTIME: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("runtime.toml").read_text(encoding="utf-8")
)
FOLDER = "workbench"
UNUSED = ("kernels", "compiled", "trained", "recipes", "studies", "__pycache__")
"""Folders of the package that nothing in the workbench needs: most of its bytes."""


def place(korean: bool) -> str:
    """Return HTML that loads the workbench into its page, in English or Korean."""
    here = "../../workbench" if korean else "."
    needs = "자바스크립트가 필요합니다." if korean else "It needs JavaScript."
    return (
        f'<link rel="stylesheet" href="{here}/workbench.css">\n'
        f'<div id="workbench"><noscript>{needs}</noscript></div>\n'
        f'<script src="{here}/workbench.js" defer></script>'
    )


def write(site: Path) -> None:
    """Write course.json, the library, the runtime and the Korean page's workers into a site."""
    folder = site / FOLDER
    packed = library()
    name = f"pellucid-{hashlib.sha256(packed).hexdigest()[:12]}.zip"
    (folder / name).write_bytes(packed)
    course = {
        "exercises": list(map(exercise, EXERCISES)),
        "ops": ops(),
        "notebooks": {number: notebooks(number, folder) for number in articles.FIGURES},
        "library": {"address": name, "integrity": integrity(packed)},
        "runtime": runtime(folder),
    }
    (folder / "course.json").write_text(json.dumps(course, ensure_ascii=False), encoding="utf-8")
    for each in ("offline.js", "worker.js"):  # a service worker serves its own folder
        shutil.copy(folder / each, site / "ko" / FOLDER / each)


def exercise(name: str) -> dict[str, Any]:
    """Return the texts of an exercise that the page shows.

    Only the checker knows the rest.
    """
    one = read(name)
    return {
        "name": name,
        "title": dict(zip(("en", "ko"), one["title"], strict=True)),
        "equation": one["equation"].strip(),
        "page": {"en": page(name, "en"), "ko": page(name, "ko")},
        "hints": dict(zip(("en", "ko"), map(list, zip(*one["hints"], strict=True)), strict=True)),
        "solution": one["solution"].strip(),
        "topic": one["topic"],
    }


def ops() -> dict[str, dict[str, str]]:
    """Return the code of every op that `pellucid check` has, its forward and its backward."""
    pairs = {name: pair_of_op(name) for name in sorted({case.op for case in op_cases()})}
    return {
        name: {"forward": inspect.getsource(f), "backward": inspect.getsource(backward)}
        for name, (f, backward) in pairs.items()
    }


MINUTES = {"known_answers(": 5}
"""Functions that take minutes in a browser: how their calls begin -> how many minutes."""


def notebooks(number: str, folder: Path) -> dict[Language, dict[str, str]]:
    """Write the notebook of an article in each language; return their titles and files."""
    found: dict[Language, dict[str, str]] = {}
    for language in LANGUAGES:
        path = ROOT / "examples" / articles.file_of(number, language).replace(".html", ".ipynb")
        first, _, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]  # _ installs
        made = json.dumps(list(map(cell, [first, *cells])), ensure_ascii=False)
        address = path.with_suffix(".json").name
        (folder / address).write_text(made, encoding="utf-8")
        title = "".join(first["source"]).partition("\n")[0].removeprefix("# ")
        found[language] = {"title": title, "address": address}
    return found


def cell(given: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook's cell as the page shows it: its text as HTML, or code and output."""
    source = "".join(given["source"])
    if given["cell_type"] == "markdown":
        html = Markdown(extensions=articles.EXTENSIONS).convert(source)
        html = re.sub(r"<(/?)h([1-3])\b", lambda m: f"<{m[1]}h{int(m[2]) + 1}", html)
        return {"html": articles.LINK.sub(r"<span \1>\2</span>", html)}
    printed = "".join("".join(output.get("text", "")) for output in given["outputs"])
    pictures = [
        f"data:image/png;base64,{output['data']['image/png']}"
        for output in given["outputs"]
        if "data" in output
    ]
    minutes = [least for call, least in MINUTES.items() if call in source]
    return {
        "source": source,
        "printed": printed,
        "pictures": pictures,
        "minutes": max(minutes, default=0),
    }


def library() -> bytes:
    """Return the package and the one that it needs besides NumPy as a ZIP file, the same each time.

    It is what the wheel for every system has, but for the folders that are not used here.
    """
    package, compat = ROOT / "src" / "pellucid", Path(array_api_compat.__file__).parent
    inside = {f"array_api_compat/{path.relative_to(compat)}": path for path in compat.rglob("*.py")}
    for path in package.rglob("*"):
        parts = path.relative_to(package).parts
        if path.suffix in (".py", ".pyi", ".toml", ".mplstyle") and not set(parts) & set(UNUSED):
            inside["/".join(("pellucid", *parts))] = path
    for name in ("lesson.py", "runs.json", "transformer.py", "your_transformer.py"):
        inside[f"pellucid/apps/teach/course/{name}"] = ROOT / "examples" / name
    for name in ("in_browser.py", "columns.py"):
        inside[name] = Path(__file__).with_name(name)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, path in sorted(inside.items()):
            file.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        file.writestr(zipfile.ZipInfo(WIDTHS), widths(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


HANGUL = (*range(0x3131, 0x318F), *range(0xAC00, 0xD7A4))
"""Single Korean letters and syllables."""


def widths() -> bytes:
    """Return a font that has the width of Korean letters and no shapes, in 628 bytes.

    matplotlib needs the widths to place a text; the browser writes it in its own fonts.
    """
    builder = FontBuilder(1000, isTTF=True)
    builder.setupHead(unitsPerEm=1000, created=0, modified=0)  # the same bytes at any time
    builder.setupGlyphOrder([".notdef", "letter"])
    builder.setupCharacterMap({})
    every = CmapSubtable.newSubtable(13)  # all characters of a range have one glyph
    every.platformID, every.platEncID, every.language = 3, 10, 0
    every.cmap = dict.fromkeys(HANGUL, "letter")
    builder.font["cmap"].tables = [every]
    builder.setupGlyf({".notdef": Glyph(), "letter": Glyph()})
    builder.setupHorizontalMetrics({".notdef": (600, 0), "letter": (940, 0)})
    builder.setupHorizontalHeader(ascent=880, descent=-120)
    builder.setupNameTable({"familyName": "Hangul widths", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    made = io.BytesIO()
    builder.save(made)
    return made.getvalue()


def integrity(content: bytes) -> str:
    """Return a file's hash as a browser compares it.

    >>> integrity(b"")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}"


def runtime(folder: Path) -> dict[str, Any] | None:
    """Return where a page finds Python; copy it there if it is to come from the site.

    Raises `ValueError` for a file that is not the official one.
    """
    given = os.environ.get("PELLUCID_PYODIDE", str(OWN) if OWN.is_dir() else "none")
    if given == "none":
        return None
    hashes = {
        part: {
            name: f"sha256-{base64.b64encode(bytes.fromhex(digest)).decode()}"
            for name, digest in RUNTIME[part].items()
        }
        for part in ("files", "pictures")
    }
    address = given if given.endswith("/") else f"{given}/"
    if not given.startswith("https://"):
        address = f"pyodide-{RUNTIME['version']}/"
        (folder / address).mkdir()
        for name, expected in (hashes["files"] | hashes["pictures"]).items():
            content = (Path(given) / name).read_bytes()
            if integrity(content) != expected:
                raise ValueError(f"{given}/{name} is not the file that runtime.toml names")
            (folder / address / name).write_bytes(content)
    return {**RUNTIME, **hashes, "address": address}
