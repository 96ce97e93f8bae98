"""Whole models, forward and backward, on arrays of other libraries: the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ops.libraries import LIBRARIES, ON_A_GPU, to, without_dropout

from pellucid import Rng
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)

BATCH = Batch(Packed.of([[5, 6, 7], [8, 9]]), Packed.of([[1, 4, 11, 2], [1, 7, 2]]))
SIZES: dict[str, Any] = {"d_model": 12, "num_attention_heads": 3, "ffn_dim": 17}
MODELS: dict[str, Callable[[], Any]] = {
    "seq2seq, learned scales and positions": lambda: Seq2Seq(
        Seq2SeqConfig(
            23, 29, encoder_layers=2, decoder_layers=2, positions="learned",
            attention_scale="learned", **SIZES,
        ), seed=1, dtype=np.float64,
    ),
    "seq2seq, pre-norm, more feed-forward": lambda: Seq2Seq(
        Seq2SeqConfig(
            23, 29, norm="pre", activation_function="gelu", ffn_before=1, ffn_after=2,
            encoder_layers=1, decoder_layers=1, **SIZES,
        ), seed=1, dtype=np.float64,
    ),
    "causal_lm": lambda: CausalLM(CausalLMConfig(vocab_size=29, **SIZES), dtype=np.float64),
    "masked_lm": lambda: MaskedLM(
        MaskedLMConfig(vocab_size=29, type_vocab_size=2, **SIZES), dtype=np.float64
    ),
}  # fmt: skip


def loss_and_gradients(model: Any) -> tuple[float, dict[str, Any]]:
    model.zero_grad()
    loss, backward = model.loss(BATCH, Rng(3), 0.1)
    backward(0.5)
    return loss.nats, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "cupy"])
@pytest.mark.parametrize("kind", MODELS)
def test_whole_model_equals_the_numpy_run_forward_and_backward(kind: str, library: str) -> None:
    model = MODELS[kind]()
    if library in ON_A_GPU:
        without_dropout(model)
    loss, gradients = loss_and_gradients(model)
    there = to(library, np.zeros(1))
    model.to(there)
    other_loss, other = loss_and_gradients(model)
    assert abs(loss - other_loss) <= 1e-12 * loss
    scale = max(float(np.abs(g).max()) for g in gradients.values())
    for name, gradient in other.items():
        assert type(gradient) is type(there), name
        assert np.abs(to_host(gradient) - gradients[name]).max() <= 1e-12 * scale, name


@pytest.mark.oracle("torch")
def test_decoding_on_torch_tensors_equals_the_numpy_run() -> None:
    import torch

    model = MODELS["seq2seq, learned scales and positions"]()
    found = []
    for _ in range(2):
        state, log_ps = model.start(BATCH.source), []
        for tokens in ([1, 1], [4, 5], [6, 7]):
            log_p, state = model.step(state, np.array(tokens))
            log_ps.append(to_host(log_p))
        found.append(np.stack(log_ps))
        model.to(torch.zeros(1))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)
