"""ONNX's own cases as an outside judge: every node case of our operations, or why it is left out.

They come with the package `onnx`; expected values are those of its reference implementation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles import oracle

from pellucid import nn, ops
from pellucid.ops import rules
from pellucid.ops.rotary import _turned

pytestmark = pytest.mark.oracle("onnx")
onnx = oracle("onnx")

Array = np.ndarray
Case = tuple[str, dict[str, Array], dict[str, Any], dict[str, Array]]
"""name, inputs, attributes, expected outputs"""

LEFT_OUT = {
    "rotary_dim": "a head is rotated whole",
    "qk_matmul_output": "no page keeps the scores; Y is compared",
    "Mean": "the mean and the deviation are not handed out; Y is compared",
}


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the making of other operations' cases
        loaded = load_model_tests(kind="node")
    found: dict[str, list[Case]] = {}
    for case in loaded:
        model = case.model
        if model is None or len(model.graph.node) != 1:
            continue
        (node,) = model.graph.node
        if node.op_type not in OURS:
            continue
        inputs, outputs = case.data_sets[0]
        given = dict(zip([name for name in node.input if name], inputs, strict=True))
        expected = dict(zip([name for name in node.output if name], outputs, strict=True))
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        found.setdefault(node.op_type, []).append((case.name, given, attributes, expected))
    return found


def wide(x: Array) -> Array:
    """float16 and bfloat16, which are refused here, as float32."""
    return np.asarray(x, np.float32) if x.dtype.itemsize == 2 else np.asarray(x)


def without(mask: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
    """The mask, bool or float, that forbids more keys."""
    return np.where(forbidden, True if mask.dtype == bool else -np.inf, mask).astype(mask.dtype)


def attention(x: dict[str, Array], a: dict[str, Any]) -> dict[str, Array]:
    q, k, v = (wide(x[name]) for name in "QKV")
    flat = q.ndim == 3
    if flat:
        q, k, v = (
            apart(each, a[f"{heads}_num_heads"]) for each, heads in ((q, "q"), (k, "kv"), (v, "kv"))
        )
    past = 0
    if "past_key" in x:
        past = x["past_key"].shape[2]
        k, v = (np.concatenate([wide(x[f"past_{n}"]), y], 2) for n, y in (("key", k), ("value", v)))
    present = {"present_key": k, "present_value": v}
    queries, keys = q.shape[2], k.shape[2]
    mask: Array | None = None
    if "attn_mask" in x:
        mask = x["attn_mask"]
        mask = ~mask if mask.dtype == bool else wide(mask)
        short = keys - mask.shape[-1]  # keys past the mask's end are not to be seen
        if short and mask.shape[-1] > 1:
            fill = True if mask.dtype == bool else -np.inf
            room = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
            mask = np.pad(mask, room, constant_values=fill)
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    offset = np.full(len(q), past)
    if "nonpad_kv_seqlen" in x:
        there = x["nonpad_kv_seqlen"]
        offset = there - queries
        padding = (np.arange(keys) >= there[:, None])[:, None, None]
        mask = padding if mask is None else without(mask, padding)
    distance = offset[:, None, None, None] + np.arange(queries)[:, None] - np.arange(keys)
    left, right = (a.get(f"{side}_window_size", -1) for side in ("left", "right"))
    for forbidden, on in (
        (distance < 0, bool(a.get("is_causal"))),
        (distance > left, left >= 0),
        (-distance > right, right >= 0),
    ):
        if on:
            mask = forbidden if mask is None else without(mask, forbidden)
    times = q.shape[1] // k.shape[1]
    k, v = (np.repeat(each, times, 1) for each in (k, v))
    y, saved = ops.attention(
        q,
        k,
        v,
        mask=mask,
        scale=a.get("scale"),
        rule=rules.soft_cap(a["softcap"]) if a.get("softcap") else rules.Rule(),
    )
    found = {"Y": joined(y) if flat else y, **present}
    if a.get("qk_matmul_output_mode") == 3:
        found["qk_matmul_output"] = saved.probabilities
    return found


def apart(x: Array, heads: int) -> Array:
    """(N, L, H·D) -> (N, H, L, D)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def joined(x: Array) -> Array:
    """(N, H, L, D) -> (N, L, H·D)."""
    return x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)


