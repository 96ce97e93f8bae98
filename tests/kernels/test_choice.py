"""Which implementation a call gets: a silent fallback to the page fails here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import FUSED, declined, planned, watching

from pellucid import nn, ops, reference
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng, row_keys
from pellucid.models import MaskedLM, MaskedLMConfig


@pytest.fixture
def chosen() -> Iterator[dict[str, bool]]:
    """Which ops were called, and whether every call of each got the kernel."""
    with watching() as taken:
        yield taken


def test_a_training_step_of_the_packed_model_runs_on_kernels(chosen: dict[str, bool]) -> None:
    layer = nn.TransformerEncoderLayer(24, 3, 40, batch_first=True)
    x = np.random.default_rng(0).standard_normal((12, 24), np.float32)
    cu = np.array([0, 5, 12])
    rows = row_keys(np.repeat([0, 1], [5, 7]), np.r_[:5, :7])
    out, backward = layer.run(x, nn.Context(cu_seqlens=cu, rng=Rng(1).at(rows)))
    backward(np.ones_like(out))
    assert {name for name, fused in chosen.items() if fused} == FUSED & chosen.keys()


MODERN: dict[str, Any] = {"norm_type": "rms_norm", "positions": "rotary", "qk_norm": True}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("activation", "parts"), [("relu", {}), ("gelu", {}), ("swiglu", MODERN), ("geglu", MODERN)]
)
def test_the_kernels_take_everything_inside_a_model(
    activation: Any, parts: dict[str, Any], norm: Any, chosen: dict[str, bool]
) -> None:
    config = MaskedLMConfig(
        vocab_size=53, d_model=24, num_attention_heads=3, ffn_dim=41, masked_share=1.0,
        activation_function=activation, norm=norm, **parts,
    )  # fmt: skip
    text = Packed.of([list(range(3, 29)), [7] * 31])
    _, backward = MaskedLM(config).loss(Batch(Packed.of([[], []]), text), Rng(1))
    backward(1.0)
    assert chosen.keys() & FUSED == {name for name, fused in chosen.items() if fused}


def torch_masks(n: int, heads: int, length: int) -> dict[str, dict[str, Any]]:
    """What PyTorch's users pass, in every form that its classes take."""
    random = np.random.default_rng(5)
    causal = nn.generate_square_subsequent_mask(length)
    hidden = random.random((n, length)) < 0.3
    each = random.standard_normal((n * heads, length, length), np.float32)
    return {
        "none": {},
        "causal, float": {"attn_mask": causal},
        "causal, bool": {"attn_mask": causal < 0},
        "causal and flag": {"attn_mask": causal < 0, "is_causal": True},
        "flag": {"is_causal": True},
        "bool": {"attn_mask": each[0] > 0.5},
        "float": {"attn_mask": each[0]},
        "bool, each head": {"attn_mask": each > 0.5},
        "float, each head": {"attn_mask": each},
        "padding": {"key_padding_mask": np.arange(length) >= np.arange(n)[:, None] + 2},
        "padding anywhere, causal": {"key_padding_mask": hidden, "attn_mask": causal},
        "float padding, float mask": {
            "key_padding_mask": np.where(hidden, -2.0, 0.5), "attn_mask": each[0].astype(float),
        },
    }  # fmt: skip


@pytest.mark.parametrize("name", torch_masks(3, 2, 11))
@pytest.mark.parametrize("weights", [None, "average", "each"])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_no_mask_of_torchs_classes_falls_back(
    name: str, weights: str | None, extra: dict[str, bool], chosen: dict[str, bool]
) -> None:
    mha = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True, **extra)
    x = np.random.default_rng(3).standard_normal((3, 11, 16), np.float32)
    options = {"need_weights": weights is not None, "average_attn_weights": weights == "average"}
    (y, _), backward = mha.forward(x, x, x, **torch_masks(3, 2, 11)[name], **options, rng=Rng(1))
    backward(np.ones_like(y))
    assert {op for op, fused in chosen.items() if "attention" in op and fused} == {
        "packed_attention"
    }


def test_kernels_can_be_switched_off() -> None:
    x = np.ones((3, 1, 2), np.float32)
    cu = np.array([0, 1, 3])
    planned(ops.packed_attention, x, x, x, cu, cu)
    with reference():
        assert declined(ops.packed_attention, x, x, x, cu, cu)
    planned(ops.packed_attention, x, x, x, cu, cu)


CALLS = {
    "add_dropout_norm": lambda x, index: (x, x),
    "attention": lambda x, index: (x[None], x[None], x[None]),
    "bias_act_dropout": lambda x, index: (x, None),
    "dropout": lambda x, index: (x, 0.5, Rng(0)),
    "embedding": lambda x, index: (index, x),
    "layer_norm": lambda x, index: (x,),
    "linear": lambda x, index: (x, x),
    "linear_cross_entropy": lambda x, index: (x, x, None, index),
    "norm_rotate": lambda x, index: (x[:, None, :4].copy(), (1, 0), x[0, :4].copy(), None, index),
    "packed_attention": lambda x, index: (*[x[:, None]] * 3, *[np.array([0, len(x)])] * 2),
    "rms_norm": lambda x, index: (x,),
}


@pytest.mark.parametrize("name", sorted(FUSED))
def test_a_float32_call_gets_the_kernel(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((17, 5), np.float32)
    planned(getattr(ops, name), *CALLS[name](x, np.arange(17)))


@pytest.mark.parametrize("name", sorted(FUSED))
def test_read_only_arrays_get_the_kernel_too(name: str) -> None:
    """The kernels write to none of their arguments."""
    x = np.random.default_rng(0).standard_normal((17, 5), np.float32)
    index = np.arange(17)
    f = getattr(ops, name)
    y, backward = planned(f, *CALLS[name](x, index))()
    dy = np.ones_like(y)
    expected = backward(dy)
    for array in (x, index, dy):
        array.flags.writeable = False
    z, backward = planned(f, *CALLS[name](x, index))()
    np.testing.assert_array_equal(z, y)
    for a, b in zip(expected, backward(dy), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", sorted(FUSED))
def test_a_gradient_of_another_shape_is_refused(name: str) -> None:
    """A kernel would read or write beyond an array that is shorter than expected."""
    x = np.random.default_rng(0).standard_normal((17, 5), np.float32)
    y, backward = planned(getattr(ops, name), *CALLS[name](x, np.arange(17)))()
    others = [y[None]] + ([y[..., :1], np.concatenate([y, y])] if y.ndim else [])
    for dy in others:
        with pytest.raises(ValueError, match=re.escape(f"{y.shape}, got {dy.shape}")):
            backward(dy)


@pytest.mark.parametrize("switch, expected", [("off", "False"), ("on", "True")])
def test_the_environment_switches_kernels_off(switch: str, expected: str) -> None:
    program = (
        "import sys; from pellucid.core import dispatch; assert 'numba' not in sys.modules;"
        "print(dispatch._enabled.get())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PELLUCID_KERNELS": switch, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected
