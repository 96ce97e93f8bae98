"""Layers one after another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pellucid.core.rng import Rng
from pellucid.nn.blocks import unwind
from pellucid.nn.module import Array, Forward, Module, ModuleList, single_use
from pellucid.nn.recorder import Recorder, inside


class Stack(Module):
    """Layers one after another, and a norm or none at the end."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def _run(
        self,
        x: Array,
        rng: Rng | None,
        recorder: Recorder | None,
        call: Callable[[Any, Array, Rng | None, Recorder | None], Forward],
    ) -> Forward:
        """Pass x through the layers; `backward(dy)` returns (dx, dmemory or None)."""
        backwards = []
        for i, layer in enumerate(self.layers):
            part = inside(inside(recorder, "layers"), str(i))
            x, back = call(layer, x, None if rng is None else rng.fold(i), part)
            backwards.append(back)
        norm_backward = None
        if self.norm is not None:
            x, norm_backward = self.norm.forward(x)

        @single_use
        def backward(dy: Array) -> tuple[Array, Array | None]:
            if norm_backward is not None:
                dy = norm_backward(dy)
            return unwind(backwards, dy)

        return x, backward
