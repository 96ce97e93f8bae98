"""`pellucid exercise`: files, hints, progress, errors with their line, the page's transcript."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_korean_docs import CODE, differences

from pellucid.apps.cli.main import main
from pellucid.apps.teach.exercise import EXERCISES, read, text

Capture = pytest.CaptureFixture[str]
DOCS = Path(__file__).parents[3] / "docs"
FILE = Path("exercises/softmax_backward.py")
RIGHT = "return p * (dp - (dp * p).sum(-1, keepdims=True))"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def answer(body: str) -> None:
    """Write the learner's file."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(f"import numpy as np\n\n\ndef softmax_backward(dp, p):\n    {body}\n", "utf-8")


def test_a_file_is_written_once(capsys: Capture) -> None:
    assert main(["exercise", "softmax_backward"]) == 0
    assert "Wrote exercises/softmax_backward.py" in capsys.readouterr().out
    written = FILE.read_text(encoding="utf-8")
    assert "def softmax_backward(dp, p):" in written
    assert main(["exercise", "softmax_backward"]) == 1
    assert "is still empty" in capsys.readouterr().out
    assert FILE.read_text(encoding="utf-8") == written


def test_progress_is_kept_and_lost_with_the_answer(capsys: Capture) -> None:
    answer(RIGHT)
    assert main(["exercise", "softmax_backward"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^dx: right, to \de-\d\d$", out, re.MULTILINE)
    assert "Solved: 1 of 15. Next: pellucid exercise cross_entropy_backward" in out
    assert main(["exercise"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(.) +\d+  (\w+)", out, re.MULTILINE) == [
        ("✓" if name == "softmax_backward" else " ", name) for name in EXERCISES
    ]
    answer("return p")
    assert main(["exercise", "softmax_backward"]) == 1
    assert "Try again" in capsys.readouterr().out
    assert main(["exercise"]) == 0
    assert "Solved: 0 of 15" in capsys.readouterr().out


@pytest.mark.parametrize(("body", "solved"), [(RIGHT, True), ("return p", False)])
def test_a_closed_output_keeps_the_progress_and_is_no_success(body: str, solved: bool) -> None:
    answer(body)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pellucid", "exercise", "softmax_backward"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    kept = json.loads(Path("exercises/progress.json").read_text("utf-8"))
    assert kept == {"softmax_backward": {"solved": solved, "hints": 0}}


def test_hints_come_one_by_one_and_the_solution_when_asked(capsys: Capture) -> None:
    for count in (1, 2, 3, 3):
        assert main(["exercise", "softmax_backward", "--hint"]) == 0
        assert re.findall(r"^(\d)\. ", capsys.readouterr().out, re.MULTILINE) == [
            str(n + 1) for n in range(count)
        ]
    assert main(["exercise", "softmax_backward", "--solution"]) == 0
    assert capsys.readouterr().out == read("softmax_backward")["solution"]
    assert json.loads(Path("exercises/progress.json").read_text("utf-8")) == {
        "softmax_backward": {"solved": False, "hints": 3}
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return p * z", "softmax_backward.py, line 5: NameError: name 'z' is not defined"),
        ("return p @ dp", "softmax_backward.py, line 5: ValueError: matmul"),
        ("return p *", "softmax_backward.py, line 5: SyntaxError: invalid syntax"),
        (
            "return p * (dp - (dp * p).sum(1))",
            "operands could not be broadcast together with shapes (5,7) (5,). "
            "Two shapes do not fit",
        ),
        (
            "dp *= p; return dp",
            "softmax_backward.py, line 5: ValueError: output array is read-only",
        ),
        ("import sys; sys.exit(3)", "softmax_backward.py, line 5: SystemExit: 3"),
        ("pass", "softmax_backward.py: ValueError: it returned nothing; expected dx"),
        ("return 'dx'", "softmax_backward.py: ValueError: could not convert string to float"),
        ("return p, dp", "softmax_backward.py: ValueError: expected dx; it returned 2 results"),
    ],
)
def test_an_error_in_the_file_is_one_line_with_its_place(
    body: str, says: str, capsys: Capture
) -> None:
    answer(body)
    assert main(["exercise", "softmax_backward"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return p[0]", "dx: wrong, its shape is (7,); expected (5, 7)."),
        ("return 0 * p / 0", "dx: wrong, it has values that are not finite. Look for"),
        ("return np.sin(dp) - np.sin(dp).mean(1)[:, None]", "No known mistake. The furthest: ["),
        ("return p + 1", "Each row of dx must sum to 0, since"),
        ("return 0 * dp", "dx: wrong, 100 % off. It is zero everywhere."),
    ],
)
def test_a_wrong_result_says_what_is_wrong_with_it(body: str, says: str, capsys: Capture) -> None:
    answer(body)
    assert main(["exercise", "softmax_backward"]) == 1
    assert says in capsys.readouterr().out


def test_an_exercise_may_import_an_earlier_one(capsys: Capture) -> None:
    later = FILE.with_name("attention_dq_dk.py")
    answer('raise NotImplementedError("Write it here")')
    later.write_text(
        "from softmax_backward import softmax_backward\n\n\ndef attention_dq_dk(dz, q, k, v, w):\n"
        "    da = softmax_backward(dz @ v.T, w) / q.shape[-1]**0.5\n    return da @ k, da.T @ q\n",
        "utf-8",
    )
    assert main(["exercise", "attention_dq_dk"]) == 1
    assert "softmax_backward.py, line 5: NotImplementedError" in capsys.readouterr().err
    answer("return p *")
    assert main(["exercise", "attention_dq_dk"]) == 1
    assert "softmax_backward.py, line 5: SyntaxError" in capsys.readouterr().err
    answer(RIGHT)
    assert main(["exercise", "attention_dq_dk"]) == 0
    assert "dk: right" in capsys.readouterr().out


def test_results_that_are_missing_are_named_in_korean(capsys: Capture) -> None:
    for body, says in (
        ("return dp, p", "dx를 반환해야 하는데 결과 2개를"),
        ("pass", "반환값이 없습니다. dx를 반환하세요"),
    ):
        answer(body)
        assert main(["--lang", "ko", "exercise", "softmax_backward"]) == 1
        assert says in capsys.readouterr().err


def test_a_file_without_the_function_and_damaged_progress_are_named(capsys: Capture) -> None:
    FILE.parent.mkdir()
    FILE.write_text("x = 1\n")
    assert main(["exercise", "softmax_backward"]) == 1
    assert "expected a function softmax_backward, found none" in capsys.readouterr().err
    Path("exercises/progress.json").write_text("[1]")
    assert main(["exercise"]) == 1
    assert "progress.json cannot be read; delete it to begin anew" in capsys.readouterr().err


def test_an_unknown_exercise_names_the_nearest(capsys: Capture) -> None:
    assert main(["exercise", "sofmax_backward"]) == 2
    assert "did you mean softmax_backward?" in capsys.readouterr().err


@pytest.mark.parametrize(("language", "ending"), [("en", ".md"), ("ko", ".ko.md")])
def test_the_page_lists_the_exercises_and_its_transcript_is_what_is_printed(
    language: str, ending: str, capsys: Capture
) -> None:
    page = (DOCS / f"exercises{ending}").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| `(\w+)` \| (.+?) \| (\d+) \|$", page, re.MULTILINE)
    assert rows == [
        (name, text(read(name)["title"], language), str(len(read(name)["mistakes"])))  # type: ignore[arg-type]
        for name in EXERCISES
    ]
    blocks = re.findall(
        r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    assert [kind for kind, _, _ in blocks] == [
        *("console", "python", "console", "console", "python", "console"),
        *("console", "console"),  # a worksheet, and the ladder, which takes half a minute
        "text",  # what --train prints, which takes half a minute
    ]
    worksheet = blocks[6][2].partition("#")[0].split()
    assert main(worksheet[1:]) == 0
    assert Path("attention-7.pdf").exists()
    capsys.readouterr()
    for kind, file, body in blocks[:6]:
        if kind == "python":
            head = Path(file).read_text(encoding="utf-8").partition("def ")[0]
            Path(file).write_text(head + body, encoding="utf-8")
            continue
        command, _, expected = body.partition("\n")
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "pellucid"
        main(["--lang", language, *arguments])
        printed = capsys.readouterr().out
        assert re.sub(r"\de-\d\d", "#", printed) == re.sub(r"\de-\d\d", "#", expected)


def test_both_pages_say_the_same() -> None:
    pages = [(DOCS / f"exercises{end}").read_text(encoding="utf-8") for end in (".md", ".ko.md")]
    assert differences(*(CODE.sub("", each) for each in pages)) == []


def test_train_hands_the_folder_to_the_script_that_trains(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "trainer.py"
    script.write_text("def main(folder, language):\n    print(folder, language)\n    return 7\n")
    monkeypatch.setattr("pellucid.apps.cli.exercise.course_file", lambda name: script)
    assert main(["exercise", "--train", "--folder", "mine"]) == 7
    assert capsys.readouterr().out == "mine en\n"
