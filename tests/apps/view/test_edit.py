"""The page's backward pass and its edited forward pass equal the library's.

The library runs in float64 on the numbers that the page's int8 weights stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.view.test_runnable import SETTINGS, in_node, made, masked, quantized, without

import pellucid
from pellucid import ops
from pellucid.core import dispatch
from pellucid.core.batch import Batch, Packed
from pellucid.nn import Recorder
from pellucid.tasks import Seq2SeqTask

TEXT, ANSWER = "banac", "nap b"
OFF = ["decoder.3", "source.2"]
DELTAS = [-2.0, -0.25, 0.0, 0.5, 3.0]
SCORES = [
    {"head": "encoder.0.1", "query": 2, "key": 1},
    {"head": "decoder.0.2", "query": 3, "key": 2},
    {"head": "decoder.1.0", "query": 1, "key": 4},
]


def backward(
    task: Seq2SeqTask,
    source: list[int],
    answer: list[int],
    counted: list[int],
    off: list[str],
    between: dict[str, int] | None = None,
) -> tuple[dict[str, np.ndarray], Any]:
    """Return the library's gradients of −log p of some tokens: by parameter, and the recorder.

    With `between` they are of one logit minus another in a row.
    """
    config = task.model.config
    expected = [*answer, config.eos_token_id]
    read = [config.bos_token_id, *answer]
    model = without(task, off, len(source), len(read))
    batch = Batch(Packed.of([source]), Packed.of([[*read, config.eos_token_id]]))
    with dispatch.reference(), Recorder() as recorder:
        rows, rows_backward = model.decode_rows(batch)
        logits, output_backward = model.output.forward(rows)
        d, _ = ops.softmax(logits)
        d[np.arange(len(d)), expected] -= 1.0
        d[[i for i in range(len(d)) if i not in counted]] = 0.0
        if between:
            d[:] = 0.0
            d[between["at"], [expected[between["at"]], between["other"]]] = 1.0, -1.0
        rows_backward(output_backward(d))
    return {name: p.grad for name, p in model.named_parameters()}, recorder


def nats(task: Seq2SeqTask, source: list[int], answer: list[int], counted: list[int]) -> float:
    expected = [*answer, task.model.config.eos_token_id]
    read = [task.model.config.bos_token_id, *answer]
    rows, _ = task.model.decode_rows(Batch(Packed.of([source]), Packed.of([[*read, expected[-1]]])))
    log_p, _ = ops.log_softmax(task.model.output(rows))
    return -sum(float(log_p[i, expected[i]]) for i in counted)


def apart(
    task: Seq2SeqTask, source: list[int], answer: list[int], between: dict[str, int]
) -> float:
    """Return the logit of a token of the answer minus that of another in its place."""
    config, at = task.model.config, between["at"]
    read = [config.bos_token_id, *answer, config.eos_token_id]
    rows, _ = task.model.decode_rows(Batch(Packed.of([source]), Packed.of([read])))
    logits = np.asarray(task.model.output(rows))[at]
    return float(logits[read[at + 1]] - logits[between["other"]])


def moved_score(
    task: Seq2SeqTask, score: Any, by: float, source: int, read: int
) -> Callable[[], None]:
    """Add to one score of the task's own model; return what takes it away."""
    stack, step, head = score["head"].split(".")
    block = task.model.stacks()[stack].steps[int(step)].block
    body: Any = block.body
    lengths = (read, source if block.memory else read) if stack == "decoder" else (source, source)
    mask = np.zeros((body.config.num_heads, *lengths))
    mask[int(head), score["query"], score["key"]] = by
    before = body.config
    masked(body, mask)

    def restore() -> None:
        body.config = before

    return restore


def close(page: Any, library: np.ndarray, atol: float) -> None:
    assert np.abs(np.array(page) - library.ravel()).max() <= atol


