"""The record that the page computes of a typed text equals the library's of the same text."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import gpt
from tests.apps.view.test_runnable import (
    ALONE,
    LABELLING,
    MASKING,
    SETTINGS,
    VIEWER,
    bert_tokenizer,
    continuing,
    labelling,
    made,
    masking,
    read_alone,
)

from pellucid.apps import view
from pellucid.apps.view.capture import capture, frozen
from pellucid.apps.view.page import as_json
from pellucid.apps.view.record import Record
from pellucid.apps.view.runnable import runnable
from pellucid.data.tokenizers import train_tokenizer
from pellucid.models import MaskedLM, MaskedLMConfig, Seq2Seq
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.tasks import ClassifierTask, MaskedLMTask

FIRST, TEXT = "cab A.B", "banana sp"
ANSWER = "bat"
CONTINUED: tuple[dict[str, Any], ...] = (
    {},
    {"norm": "pre", "positions": "learned", "tie_word_embeddings": True},
    {
        "norm": "pre",
        "positions": "rotary",
        "norm_type": "rms_norm",
        "activation_function": "swiglu",
    },
    {"positions": "alibi", "sliding_window": 4, "activation_function": "gelu"},
)
TASKS = [
    (make, each)
    for make, some in (
        (made, SETTINGS),
        (continuing, CONTINUED),
        (masking, MASKING),
        (labelling, LABELLING),
    )
    for each in some
]
CASES = range(len(TASKS))
NEAR = 1e-5

pytestmark = pytest.mark.oracle("node")


def computed(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return what the page records of texts."""
    path = folder / "cases.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        ["node", "test/recorded.mjs", str(path)],
        cwd=VIEWER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@cache
def task_of(n: int) -> Any:
    make, settings = TASKS[n]
    return make(**settings)


def texts_of(n: int) -> tuple[str, str, str]:
    """Return the text that a page was made of, another, and the answer to that."""
    make, settings = TASKS[n]
    if make in (made, continuing):
        return FIRST, TEXT, ANSWER
    text, answer, *_ = read_alone(task_of(n), settings)
    return "nap[MASK]" if make is masking else FIRST, text, answer


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Record, dict[str, Any]]]:
    """The library's record of a text, and the page's, which was made of another text."""
    cases, records = [], []
    for n in CASES:
        task = task_of(n)
        first, text, answer = texts_of(n)
        page = as_json(view.attention(task, first).record, numbers=False)
        cases.append({"record": page, "run": runnable(task, first), "text": text, "answer": answer})
        records.append(view.attention(task, text, answer).record)
    found = computed(cases, tmp_path_factory.mktemp("recorded"))
    return list(zip(records, found, strict=True))


def array(packed: dict[str, Any]) -> np.ndarray:
    return np.reshape(packed["values"], packed["shape"])


def close(found: Any, expected: Any, where: str) -> None:
    expected = np.asarray(expected)
    most = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, atol=NEAR * most, rtol=0, err_msg=where)


@pytest.mark.parametrize("n", CASES)
def test_maps_and_their_gradients(both: list[tuple[Record, dict[str, Any]]], n: int) -> None:
    record, page = both[n]
    assert record.loss == pytest.approx(page["loss"], abs=1e-4)
    for m, found in zip(record.maps, page["maps"], strict=True):
        assert (m.name, m.kind, m.layer) == (found["name"], found["kind"], found["layer"])
        for name in ("q", "k", "v", "doutputs"):
            close(array(found[name]), getattr(m, name), f"{m.name} {name}")
        close(array(found["dqueries"])[0], m.dqueries, m.name)
        close(array(found["dkeys"])[0], m.dkeys, m.name)
        close(found["entropies"], m.entropies, m.name)
        close(found["scales"], m.scales, m.name)
        close(np.reshape(found["weights"], m.probabilities.shape), m.probabilities, m.name)


