"""The command line in Korean: every text has its entry, and help fits the terminal in columns."""

from __future__ import annotations

import ast
import errno
import io
import os
import re
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from rich.cells import cell_len
from tests.apps.cli.test_main import warnings_printed
from tests.apps.untranslated import list_english

import pellucid
from pellucid.apps.cli import generate, language
from pellucid.apps.cli.commands import COMMANDS
from pellucid.apps.cli.console import Output, Progress
from pellucid.apps.cli.language import korean, tr
from pellucid.apps.cli.main import main
from pellucid.apps.cli.options import parse
from pellucid.data.quality import FAULTS, LATER
from pellucid.optim.step import DivergedError
from pellucid.system.language import speaking
from pellucid.training.config import TrainingConfig, load_recipe, recipe_names
from pellucid.training.events import Chosen, Ended, Started, Stepped, Validated

Capture = pytest.CaptureFixture[str]
HELP = (
    [],
    *([name] for name in COMMANDS),
    *(["lab", verb] for verb in ("run", "report", "list", "guess")),
    *(["train", recipe] for recipe in ("g2p-demo", "gpt-ko", "bert-ko")),
)
NAMES = r"--[a-z-]+|`[^`]*`|\.[a-z]{2,}(?![a-z])|\{[^}]*\}|[A-Z]{2,}[A-Z_]*|[a-z]+_[a-z_]+|\"\w+\""
"""What both languages must have: options, code, file names, fields, and names like MODEL."""
WORDS = r"\b(a minute|half|hour|three|five|ten|million|quarter|zero)\b"
"""Numbers that English may spell out; Korean then has digits."""


