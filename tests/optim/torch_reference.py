"""Ten steps of torch's own optimizers, along the gradients that `test_model` draws."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from tests.oracles import oracle

torch = oracle("torch")

Array = np.ndarray
MATRICES = ("layers.0.linear1.weight", "layers.0.linear2.weight")
"""The parameters of `test_model` that Muon steps."""


def ten_steps(
    name: str, weight_decay: float | None, start: dict[str, Array], gradients: Any
) -> dict[str, Array]:
    """Return the parameters after ten steps; the bias gets no gradient in one of them."""
    theirs = {key: torch.nn.Parameter(torch.tensor(x)) for key, x in start.items()}
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    adam: dict[str, Any] = {"lr": 0.03, "betas": (0.8, 0.97), "eps": 1e-6}
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if name == "muon":
        decay = {"weight_decay": 0.1} | options
        matrices = [theirs[key] for key in MATRICES]
        others = [x for key, x in theirs.items() if key not in MATRICES]
        optimizers: list[Any] = [
            torch.optim.Muon(matrices, lr=0.03, adjust_lr_fn="match_rms_adamw", **decay),
            torch.optim.AdamW(others, **adam, **decay),
        ]
    else:
        optimizers = [kinds[name](theirs.values(), **adam, **options)]
    # torch rounds Muon's matrices to bfloat16; without it there is something to compare with.
    with patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
        for step in range(10):
            for key, gradient in gradients(step).items():
                absent = key == "bias" and step == 4
                theirs[key].grad = None if absent else torch.tensor(gradient)
            for optimizer in optimizers:
                optimizer.step()
    return {key: p.detach().numpy() for key, p in theirs.items()}