@pytest.mark.parametrize("n", CASES)
def test_steps_labels_and_the_cell_in_view(
    both: list[tuple[Record, dict[str, Any]]], n: int
) -> None:
    record, page = both[n]
    assert [list(label) for label in record.source] == page["source"]
    assert [list(label) for label in record.target] == page["target"]
    assert page["title"] == record.title
    assert page["own"] == view.attention(task_of(n), texts_of(n)[1]).record.own
    for step, found in zip(record.steps, page["steps"], strict=True):
        assert (step.token, step.place) == (found["token"], found["place"])
        close(found["probability"], step.probability, "p")
        close([c[2] for c in found["candidates"]], [c.probability for c in step.candidates], "p")
    assert page["opens"] == view.record.select_cell(record)._asdict()


@pytest.mark.parametrize(
    "text", ["abc😀", " a-b! ", "ж abc", "abc cab", "ab\u200bc\n", "?!", "жж a"]
)
def test_a_model_of_words_reads_of_a_text_what_the_library_reads(text: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["abc-"], kind="char")
    task = made()
    entries = tokenizer.vocab_size
    config = replace(task.model.config, source_vocab_size=entries, target_vocab_size=entries)
    task = replace(task, model=Seq2Seq(config).eval(), source=tokenizer, target=tokenizer)
    assert task.reads_words
    first = as_json(view.attention(task, "abc").record, numbers=False)
    record = view.attention(task, text).record
    (page,) = computed(
        [{"record": first, "run": runnable(task), "text": text, "answer": ""}], tmp_path
    )
    assert [list(label) for label in record.source] == page["source"]
    assert record.loss == pytest.approx(page["loss"], abs=1e-4)


def test_a_bert_folders_word_pieces_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    tokenizer = bert_tokenizer()
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    entries = tokenizer.vocab_size
    masked = MaskedLM(MaskedLMConfig(vocab_size=entries, mask_token_id=4, **ids, **ALONE), seed=3)
    labels = train_tokenizer(["good", "bad"], "label")
    sizes = {"vocab_size": entries, "label_vocab_size": labels.vocab_size}
    classifier = Classifier(ClassifierConfig(**sizes, **ids, **ALONE), seed=3)
    texts = ["The [MASK] sats[MASK].", "the cats don", "жук cats 漢가나!"]
    cases, records = [], []
    for task, some in (
        (MaskedLMTask.of(masked.eval(), [tokenizer]), texts),
        (ClassifierTask.of(classifier.eval(), [tokenizer.framed(), labels]), texts[1:]),
    ):
        run, first = runnable(task), as_json(view.attention(task, "the").record, numbers=False)
        cases += [{"record": first, "run": run, "text": text, "answer": ""} for text in some]
        records += [view.attention(task, text).record for text in some]
    for record, page in zip(records, computed(cases, tmp_path), strict=True):
        both = [
            [[*x] for x in source if x[1] != "unknown"]
            for source in (record.source, page["source"])
        ]
        assert both[0] == both[1]
        assert len(record.source) == len(page["source"])
        assert record.own in ("", page["own"])  # "": its tokens would not be read as such
        assert record.loss == pytest.approx(page["loss"], abs=1e-4)
        assert [step.token for step in record.steps] == [step["token"] for step in page["steps"]]
        assert [list(step.label) for step in record.steps] == [x["label"] for x in page["steps"]]
        if "жук" not in record.title:
            assert record.title == page["title"]


@pytest.mark.parametrize("n", CASES)
def test_every_part_has_its_rows_and_gradients(
    both: list[tuple[Record, dict[str, Any]]], n: int
) -> None:
    record, page = both[n]
    for part, found in zip(record.parts, page["parts"], strict=True):
        assert [list(axis) for axis in part.shape] == found["shape"]
        for name in ("rows", "drows"):
            expected = getattr(part, name)
            assert (expected is None) == (name not in found), (part.role, name)
            if expected is not None:
                close(array(found[name])[:, 0], expected, f"{part.role} {part.layer} {name}")
                lengths = np.linalg.norm(expected, axis=1)
                close(array(found[f"{name}_norms"])[0, 0], lengths, part.role)