def helped(command: list[str], capsys: Capture) -> str:
    whole = "--help-all" if command[:1] == ["train"] else "--help"
    assert main([*command, whole]) == 0
    return capsys.readouterr().out


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The English texts that were asked for in Korean."""
    texts: set[str] = set()

    class Recorder(dict[str, str]):
        def get(self, english: str, default: str) -> str:  # type: ignore[override]
            texts.add(english)
            return default

    monkeypatch.setattr(language, "korean", Recorder)
    monkeypatch.setenv("PELLUCID_LANG", "ko")
    return texts


def test_every_text_has_an_entry_and_every_entry_a_text(asked: set[str], capsys: Capture) -> None:
    for command in HELP:
        helped(command, capsys)
    main(["train", "g2p-demo", "--help"])
    parse(generate._fill(None), "generate MODEL", ["--help"])  # type: ignore[arg-type]
    asked |= {load_recipe(name).description for name in recipe_names()}
    asked |= {f"{{}} {unit}{s}" for unit in ("step", "epoch", "minute") for s in ("", "s")}
    asked |= set(get_args(get_type_hints(TrainingConfig)["use"]))
    asked |= {about for about, _ in FAULTS.values()} | set(LATER.values()) | {"sources", "twins"}
    for path in sorted(Path(generate.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tr":
                (text,) = node.args
                if isinstance(text, ast.Constant):
                    asked.add(text.value)
    lacking, unused = sorted(asked - korean().keys()), sorted(korean().keys() - asked)
    list_english(lacking, "apps/cli/korean.toml")
    assert not unused, "Korean of texts that are gone:\n" + "\n".join(unused)


@pytest.mark.parametrize("english", korean())
def test_both_languages_have_the_same_numbers_and_names(english: str) -> None:
    texts = (english, korean()[english])
    names = [sorted(set(re.findall(NAMES, text))) for text in texts]
    assert names[0] == names[1]
    spelled = re.sub(r"(\d+) million", r"\g<1>00", english)  # 2 million is 200만
    numbers, more = (re.findall(r"\d+(?:\.\d+)?", text) for text in (spelled, texts[1]))
    for number in numbers:
        more.remove(number)
    assert not more or re.search(WORDS, english)
    assert re.search("[가-힣]", texts[1]) or not re.search("[a-z]{5}", re.sub(NAMES, "", english))


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_korean_help_fits_80_columns_and_has_the_same_options(
    command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    english = helped(command, capsys)
    monkeypatch.setenv("PELLUCID_LANG", "ko")
    shown = helped(command, capsys)
    assert re.search("[가-힣]{2}", shown)
    assert language.FILLER not in shown
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert shown.count("옵션:\n") == english.count("options:\n")
    assert "show this help" not in shown
    if command[:1] == ["lab"] and len(command) == 1:
        return
    rows = [re.findall(r"^  (-\S.*?)(?:  |$)", text, re.MULTILINE) for text in (english, shown)]
    assert rows[0] == rows[1]
    assert rows[0] or not command


def test_the_option_in_front_of_the_command_is_stronger_than_the_environment(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--lang", "ko", "--help"]) == 0
    assert "사용법:" in capsys.readouterr().out
    monkeypatch.setenv("PELLUCID_LANG", "ko")
    assert main(["--lang=en", "--help"]) == 0
    assert "usage:" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "사용법:" in capsys.readouterr().out


@pytest.mark.parametrize("typed", [["--lang", "fr", "check"], ["--lang"], ["--lang=", "check"]])
def test_a_language_that_does_not_exist_is_refused(typed: list[str], capsys: Capture) -> None:
    assert main(typed) == 2
    assert "--lang needs a language: en or ko" in capsys.readouterr().err


@pytest.mark.parametrize(("encoding", "word"), [("ascii", "usage:"), ("euc-kr", "사용법:")])
def test_an_output_that_cannot_write_hangul_gets_english(
    encoding: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_LANG", "ko")
    for command in (["train", "g2p-demo"], ["lab"], []):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        assert main([*command, "--help"]) == 0
        assert word in written.getvalue().decode(encoding) or command == ["lab"]


@pytest.mark.parametrize(
    ("typed", "english", "shown"),
    [
        (
            ["train", "g2p-demo", "--data.max-tokens", "x"],
            "expected --data.max-tokens INT, got 'x'; see pellucid train g2p-demo --help",
            "--data.max-tokens INT 형식이어야 합니다. 입력: 'x'. 도움말: pellucid train g2p-demo",
        ),
        (
            ["train", "g2p-demo", "--epochs", "3"],
            "no option --epochs (did you mean --training.epochs?); see pellucid train g2p-demo",
            "--epochs 옵션이 없습니다 (--training.epochs?). 도움말: pellucid train g2p-demo --help",
        ),
        (
            ["train", "g2p-demo", "--training.epochs"],
            "--training.epochs needs a value; see",
            "--training.epochs에 값이 없습니다. 도움말:",
        ),
        (
            ["train", "g2p-demo", "--training.use", "first"],
            "--training.use must be one of best, last, average, ema; got 'first'",
            "--training.use에 쓸 수 있는 값: best, last, average, ema. 입력: 'first'",
        ),
        (
            ["quantize", "g2p-en"],
            "pellucid quantize needs FOLDER; see pellucid quantize --help",
            "pellucid quantize에 필요한 것이 빠졌습니다: FOLDER. 도움말: pellucid quantize --help",
        ),
        (
            ["recipes", "nope"],
            "nope: more than this command takes; see pellucid recipes --help",
            "nope: 이 명령이 받지 않는 인자입니다. 도움말: pellucid recipes --help",
        ),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "euc-kr"])
def test_arguments_that_a_command_does_not_take_are_named(
    typed: list[str], english: str, shown: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked, error in (("en", english), ("ko", shown)):
        printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", printed)  # tyro draws boxes by its encoding
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        assert main(["--lang", asked, *typed]) == 2
        assert sys.stderr.getvalue().startswith(f"pellucid: {error}")
        assert len(sys.stderr.getvalue().splitlines()) == 1


def test_a_training_run_is_reported_in_korean(capsys: Capture) -> None:
    with speaking("ko"), Progress(Output(), "run") as progress:
        progress(Started(3, 0.1, parameters=1234, steps=400, epochs=1, minutes=0.5))
        progress(Validated(5, 0.2, loss=0.5, best=True, seconds=1.0, scores={"per": 0.25}))
        progress(Chosen(7, 0.3, weights="best", steps=(5,), loss=0.5))
        progress._printed -= 60
        progress(Stepped(7, 0.3, loss=0.25, share=0.5, seconds_left=75.0))
        progress(Ended(400, 1.0, "400 steps", seconds=17.0))
        assert tr("no entry has this") == "no entry has this"
    assert capsys.readouterr().out.splitlines() == [
        "run: 파라미터 1,234개, 최대 400 스텝 또는 1 에폭 또는 0.5분, 스텝 3에서 이어서 학습",
        "스텝 5, 에폭 0.20: 검증 손실 0.500, PER 25.0 % (현재까지 최고)",
        "최고 가중치를 선택(스텝 5); 검증 손실 0.500",
        "스텝 7 · 손실 0.250 · 1:15 남음 · 검증 손실 0.500, PER 25.0 %",
        "스텝 400까지 학습, 0:17 걸림(400 스텝)",
    ]


def errors_raised() -> set[str]:
    """The messages of the source, with {} for what is put in."""
    found = {"out of memory; try a smaller batch (data.batch_tokens), beam or model"}
    found |= {os.strerror(errno.ENOENT), os.strerror(errno.EACCES)}
    for path in sorted(Path(pellucid.__file__).parent.rglob("*.py")):
        optional, assigned = list[ast.expr](), dict[str, ast.expr]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.add(template(node))
            elif isinstance(node, ast.BinOp) and isinstance(node.left, ast.JoinedStr):
                found.add(template(node.left) + "{}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "optional":
                optional.append(node.args[1])
            elif isinstance(node, ast.Assign):
                assigned |= {ast.unparse(name): node.value for name in node.targets}
            elif isinstance(node, ast.keyword) and node.arg == "where":
                text = node.value
                text = text if isinstance(text, ast.JoinedStr) else ast.JoinedStr([text])
                found.add(template(text) + ": {}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "check_known":
                what = node.args[0]
                what = template(what if isinstance(what, ast.JoinedStr) else ast.JoinedStr([what]))
                found |= {f"no {what} {wrong}; there are: {{}}" for wrong in ("{}{}", "given")}
        for text in optional:  # what to install follows
            text = assigned.get(ast.unparse(text), text)
            text = text if isinstance(text, ast.JoinedStr) else ast.JoinedStr([text])
            found.add(template(text) + ": {}")
    return as_printed(found) | warnings_logged()


def warnings_logged() -> set[str]:
    """The warnings of the source, with {} for what is put in, less those in a variable."""
    found = set()
    for path in sorted(Path(pellucid.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.fullmatch(
                r"_?log(ger)?\.warning", ast.unparse(node.func)
            ):
                text = node.args[0]
                if isinstance(text, ast.Constant):
                    found.add(re.sub(r"%[.\d]*[sdfg]", "{}", text.value))
                elif isinstance(text, ast.JoinedStr):
                    found.add(template(text))
    return as_printed(found)


def as_printed(messages: set[str]) -> set[str]:
    """The messages with their settings as options; a part of a setting's name may be put in."""
    setting = re.compile(r"`([a-z_.{}]+)`")
    return {setting.sub(lambda found: language.as_option(found[1]), text) for text in messages}


