"""The strip of parts is what the library computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, bert, gpt, shaken

from pellucid import nn, ops
from pellucid.apps import view
from pellucid.apps.view.backward import STEPS, code
from pellucid.apps.view.record import Record
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.tasks import Task

SOURCE, TARGET = [5, 6, 7, 5, 9, 4, 3], [4, 12, 8, 6]
Read = tuple[nn.Module, Record]


def seq2seq(**settings: Any) -> Read:
    model = shaken(replace(CONFIG, **settings), np.float64)
    return model, view.attention(model, SOURCE, TARGET).record


def read(task: Task, text: str, answer: str | None) -> Read:
    return task.model, view.attention(task, text, answer).record


RECORDS: dict[str, Callable[[], Read]] = {
    "post": lambda: seq2seq(norm="post"),
    "pre, RMSNorm, SwiGLU": lambda: seq2seq(
        norm="pre", norm_type="rms_norm", activation_function="swiglu"
    ),
    "more networks": lambda: seq2seq(ffn_before=1, ffn_after=2, activation_function="gelu"),
    "GPT": lambda: read(gpt(), "가나", "다a"),
    "BERT": lambda: read(bert(), "a[MASK]가", None),
    "BERT, no embedding norm": lambda: read(
        bert(embedding_norm=False, type_vocab_size=2), "a[MASK]가", None
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_parts_follow_from_each_other(name: str) -> None:
    """Residual steps add up, and rows after the heads are W_O of Z."""
    _, record = RECORDS[name]()
    parts = record.parts
    for i, part in enumerate(parts):
        if part.role == "sum":
            added = [p.rows for p in parts[:i] if p.stack == part.stack and p.rows is not None]
            np.testing.assert_allclose(part.rows, sum(added), rtol=1e-12)
        if part.role == "residual":
            start = next(
                j for j, p in enumerate(parts)
                if (p.stack, p.layer, p.block) == (part.stack, part.layer, part.block)
            )  # fmt: skip
            np.testing.assert_allclose(part.rows, parts[start - 1].rows + parts[i - 1].rows)
    widths = {part.rows.shape[1] for part in parts if part.rows is not None}
    assert len(widths) == 1


def test_gradients_of_rows_match_finite_differences_of_the_loss() -> None:
    """Rows before the output layer: their gradient is that of the whole loss."""
    model, record = seq2seq(norm="pre")
    last, output = record.parts[-2:]
    weight, bias = (model.state_dict()[name] for name, _, _ in output.tensors)
    expected = np.array([*TARGET, model.config.eos_token_id])

    def loss(rows: np.ndarray) -> float:
        logits = rows @ weight.T + bias
        return float(ops.cross_entropy(logits, expected, reduction="sum")[0])

    assert last.rows is not None
    assert last.drows is not None
    assert loss(last.rows) == pytest.approx(record.loss, rel=1e-9)
    direction = np.random.default_rng(3).standard_normal(last.rows.shape)
    slope = (loss(last.rows + 1e-6 * direction) - loss(last.rows - 1e-6 * direction)) / 2e-6
    assert slope == pytest.approx((last.drows * direction).sum(), rel=1e-6)


@pytest.mark.parametrize("name", RECORDS)
def test_every_tensor_on_the_way_is_in_the_strip(name: str) -> None:
    model, record = RECORDS[name]()
    shown = {tensor.partition("[")[0] for part in record.parts for tensor, _, _ in part.tensors}
    assert shown == {tensor for tensor, _ in model.all_names()}


def test_every_norm_and_activation_shows_the_lines_of_its_backward() -> None:
    lines = code()
    for norm in (norm for norm in NORMS.values() if f"{norm.name}.dx" in STEPS):
        steps = ("g", "dx", "dweight", *(("dbias",) if norm.has_bias else ()))
        for step in steps:
            shown = lines[f"{norm.name}.{step}"]
            assert {line.function for line in shown} == {f"{norm.name}_backward"}
            assert shown[-1].text.strip().startswith(f"{step} =")
    for name in ACTIVATIONS:
        assert any("return" in line.text for line in lines[f"activation.{name}"])


def test_a_model_without_a_head_ends_in_a_norm() -> None:
    record = view.attention(bert(head=False), "a가나", None).record
    assert [part.role for part in record.parts][-1] == "norm"
