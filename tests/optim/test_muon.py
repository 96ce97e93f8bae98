from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)
from pellucid.nn.init import normal
from pellucid.nn.module import Parameter
from pellucid.optim import OPTIMIZERS
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.muon import muon, orthogonalised

SMALL: dict[str, Any] = {"d_model": 12, "num_attention_heads": 6, "ffn_dim": 17}
MODELS = {
    "seq2seq": Seq2Seq(
        Seq2SeqConfig(11, 13, num_key_value_heads=2, activation_function="swiglu", **SMALL)
    ),
    "learned": CausalLM(CausalLMConfig(vocab_size=11, positions="learned", ffn_before=1, **SMALL)),
    "relative": CausalLM(CausalLMConfig(vocab_size=11, positions="relative", **SMALL)),
    "masked": MaskedLM(MaskedLMConfig(vocab_size=11, type_vocab_size=2, **SMALL)),
}
MATRICES = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_it_steps_the_matrices_of_layers(model: Any) -> None:
    for name, parameter in model.named_parameters():
        owner = OPTIMIZERS["muon"].of(name, parameter.shape)
        assert owner.name == ("muon" if name.endswith(MATRICES) else "adamw"), name
        assert sum(parameter.packed) in (0, parameter.shape[0]), name


def test_queries_keys_and_values_are_matrices_of_their_own() -> None:
    packed = {name: p.packed for name, p in MODELS["seq2seq"].named_parameters()}
    assert packed["encoder.layers.0.self_attn.in_proj_weight"] == (12, 4, 4)


def test_directions_stay_and_singular_values_come_near_one() -> None:
    u, _, vt = np.linalg.svd(np.random.default_rng(0).standard_normal((7, 5)), full_matrices=False)
    found = orthogonalised(u * [3.0, 1.0, 0.5, 0.2, 0.1] @ vt)
    values = u.T @ found @ vt.T
    np.testing.assert_allclose(values, np.diag(np.diag(values)), atol=1e-12)
    assert (np.diag(values) > 0.6).all()
    assert (np.diag(values) < 1.3).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_matrices_are_stepped_one_by_one(dtype: Any) -> None:
    g = np.random.default_rng(0)
    packed = Parameter((12, 5), normal(1.0), dtype)
    packed.packed = 6, 3, 3
    packed.data, packed.grad = (g.standard_normal((12, 5)).astype(dtype) for _ in range(2))
    parts = [(packed.data[at].copy(), packed.grad[at]) for at in (np.s_[:6], np.s_[6:9], np.s_[9:])]
    optimizer = ModelOptimizer({"layers.0.in_proj_weight": packed}, OptimizerConfig("muon"))
    optimizer.step(lr=0.1)
    found = [muon(x, dx, (np.zeros_like(x),), step=1, lr=0.1) for x, dx in parts]
    expected, moments = np.concatenate([x for x, _ in found]), [m for _, (m,) in found]
    np.testing.assert_allclose(packed.data, expected, rtol=0, atol=10 * np.finfo(dtype).eps)
    kept = optimizer.state_dict()["momentum_buffer.layers.0.in_proj_weight"]
    np.testing.assert_allclose(kept, np.concatenate(moments), rtol=1e-6)


@pytest.mark.oracle("torch")
def test_it_is_as_near_to_torch_as_torch_s_rounding_lets_it() -> None:
    """torch computes the orthogonal matrix in bfloat16, whose numbers have 8 bits."""
    import torch

    g = np.random.default_rng(0)
    theta, gradient = g.standard_normal((2, 12, 17)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(theta))
    theirs.grad = torch.tensor(gradient)
    torch.optim.Muon([theirs], lr=0.1, adjust_lr_fn="match_rms_adamw").step()
    ours, _ = muon(theta, gradient, (np.zeros_like(theta),), step=1, lr=0.1)
    moved = np.linalg.norm(ours - theta)
    assert np.linalg.norm(ours - theirs.detach().numpy()) < 0.02 * moved