@pytest.mark.oracle("node")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "paper")
def test_every_gradient_equals_the_librarys(settings: dict[str, Any], tmp_path: Path) -> None:
    task = made(**settings)
    answer = task.target.encode(ANSWER)
    cases = [
        {"text": TEXT, "answer": answer, "off": off, "counted": counted}
        for counted, off in ((list(range(6)), []), ([2], []), ([0, 5], OFF))
    ]
    for case, found in zip(cases, in_node(task, cases, tmp_path), strict=True):
        expected, recorder = backward(task, found["ids"], answer, case["counted"], case["off"])
        largest = max(np.abs(d).max() for d in expected.values() if d is not None)
        named = {name: values for name, values in found["gradients"] if name is not None}
        left = set(expected) - set(named)
        assert all("relative_bias" in name for name in left)
        parts = {id(module): name for name, module in task.model.named_modules()}
        body: Any = task.model.stacks()["decoder"].steps[3].block.body
        last = body.out_proj if hasattr(body, "out_proj") else body.linear2
        off = [n for n, p in task.model.named_parameters() if p in (last.weight, last.bias)]
        for name, values in named.items():
            if name in off and case["off"]:
                assert not np.any(values)  # what multiplies it is off in the page
                continue
            d = expected[name]
            assert d is not None, name
            close(values, d, 1e-5 * largest)
        for stack, each in found["scores"].items():
            for scores, step in zip(each, task.model.stacks()[stack].steps, strict=False):
                if scores is not None:
                    dscores = recorder.maps[parts[id(step.block.body)]].dscores
                    close(scores, dscores[0], 1e-5 * max(1.0, np.abs(dscores).max()))