def test_every_warning_has_its_korean() -> None:
    worded = {text for text in warnings_logged() if re.search("[a-z]", text)}
    lacking = worded - language._catalogue()["errors"].keys()
    assert len(worded) > 20
    list_english(sorted(lacking), "apps/cli/korean.toml")


def template(text: ast.JoinedStr) -> str:
    return "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in text.values)


ERRORS = (
    *("UserError", "UsageError", "UnsupportedError", "TooLongError"),
    *("DivergedError", "_diverged", "LineError"),
)
PYTHON_CALLS = ("interop/torch.py", "tasks/task.py")
PYTHON_ONLY = ("check", "compiled", "kernels", "nn", "ops")
"""Packages whose errors a program raises, and no command prints."""


def test_every_error_of_a_command_has_its_korean() -> None:
    package, lacking, found = Path(pellucid.__file__).parent, [], 0
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        if where.parts[0] in PYTHON_ONLY or where.as_posix() in PYTHON_CALLS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name not in ERRORS:
                continue
            for text in node.exc.args if name == "LineError" else node.exc.args[:1]:
                message = "".join(
                    part.value if isinstance(part, ast.Constant) else "xyz"
                    for side in ((text.left,) if isinstance(text, ast.BinOp) else (text,))
                    for part in (side.values if isinstance(side, ast.JoinedStr) else (side,))
                )
                if not re.search("[a-z]{2}.* .*[a-z]{2}", re.sub(r"xyz|--\w+", "", message)):
                    continue  # only what another error says
                found += 1
                with speaking("ko"):
                    if not re.search("[가-힣]", language.translated(message)):
                        lacking.append(f"{where}:{node.lineno}: {message}")
    assert found > 250
    list_english(lacking, "apps/cli/korean.toml")


