"""R-Drop's loss of each family: every pair read twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.models import test_causal_lm, test_masked_lm, test_seq2seq
from tests.models.whole_model import check_every_gradient

from pellucid import Rng
from pellucid.core.batch import Batch, Packed

FAMILIES = {
    module.__name__.rpartition("test_")[2]: module
    for module in (test_seq2seq, test_causal_lm, test_masked_lm)
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_gradient(family: str) -> None:
    module: Any = FAMILIES[family]
    model = module.shaken(replace(module.BASE, dropout=0.3))
    check_every_gradient(model, module.BATCH, entries=1, r_drop=3.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_mean_of_both_readings_and_their_distance(family: str) -> None:
    """Under no dropout they agree; the second reading draws as another example would."""
    module: Any = FAMILIES[family]
    model, batch = module.shaken(replace(module.BASE, dropout=0.3)), module.BATCH
    once, _ = model.eval().loss(batch, Rng(1), 0.1)
    twice, _ = model.loss(batch, Rng(1), 0.1, r_drop=3.0)
    assert twice.nats == pytest.approx(once.nats, rel=1e-12)
    assert twice.tokens == once.tokens

    first, _ = model.train().loss(batch, Rng(1), 0.1)
    slight, _ = model.loss(batch, Rng(1), 0.1, r_drop=1e-9)
    if family != "masked_lm":  # which hides other tokens in other examples
        moved = (Packed(x.tokens, x.cu_seqlens, x.examples + (1 << 31)) for x in
                 (batch.source, batch.target))  # fmt: skip
        second, _ = model.loss(Batch(*moved), Rng(1), 0.1)
        assert slight.nats == pytest.approx((first.nats + second.nats) / 2, rel=1e-9)
    assert model.loss(batch, Rng(1), 0.1, r_drop=3.0)[0].nats > slight.nats + 1e-3
