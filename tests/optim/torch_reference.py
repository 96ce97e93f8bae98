"""Ten steps of torch's own optimizers, along the gradients that `test_model` draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.oracles import oracle

torch = oracle("torch")

Array = np.ndarray


def ten_steps(
    name: str, weight_decay: float | None, start: dict[str, Array], gradients: Any
) -> dict[str, Array]:
    """Return the parameters after ten steps; the bias gets no gradient in one of them."""
    theirs = {key: torch.nn.Parameter(torch.tensor(x)) for key, x in start.items()}
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    adam: dict[str, Any] = {"lr": 0.03, "betas": (0.8, 0.97), "eps": 1e-6}
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[name](theirs.values(), **adam, **options)
    for step in range(10):
        for key, gradient in gradients(step).items():
            absent = key == "bias" and step == 4
            theirs[key].grad = None if absent else torch.tensor(gradient)
        optimizer.step()
    return {key: p.detach().numpy() for key, p in theirs.items()}
