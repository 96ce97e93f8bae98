"""What a layer is told about the rows that it gets."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Rng
from pellucid.nn.context import Context


@pytest.mark.parametrize("site", [None, 0, 3])
def test_each_part_of_a_layer_draws_numbers_of_its_own(site: int | None) -> None:
    """Else every layer would drop the same units."""
    told = Context(cu_seqlens=np.array([0, 5]), causal=True, rng=Rng(7), path="encoder")
    inside = told.child("0", site)
    assert inside.path == "encoder.0"
    assert inside.rng == (told.rng if site is None else Rng(7).fold(site))
    assert inside.causal
    assert (told.path, told.rng) == ("encoder", Rng(7))


@pytest.mark.parametrize("site", [None, 3])
def test_what_draws_nothing_stays_so_inside(site: int | None) -> None:
    told = Context(cu_seqlens=np.array([0, 5]), path="encoder")
    assert vars(told.child("", site)) == vars(told)