def test_a_package_that_is_not_installed_is_named_in_korean() -> None:
    package, lacking, found = Path(pellucid.__file__).parent, [], 0
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "optional":
                continue
            text = node.args[1]
            text = named.get(text.id, text) if isinstance(text, ast.Name) else text
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            says = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
            extra = any(word.arg == "extra" for word in node.keywords)
            with speaking("ko"):
                shown = language.translated(says + (": pip install 'pellucid[x]'" if extra else ""))
            lacking += [] if re.search("[가-힣]", shown) else [f"{path}:{node.lineno}: {says}"]
            found += 1
    assert found > 15
    list_english(lacking, "apps/cli/korean.toml")


@pytest.mark.parametrize(
    "error",
    [
        str(DivergedError("the loss is nan", 2, 0.1)),
        str(DivergedError("a held-out score is not finite (loss inf, {})", 2, 0.1)),
        *[
            f"lab/a/r.jsonl, line 1: is damaged ({wrong}); delete it; its run is then read from "
            "its folder, or done again"
            for wrong in (
                "not a line of results",
                "seed: expected a whole number, got '3'",
                "seed: expected a table, it is missing",
            )
        ],
        "lab/a/r.jsonl, line 3: d with seed 3 has an earlier line with other figures; delete one "
        "of the two lines",
        "lab/a/r.jsonl: results format 7, this Pellucid reads 1; report it with the version that "
        "wrote it, or choose another results file",
    ],
)
def test_errors_of_several_parts_are_korean_throughout(error: str) -> None:
    with speaking("ko"):
        shown = language.translated(error)
    names = r"lab/a/\w+.jsonl|seed|table|nan|inf|nat|Pellucid"
    assert not re.search("[a-z]{2}", re.sub(names, "", shown)), shown
    assert "완료" not in shown


def test_errors_in_korean_are_of_errors_that_there_are() -> None:
    raised = errors_raised()
    for english, translation in language._catalogue()["errors"].items():
        assert english in raised or english.removesuffix("s") in raised, english
        holes = english.count("{}")
        assert len(re.findall(r"\{\d?\}", translation)) == holes, translation
        names = [set(re.findall(r"--[a-z-]+|`[^`]*`", text)) for text in (english, translation)]
        assert names[0] == names[1]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["trian"], "'trian' 명령이 없습니다 (train?). 명령 목록: demo, data"),
        (["train", "nope"], "'nope' 레시피나 TOML 파일이 없습니다. 레시피 목록: bert-ko"),
        (["view", "nofolder"], "nofolder: 폴더가 없습니다. 먼저 모델을 학습하거나"),
        (["plot", "softmx"], "'softmx' 그림이 없습니다 (softmax?). 목록: curves"),
        (["generate", "g2p-en", "a", "--temperature", "0"], "generate: temperature는 0보다 커야"),
        (["train", "g2p-demo", "--training.steps", "0"], "steps의 범위는 0 초과입니다. 입력: 0"),
        (["view", "g2p-en", "a", "--head", "0"], "0번 헤드가 없습니다. 헤드는 1번부터 4번까지"),
    ],
)
def test_errors_are_in_korean(typed: list[str], shown: str, capsys: Capture) -> None:
    assert main(["--lang", "ko", *typed]) != 0
    assert shown in capsys.readouterr().err


