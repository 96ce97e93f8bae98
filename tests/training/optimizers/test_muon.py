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
from pellucid.training.config import OptimizerConfig
from pellucid.training.optimizers import OPTIMIZERS
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.optimizers.muon import muon, orthogonalised

SMALL: dict[str, Any] = {"d_model": 12, "num_attention_heads": 6, "ffn_dim": 17}
MODELS = (
    Seq2Seq(Seq2SeqConfig(11, 13, num_key_value_heads=2, activation_function="swiglu", **SMALL)),
    CausalLM(CausalLMConfig(vocab_size=11, positions="learned", ffn_before=1, **SMALL)),
    CausalLM(CausalLMConfig(vocab_size=11, positions="relative", **SMALL)),
    MaskedLM(MaskedLMConfig(vocab_size=11, type_vocab_size=2, **SMALL)),
)
TABLES = {"tokens.weight", "positions.weight", "segments.weight", "output.weight", "relative_bias"}


@pytest.mark.parametrize("model", MODELS, ids=["seq2seq", "learned", "relative", "masked"])
def test_it_steps_the_matrices_that_are_no_tables(model: Any) -> None:
    for name, parameter in model.named_parameters():
        own = OPTIMIZERS["muon"].of(name, parameter.shape) is OPTIMIZERS["muon"]
        assert own == (len(parameter.shape) == 2 and not name.endswith(tuple(TABLES))), name
        assert not own or sum(parameter.packed) in (0, parameter.shape[0])


def test_directions_stay_and_singular_values_come_near_one() -> None:
    u, _, vt = np.linalg.svd(np.random.default_rng(0).standard_normal((7, 5)), full_matrices=False)
    found = orthogonalised(u * [3.0, 1.0, 0.5, 0.2, 0.1] @ vt)
    values = u.T @ found @ vt.T
    np.testing.assert_allclose(values, np.diag(np.diag(values)), atol=1e-12)
    assert (np.diag(values) > 0.6).all()
    assert (np.diag(values) < 1.3).all()


def test_packed_matrices_are_stepped_one_by_one() -> None:
    g = np.random.default_rng(0)
    packed = Parameter((12, 5), normal(1.0), np.float64)
    packed.packed = 6, 3, 3
    packed.data, packed.grad = g.standard_normal((12, 5)), g.standard_normal((12, 5))
    parts = [(packed.data[at].copy(), packed.grad[at]) for at in (np.s_[:6], np.s_[6:9], np.s_[9:])]
    ModelOptimizer({"in_proj_weight": packed}, OptimizerConfig("muon")).step(lr=0.1)
    expected = [muon(x, dx, (np.zeros_like(x),), step=1, lr=0.1)[0] for x, dx in parts]
    np.testing.assert_allclose(packed.data, np.concatenate(expected), rtol=1e-12)


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