@pytest.mark.oracle("node")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "paper")
def test_the_loss_along_a_score_is_the_librarys_and_its_slope_the_gradient(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    task = made(**settings)
    answer, counted = task.target.encode(ANSWER), [1, 3]
    scores = [s for s in SCORES if hasattr(body_of(task, s["head"]), "out_proj")]
    edits = [{"edit": {"score": score}, "at": DELTAS} for score in scores]
    case = {"text": TEXT, "answer": answer, "off": [], "counted": counted, "edits": edits}
    (found,) = in_node(task, [case], tmp_path)
    source, read = found["ids"], len(answer) + 1

    def loss(score: Any, by: float) -> float:
        restore = moved_score(task, score, by, len(source), read)
        value = nats(task, source, answer, counted)
        restore()
        return value

    for score, curve in zip(scores, found["edits"], strict=True):
        expected = [loss(score, by) for by in DELTAS]
        assert curve["losses"] == pytest.approx(expected, abs=1e-5, rel=1e-5)
        difference = (loss(score, 1e-5) - loss(score, -1e-5)) / 2e-5
        assert curve["slope"] == pytest.approx(difference, abs=1e-5)


@pytest.mark.oracle("node")
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "paper")
def test_why_one_token_and_not_another_is_the_librarys(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Gradients, edit curves and attribution of the difference of two logits."""
    task = made(**settings)
    answer, at, other = task.target.encode(ANSWER), 3, task.target.encode("s")[0]
    between = {"at": at, "other": other}
    scores = [s for s in SCORES if hasattr(body_of(task, s["head"]), "out_proj")]
    etas = [-0.05, 0.0, 0.02]
    edits = [{"edit": {"score": score}, "at": DELTAS} for score in scores]
    case: dict[str, Any] = {"text": TEXT, "answer": answer, "off": [], "between": between}
    case["edits"] = [*edits, {"edit": "step", "at": etas}]
    (found,) = in_node(task, [case], tmp_path)
    source = found["ids"]
    expected, recorder = backward(task, source, answer, [], [], between)
    largest = max(np.abs(d).max() for d in expected.values() if d is not None)
    for name, values in found["gradients"]:
        if name is not None:
            close(values, expected[name], 1e-5 * largest)
    parts = {id(module): name for name, module in task.model.named_modules()}
    for score, curve in zip(scores, found["edits"], strict=False):
        losses = []
        for by in DELTAS:
            restore = moved_score(task, score, by, len(source), len(answer) + 1)
            losses.append(apart(task, source, answer, between))
            restore()
        assert curve["losses"] == pytest.approx(losses, abs=1e-5, rel=1e-5)
        dscores = recorder.maps[parts[id(body_of(task, score["head"]))]].dscores
        head = int(score["head"].split(".")[2])
        slope = dscores[0, head, score["query"], score["key"]]
        assert curve["slope"] == pytest.approx(slope, abs=1e-5 * max(1.0, np.abs(dscores).max()))
    tables = {name: stack.embed.tokens.weight for name, stack in task.model.stacks().items()}
    if "tie_embeddings" not in settings:  # else the output's gradient is in it too
        read = {"encoder": source, "decoder": [task.model.config.bos_token_id, *answer]}
        for stack, shares in found["attribution"].items():
            table = tables[stack]
            products = (table.data * expected[name_of(task, table)]).sum(1)
            for token in set(read[stack]):  # a token that is read twice has one gradient
                own = sum(x for x, each in zip(shares, read[stack], strict=True) if each == token)
                assert own == pytest.approx(products[token], abs=1e-5 * max(1.0, largest))
    moving = [(p, expected[n]) for n, p in task.model.named_parameters() if n in tensor_names(task)]
    stepped(moving, etas, found["edits"][-1], lambda: apart(task, source, answer, between))


def name_of(task: Seq2SeqTask, parameter: Any) -> str:
    return next(name for name, p in task.model.named_parameters() if p is parameter)


def body_of(task: Seq2SeqTask, head: str) -> Any:
    stack, step, _ = head.split(".")
    return task.model.stacks()[stack].steps[int(step)].block.body


@pytest.mark.oracle("node")
@pytest.mark.parametrize("settings", SETTINGS[:3] + SETTINGS[4:5])
def test_the_loss_along_a_weight_and_along_a_step_is_the_librarys(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    task = made(**settings)
    answer, counted = task.target.encode(ANSWER), list(range(6))
    places = {name: i for i, name in enumerate(tensor_names(task))}
    weights = {
        name: p
        for name, p in task.model.named_parameters()
        if (name in places and name.split(".")[-2] in ("norm", "norm1", "output", "tokens"))
        or name.endswith(("self_attn.in_proj_weight", "multihead_attn.in_proj_weight"))
        or name.endswith("linear1.weight")
    }
    at = {name: (p.data.size // 2 + n) % p.data.size for n, (name, p) in enumerate(weights.items())}
    edits: list[Any] = [
        {"edit": {"parts": [{"tensor": places[name], "at": at[name], "by": [1]}]}, "at": DELTAS}
        for name in weights
    ]
    etas = [0.0, 0.01, 0.1]
    case = {"text": TEXT, "answer": answer, "off": [], "counted": counted}
    edits.append({"edit": "step", "at": etas})
    (found,) = in_node(task, [case | {"edits": edits}], tmp_path)
    source = found["ids"]
    gradients, _ = backward(task, source, answer, counted, [])
    for (name, parameter), curve in zip(weights.items(), found["edits"], strict=False):
        before = parameter.data
        for by, loss in zip(DELTAS, curve["losses"], strict=True):
            parameter.data = before.copy()
            parameter.data.flat[at[name]] += by
            assert loss == pytest.approx(nats(task, source, answer, counted), abs=1e-5, rel=1e-5), (
                name
            )
        parameter.data = before
        d = gradients[name]
        slope = 0.0 if d is None else d.flat[at[name]]
        assert curve["slope"] == pytest.approx(slope, abs=1e-5, rel=1e-5)
    moving = [(p, gradients[n]) for n, p in task.model.named_parameters() if n in places]
    stepped(moving, etas, found["edits"][-1], lambda: nats(task, source, answer, counted))


def stepped(moving: Any, etas: list[float], curve: Any, loss: Callable[[], float]) -> None:
    """Hold the page's losses after steps of these sizes against the library's."""
    moving = [(p, d) for p, d in moving if d is not None]
    before = [p.data for p, _ in moving]
    for eta, found in zip(etas, curve["losses"], strict=True):
        for (p, d), x in zip(moving, before, strict=True):
            p.data = x - eta * d
        assert found == pytest.approx(loss(), abs=1e-5, rel=1e-5)
    squares = sum(float((d * d).sum()) for _, d in moving)
    assert curve["slope"] == pytest.approx(-squares, rel=1e-4)


def tensor_names(task: Seq2SeqTask) -> list[str | None]:
    from pellucid.apps.view.runnable import runnable

    return [tensor["name"] for tensor in runnable(task)["numbers"]["tensors"]]


@pytest.mark.oracle("node")
def test_a_step_raises_the_probability_of_what_the_pronunciation_model_says(tmp_path: Path) -> None:
    task = quantized(pellucid.load("g2p-en"))
    answer = task.target.encode("AH0 T EH1 N SH AH0 N")
    case = {"text": "attention", "answer": answer, "off": [], "counted": [3]}
    case["edits"] = [{"edit": "step", "at": [0.0, 1e-3, 1e-2]}]
    (found,) = in_node(task, [case], tmp_path)
    gradients, _ = backward(task, found["ids"], answer, [3], [])
    moving = [(p, gradients[n]) for n, p in task.model.named_parameters()]
    curve = found["edits"][0]
    stepped(moving, [0.0, 1e-3, 1e-2], curve, lambda: nats(task, found["ids"], answer, [3]))
    assert curve["losses"][1] < curve["losses"][0]