def test_what_generate_and_view_print_next_to_answers_is_in_korean(
    capsys: Capture, tmp_path: Path
) -> None:
    with warnings_printed():
        assert main(["--lang", "ko", "generate", "g2p-en", "ab가"]) == 0
    assert "pellucid: 텍스트 1: 학습에 없던 문자: '가'" in capsys.readouterr().err
    path = tmp_path / "map.html"
    assert main(["--lang", "ko", "view", "g2p-en", "ab가", "--output", str(path)]) == 0
    printed = capsys.readouterr()
    assert "pellucid: 학습에 없던 문자: 가" in printed.err
    assert f"{path} 저장" in printed.out


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            "a.tsv, line 1: expected 2 columns with a tab between them, got 3; say which to read "
            "with --data.columns: names in the first line, or numbers from 1, the target last, as "
            "in 1 2 3",
            "a.tsv, 1행: 열이 2개여야 하고, 구분 기호는 탭입니다. 이 행의 열 수: 3; 읽을 열을 "
            "--data.columns로 고르세요. 첫 행에 있는 이름이나 1부터 세는 번호를 쓰고 출력을 "
            "마지막에 둡니다. 예: 1 2 3",
        ),
        (
            "a.toml: [model] num_attention_heads must divide d_model: 30 is not a multiple of 4",
            "a.toml: [model] d_model은 num_attention_heads로 나누어떨어져야 합니다. 30은(는) 4의 "
            "배수가 아닙니다",
        ),
        (
            "dropout must be at least 0 and below 1, got 2",
            "dropout의 범위는 0 이상, 1 미만입니다. 입력: 2",
        ),
        ("a.tsv: no such thing; at all", "a.tsv: no such thing; at all"),
        ("words: there is no such file", "words: 파일이 없습니다"),
        ("a.jsonl, line 7: not valid JSON: x", "a.jsonl, 7행: 올바른 JSON이 아닙니다: x"),
        (
            "own.py, line 11: ValueError: no match. 두 모양",
            "own.py, 11행: ValueError: no match. 두 모양",
        ),
        (
            "pictures need matplotlib, which is not installed: pip install x",
            "그림에는 matplotlib이 필요한데 설치되어 있지 않습니다: pip install x",
        ),
        (
            "this needs tyro, which is not installed: pip install x",
            "tyro이(가) 필요한데 설치되어 있지 않습니다: pip install x",
        ),
        (
            "That is 9 tokens, more than the 8 that this model can read; split it.",
            "토큰이 9개입니다. 이 모델은 8개까지 읽습니다. 나누어 주세요.",
        ),
        ("a/b, seed 3: failed (2 minutes)", "a/b, 시드 3: 실패 (2분)"),
        (
            "no token for 3 of the characters in the sources; the tokenizer was trained without: "
            "'q' (2) 'z' (1) …",
            "입력의 문자 중 3개에 토큰이 없습니다. 토크나이저를 학습할 때 없던 것: 'q' (2) 'z' (1) "
            "…",
        ),
        (
            "left out 2 of 1,000 pairs: expected 1 to 300 tokens on both sides (--data.max-tokens)",
            "쌍 1,000개 중 2개를 뺐습니다. 알맞은 길이: 토큰 1~300개(양쪽 모두, --data.max-tokens)",
        ),
        (
            "5 of 40 validation pairs are in the training data too, so their score says little "
            "about new pairs; give pairs that are in no other set",
            "검증용 쌍 40개 중 5개가 학습 데이터에도 있어, 점수로는 새로운 쌍에 대해 알 수 있는 "
            "것이 거의 없습니다. 다른 데이터에 없는 쌍을 주세요",
        ),
    ],
)
def test_errors_are_translated_clause_by_clause(error: str, shown: str) -> None:
    with speaking("ko"):
        assert language.translated(error) == shown
    assert language.translated(error) == error


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("lang", ["en", "ko"])
def test_errors_and_topics_are_wrapped_between_words(
    columns: int, lang: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    asked = ["--lang", lang]
    main([*asked, "train", "nope"])
    whole = capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main([*asked, "train", "nope"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert max(map(cell_len, lines)) <= columns
    assert " ".join(line.strip() for line in lines) == whole.strip()
    assert all(line.startswith("  ") for line in lines[1:])
    main([*asked, "explain", "attention"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= columns
    spaced = " ".join(line.strip() for line in lines)
    assert "dv = xp.matrix_transpose(weights) @ dout # 3: out = weights @ v" in " ".join(
        spaced.split()
    )
    assert "if dweights is not None: " in spaced


def test_a_long_help_is_short_until_all_is_asked_for(capsys: Capture) -> None:
    assert main(["train", "g2p-demo", "--help"]) == 0
    short = capsys.readouterr().out
    whole = helped(["train", "g2p-demo"], capsys)
    flags = [set(re.findall(r"--[a-z][a-z.-]+", text)) for text in (short, whole)]
    assert flags[0] - flags[1] == {"--help-all"}
    named = {flag for flag in flags[1] - flags[0] if re.match(r"--[a-z]+\.(?!.*no-)", flag)}
    assert not named
    assert len(short.splitlines()) < 0.4 * len(whole.splitlines())
