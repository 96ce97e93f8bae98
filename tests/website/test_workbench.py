"""The workbench's files: what it packs is enough, and Python is the official one or none."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import in_browser
import numpy as np
import pages
import pytest
import workbench

from pellucid.apps.teach import pictures
from pellucid.apps.teach.exercise import EXERCISES, read
from pellucid.check import op_cases

INSIDE = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"numba", "rich", "safetensors", "tokenizers", "tyro"}:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
sys.path[:0] = ["library"]
import json
import numpy
import pellucid
assert pellucid.__file__.startswith(sys.argv[1]), pellucid.__file__
import in_browser
right = "def softmax_backward(dp, p):\\n    return p * (dp - (dp * p).sum(-1, keepdims=True))\\n"
uses = (
    "from softmax_backward import softmax_backward\\n"
    "def attention_dq_dk(dz, q, k, v, w):\\n"
    "    print('here')\\n"
    "    da = softmax_backward(dz @ v.T, w)\\n"
    "    return da @ k, da.T @ q\\n"
)
answers = json.dumps({"softmax_backward": right, "attention_dq_dk": uses, "relu_backward": "x ="})
for name in ("softmax_backward", "attention_dq_dk", "relu_backward"):
    for language in ("en", "ko"):
        print(in_browser.check(name, answers, language))
softmax = "def softmax_backward(dp, saved):\\n    return {} * dp\\n"
print(in_browser.change("softmax", softmax.format("saved.p"), "en"))
print(in_browser.change("softmax", softmax.format("p"), "ko"))
first = (
    "from lesson import Lesson, stored_runs\\n"
    "from pellucid.apps.view import attention\\n"
    "lesson, model = Lesson('x'), 'old'\\n"
    "runs = stored_runs('-003')\\n"
    "print(len(runs))\\n"
    "model"
)
model = "model = lesson.chatbot()\\nlater = 2"
cells = first, "runs[0]['seed']", model, "print(model)", "1\\n1 / 0", "x =", "later = 3", "later"
for source in cells:
    print(in_browser.cell("003", source, "en", source == first))
print(in_browser.cell("003", "later", "en", True))
print(in_browser.values("73, 60,000", "en"))
print(in_browser.values("0", "ko"))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the packed library answers, with NumPy and nothing else."""
    folder = tmp_path_factory.mktemp("inside").resolve()
    with zipfile.ZipFile(io.BytesIO(workbench.library())) as packed:
        packed.extractall(folder / "library")
    numpy = Path(np.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-S", "-c", INSIDE, folder],
        cwd=folder,
        env={"PYTHONPATH": str(numpy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_an_answer_is_judged_without_any_other_package(said: list[dict[str, Any]]) -> None:
    en, ko = said[:2]
    assert (en["solved"], en["marks"]) == (True, [True])
    assert re.fullmatch(r"dx: right, to \de-\d\d", *en["lines"])  # type: ignore[misc]
    assert re.fullmatch(r"dx: 맞았습니다\(오차 \de-\d\d\)", *ko["lines"])  # type: ignore[misc]


def test_an_answer_may_use_another_and_print(said: list[dict[str, Any]]) -> None:
    en = said[2]
    assert str(en["printed"]).startswith("here\n")
    assert en["solved"] is False
    first, _ = en["lines"]  # type: ignore[misc]
    assert first.startswith("dq: wrong")  # the scale is missing
    assert "1/√D" in first or "√" in first


def test_an_error_has_its_line(said: list[dict[str, Any]]) -> None:
    en, ko = said[4:6]
    assert en["lines"] == ["relu_backward.py, line 1: SyntaxError: invalid syntax"]
    assert en["line"] == ko["line"] == 1


def test_a_changed_derivative_is_red(said: list[dict[str, Any]]) -> None:
    wrong, error = said[6:8]
    (line,) = wrong["lines"]  # type: ignore[misc]
    assert re.fullmatch(r"softmax: dx: \d+ % off the finite difference", line)
    assert error["lines"] == ["softmax_backward.py, 2행: NameError: name 'p' is not defined"]
    assert (wrong["solved"], error["solved"], error["line"]) == (False, False, 2)


def test_cells_run_after_one_another(said: list[dict[str, Any]]) -> None:
    first, second = said[8:10]
    assert (first["printed"], first["error"]) == ("25\n'old'", None)
    assert second["printed"] == "0"


def test_a_cell_that_trains_is_not_an_error_and_nothing_stale_stands_in(
    said: list[dict[str, Any]],
) -> None:
    for cell in said[10:12]:
        assert (cell["elsewhere"], cell["error"], cell["printed"]) == (True, None, "")
    assert [said[i]["printed"] for i in (14, 15)] == ["", "3"]  # defined by another cell after all


def test_an_error_in_a_cell_has_its_line(said: list[dict[str, Any]]) -> None:
    divided, syntax = said[12:14]
    assert (divided["line"], divided["error"]) == (2, "ZeroDivisionError: division by zero")
    assert divided["elsewhere"] is False
    assert syntax["line"] == 1
    assert syntax["error"].startswith("SyntaxError")


def test_running_all_cells_forgets_what_was_defined(said: list[dict[str, Any]]) -> None:
    assert said[16]["error"] == "NameError: name 'later' is not defined"
    assert said[16]["elsewhere"] is False


def test_the_values_of_two_columns(said: list[dict[str, Any]]) -> None:
    asked, refused = said[17:]
    assert asked["loss"] == pytest.approx(np.log(16), abs=1)
    assert asked["values"]["attention w"].startswith("(2, 4, ")
    assert refused["error"] == "1부터 999,999까지의 수를 적으세요."


def test_the_page_has_every_exercise_and_every_op(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_PYODIDE", "none")
    for folder in ("workbench", "ko/workbench"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("offline.js", "worker.js"):
        (tmp_path / "workbench" / name).write_text(name)
    workbench.write(tmp_path)
    course = json.loads((tmp_path / "workbench" / "course.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in course["exercises"]] == list(EXERCISES)
    for one in course["exercises"]:
        assert f"def {one['name']}(" in one["page"]["ko"]
        assert len(one["hints"]["en"]) == len(one["hints"]["ko"]) == len(read(one["name"])["hints"])
    assert course["ops"].keys() == {case.op for case in op_cases()}
    for op, code in course["ops"].items():
        assert re.search(rf"^def \w*{op}_backward\(", code["backward"], re.MULTILINE), op
    for number, notebook in course["notebooks"].items():
        for language, one in notebook.items():
            text = (tmp_path / "workbench" / one["address"]).read_text(encoding="utf-8")
            cells = [cell for cell in json.loads(text) if "source" in cell]
            assert not any("pip" in cell["source"] for cell in cells)  # none installs anything
            assert number in one["title"]
            assert ("글" in one["title"]) == (language == "ko")
            assert all(cell["printed"] for cell in cells if "\nprint(" in cell["source"])
    assert list(course["notebooks"]) == ["000", "001", "002", "003", "004"]
    assert course["runtime"] is None
    korean = {path.name: path.read_text() for path in (tmp_path / "ko" / "workbench").iterdir()}
    assert korean == {name: name for name in ("offline.js", "worker.js")}
    packed = (tmp_path / "workbench" / course["library"]["address"]).read_bytes()
    assert course["library"]["integrity"] == workbench.integrity(packed)
    assert packed == workbench.library()


def test_the_runtime_is_the_official_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_PYODIDE", str(tmp_path / "given"))
    (tmp_path / "given").mkdir()
    for name in workbench.RUNTIME["files"] | workbench.RUNTIME["pictures"]:
        (tmp_path / "given" / name).write_text("something else")
    with pytest.raises(ValueError, match="is not the file that"):
        workbench.runtime(tmp_path)


def test_a_public_address_has_the_same_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_PYODIDE", "https://example.org/full")
    found = workbench.runtime(tmp_path)
    assert found is not None
    assert found["address"] == "https://example.org/full/"
    assert list(tmp_path.iterdir()) == []
    for part in ("files", "pictures"):
        for name, digest in workbench.RUNTIME[part].items():
            algorithm, _, value = found[part][name].partition("-")
            assert (algorithm, base64.b64decode(value).hex()) == ("sha256", digest)


def test_every_derivative_of_the_site_leads_to_it() -> None:
    for op in {case.op for case in op_cases()}:
        assert f"(../workbench/workbench.md#op={op})" in pages.reference("ops"), op
    for topic, language in (("softmax", "en"), ("layer_norm", "ko"), ("linear", "en")):
        assert f"(../workbench/workbench.md#op={topic})" in pages.explained(topic, language)  # type: ignore[arg-type]


def test_no_other_page_loads_it() -> None:
    loads = re.compile(r"workbench\.(?:js|css)|<!-- workbench -->")
    docs = Path(workbench.ROOT) / "docs"
    pages = {path for path in docs.rglob("*.md") if loads.search(path.read_text(encoding="utf-8"))}
    assert {path.name for path in pages} == {"workbench.md", "workbench.ko.md"}
    assert {path.parent.name for path in pages} == {"workbench"}
    assert not loads.search((workbench.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_a_korean_picture_needs_no_korean_font(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import font_manager, rc_context
    from matplotlib.backends.backend_svg import RendererSVG
    from matplotlib.ft2font import FT2Font

    fonts = [font for font in font_manager.fontManager.ttflist if "DejaVu" in font.name]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    monkeypatch.setattr(in_browser, "__file__", str(tmp_path / "in_browser.py"))
    (tmp_path / in_browser.WIDTHS).write_bytes(workbench.widths())
    monkeypatch.setattr(RendererSVG, "_draw_text_as_text", RendererSVG._draw_text_as_text)
    with rc_context():
        in_browser.draws()
        pictures.save(pictures.softmax("ko"), tmp_path / "softmax.svg")
        pictures.save(pictures.variance("ko"), tmp_path / "variance.svg")
    variance = (tmp_path / "variance.svg").read_text(encoding="utf-8")
    assert ">점수의 분산</text>" in variance
    assert not re.search("<text.*(?:Display|STIX)|√", re.sub("<!--.*?-->", "", variance))
    (address,) = in_browser._pictures(f"그림: {tmp_path / 'softmax.svg'}\n")
    kind, _, data = address.partition(",")
    svg = base64.b64decode(data).decode("utf-8")
    assert kind == "data:image/svg+xml;base64"
    assert ">글 000: 쿼리 하나, 키 10개, d_k = 64</text>" in svg
    assert "font-family: system-ui" in svg
    assert "Hangul widths" not in svg
    font = FT2Font(tmp_path / in_browser.WIDTHS)
    font.set_size(100, 72)
    font.set_text("쿼리ㄱ")
    assert font.get_width_height()[0] == 64 * 3 * 94  # 0.94 of the size each


def test_the_library_has_what_pictures_need() -> None:
    with zipfile.ZipFile(io.BytesIO(workbench.library())) as packed:
        inside = set(packed.namelist())
    assert in_browser.WIDTHS in inside
    assert "pellucid/apps/teach/pictures.mplstyle" in inside
    assert "pellucid/apps/teach/course/runs.json" in inside