def rotary(x: dict[str, Array], a: dict[str, Any]) -> dict[str, Array] | None:
    if a.get("rotary_embedding_dim"):
        return None
    given, cos, sin = x["input"], x["cos_cache"], x["sin_cache"]
    flat = given.ndim == 3
    rows = apart(given, a["num_heads"]) if flat else given
    if "position_ids" in x:
        cos, sin = cos[x["position_ids"]], sin[x["position_ids"]]
    cos, sin = cos[:, None], sin[:, None]
    if a.get("interleaved"):
        rows = np.concatenate([rows[..., ::2], rows[..., 1::2]], -1)
    y = _turned(rows, cos, sin)
    if a.get("interleaved"):
        half = y.shape[-1] // 2
        y = np.stack([y[..., :half], y[..., half:]], -1).reshape(y.shape)
    return {"output": joined(y) if flat else y}


def norm(f: Callable[..., Any], x: dict[str, Array], a: dict[str, Any]) -> dict[str, Array]:
    given = x["X"]
    axis = a.get("axis", -1) % given.ndim
    rows = given.reshape(*given.shape[:axis], -1)
    arrays = (x[name].reshape(-1) for name in "WB" if name in x)
    return {"Y": f(rows, *arrays, eps=a.get("epsilon", 1e-5))[0].reshape(given.shape)}


def along(f: Callable[..., Any], x: dict[str, Array], a: dict[str, Any]) -> dict[str, Array]:
    axis = a.get("axis", -1)
    return {"y": np.moveaxis(f(np.moveaxis(x["x"], axis, -1))[0], -1, axis)}


def loss(x: dict[str, Array], a: dict[str, Any]) -> dict[str, Array]:
    value = nn.functional.cross_entropy(
        x["x"],
        x["y"],
        x.get("w"),
        ignore_index=a.get("ignore_index", -100),
        reduction=a.get("reduction", b"mean").decode(),
    )
    log_p = np.moveaxis(ops.log_softmax(np.moveaxis(x["x"], 1, -1))[0], -1, 1)
    return {"z": np.asarray(value), "log_prob": log_p}


OURS: dict[str, Callable[[dict[str, Array], dict[str, Any]], dict[str, Array] | None]] = {
    "Attention": attention,
    "RotaryEmbedding": rotary,
    "LayerNormalization": lambda x, a: norm(ops.layer_norm, x, a),
    "RMSNormalization": lambda x, a: norm(ops.rms_norm, x, a),
    "Softmax": lambda x, a: along(ops.softmax, x, a),
    "LogSoftmax": lambda x, a: along(ops.log_softmax, x, a),
    "Gelu": lambda x, a: {"y": ops.gelu(x["x"], a.get("approximate", b"none").decode())[0]},
    "Relu": lambda x, a: {"y": ops.relu(x["x"])[0]},
    "LeakyRelu": lambda x, a: {"y": ops.leaky_relu(x["x"], a.get("alpha", 0.01))[0]},
    "Swish": lambda x, a: {"y": ops.silu(x["x"])[0]},
    "SoftmaxCrossEntropyLoss": loss,
}


@pytest.mark.parametrize("op", OURS)
def test_every_case(cases: dict[str, list[Case]], op: str) -> None:
    compared, left_out = 0, dict.fromkeys(LEFT_OUT, 0)
    for name, inputs, attributes, expected in cases[op]:
        found = OURS[op](inputs, attributes)
        if found is None:
            left_out["rotary_dim"] += 1
            continue
        for output, theirs in expected.items():
            if output in LEFT_OUT and output not in found:
                left_out[output] += 1
            elif output != "InvStdDev":
                tolerance = 2e-2 if theirs.dtype.itemsize == 2 else 1e-5
                np.testing.assert_allclose(
                    np.asarray(found[output], float),
                    np.asarray(theirs, float),
                    rtol=tolerance,
                    atol=tolerance,
                    err_msg=f"{name} {output}",
                )
                compared += 1
    assert compared, "no case was found"
    assert compared + sum(left_out.values()) >= len(cases[op])
