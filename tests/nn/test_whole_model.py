"""The paper's base size, 6 + 6 layers, post-norm, with torch: one step, then ten of Adam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.nn import compare
from tests.oracles import oracle

from pellucid import nn
from pellucid.optim.model import ModelOptimizer

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")

N, S, L = 2, 5, 3
STEPS, LR = 10, 1e-4


def twins() -> tuple[nn.Transformer, Any]:
    """Our base Transformer, with norms that are not 1 and biases that are not 0, and torch's."""
    model = nn.Transformer(dropout=0.0, batch_first=True, dtype=np.float64)
    g = np.random.default_rng(0)
    for name, parameter in model.named_parameters():
        if len(parameter.shape) == 1:
            parameter.data = parameter.data + 0.2 * g.standard_normal(parameter.shape)
            assert "norm" not in name or not (parameter.data == 1).any()
    twin = torch.nn.Transformer(dropout=0.0, batch_first=True, dtype=torch.float64)
    twin.load_state_dict({n: torch.from_numpy(x.copy()) for n, x in model.state_dict().items()})
    return model, twin


def test_every_gradient_and_ten_steps_of_adam() -> None:
    g = np.random.default_rng(1)
    src, tgt, wanted = (g.standard_normal((N, length, 512)) for length in (S, L, L))
    padding = np.arange(S) >= np.array([[S], [2]])
    model, twin = twins()
    adam = ModelOptimizer(model.named_parameters())
    twin_adam = torch.optim.Adam(twin.parameters(), LR)
    ours, torchs = [], []
    for step in range(STEPS):
        y, backward = model.forward(
            src, tgt, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        ours.append(float(np.mean((y - wanted) ** 2)))
        backward(2 * (y - wanted) / y.size)

        twin_y = twin(
            torch.from_numpy(src), torch.from_numpy(tgt),
            tgt_mask=twin.generate_square_subsequent_mask(L, dtype=torch.float64),
            src_key_padding_mask=torch.from_numpy(padding),
            memory_key_padding_mask=torch.from_numpy(padding),
        )  # fmt: skip
        loss = torch.mean((twin_y - torch.from_numpy(wanted)) ** 2)
        loss.backward()
        torchs.append(float(loss.detach()))
        if step == 0:
            named = {f"gradient of {n}": p.grad.numpy() for n, p in twin.named_parameters()}
            mine = {f"gradient of {n}": p.grad for n, p in model.named_parameters()}
            assert len(named) == 184
            wrong = {n: e for n, e in compare.errors(mine, named).items() if not e <= 1e-9}
            assert not wrong, f"{len(wrong)} of {len(named)} gradients: {wrong}"
        adam.step(LR)
        model.zero_grad()
        twin_adam.step()
        twin_adam.zero_grad()
    assert ours[-1] < 0.95 * ours[0]  # it learns
    np.testing.assert_allclose(ours, torchs, rtol=1e-6)