@pytest.mark.parametrize("n", CASES)
def test_derivations_have_their_finite_differences(
    both: list[tuple[Record, dict[str, Any]]], n: int
) -> None:
    record, page = both[n]
    found = page["derivations"]
    wanted = [p for p in reversed(record.parts) if p.role in ("norm", "feed_forward", "output")]
    assert [one["role"] for one in found] == [part.role for part in wanted]
    for one in found:
        for step in one["steps"]:
            assert step["difference"] == pytest.approx(step["value"], rel=1e-4, abs=1e-7)
            total = sum(a * b for a, b in step["terms"])
            assert step["rest"] or not step["terms"] or total == pytest.approx(step["value"])


@pytest.mark.parametrize("n", CASES)
def test_a_single_tokens_gradient_is_followed_back(
    both: list[tuple[Record, dict[str, Any]]], n: int
) -> None:
    record, page = both[n]
    task = task_of(n)
    model = frozen(task.model)
    at = min(1, len(record.steps) - 1)
    flow, token = page["flows"][at], record.steps[at]
    assert flow["place"] == token.place
    make, settings = TASKS[n]
    first = "decoder" if make is continuing else "encoder"
    if make in (made, continuing):
        source, more = task.source.encode(TEXT), [step.token for step in record.steps[:-1]]
        before = source if make is continuing else ()
        texts: Any = {
            **({} if make is continuing else {"source": source}),
            "target": [model.config.bos_token_id, *before, *more],
        }
    else:
        texts = {"source": read_alone(task, settings)[2]}
    seen = capture(model, texts, [token.place], [token.token])
    maps = {(m.kind, m.layer - 1): m for m in seen.maps}
    p = np.exp(seen.logits[token.place] - seen.logits[token.place].max())
    p /= p.sum()
    p[token.token] -= 1.0
    assert flow["dlogits"] == pytest.approx(np.linalg.norm(p), rel=1e-4)
    roles = {"attention", "cross"}
    stages = [s for s in flow["stages"] if s["role"] in roles]
    assert len(stages) == len(maps)
    for stage in stages:
        kind = "cross" if stage["role"] == "cross" else stage["stack"]
        m = maps[kind, stage["layer"]]
        close(array(stage["heads"])[:, 0], np.linalg.norm(m.doutputs, axis=-1), kind)
        if kind == "cross":
            close(array(stage["memory"])[0, 0], np.linalg.norm(m.dkeys, axis=-1), "memory")
    for stage in flow["stages"]:
        arrives, around, through, leaves = array(stage["lengths"])[:, 0]
        assert (leaves <= (around + through) * (1 + 1e-4) + 1e-6).all()
        if stage["layer"] is not None and model.config.norm == "pre":
            close(around, arrives, "around")
    rows = seen.rows[f"{first}.layers.0.0"].dx
    assert rows is not None
    close(array(flow["stages"][-1]["lengths"])[3, 0], np.linalg.norm(rows, axis=-1), "leaves")


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_a_text_is_continued_as_the_library_continues_it(kind: str, tmp_path: Path) -> None:
    """What one token could write together with something that follows is written again."""
    task = gpt(kind, ["가나다 나비 나다b 가 비나b", "나다b 가나다"] * 9, 290, beam=1)
    texts = ["가나", "나 b", "가나 b", "b", "가"]
    assert any(task.opening(text).beginning for text in texts) == (kind != "char")
    page = as_json(view.attention(task, texts[0]).record, numbers=False)
    run = runnable(task, texts[0])
    cases = [{"record": page, "run": run, "text": text, "answer": ""} for text in texts]
    for text, found in zip(texts, computed(cases, tmp_path), strict=True):
        record = view.attention(task, text).record
        assert [step.token for step in record.steps] == [step["token"] for step in found["steps"]]
        read = len(record.target) - len(record.steps)
        assert [list(label) for label in record.target[:read]] == found["target"][:read]
        assert found["loss"] == pytest.approx(record.loss, rel=1e-3)
