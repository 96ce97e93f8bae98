"""The page shows a model's numbers, or refuses the model by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.describe import UnsupportedError
from pellucid.view.trace import trace_seq2seq, undisturbed

CONFIG = Seq2SeqConfig(
    17, 19, d_model=12, num_attention_heads=3, ffn_dim=7, encoder_layers=1, decoder_layers=1
)


def trace(**settings: Any) -> Any:
    model = Seq2Seq(replace(CONFIG, **settings), dtype=np.float64).eval()
    with undisturbed(model):
        return model, trace_seq2seq(model, None, [5, 6, 7], [4, 8], None)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_key_value_heads": 1}, "key_value_heads = 1"),
        ({"attention_softcap": 1.5}, "softcap = 1.5"),
        ({"sliding_window": 2}, "window = 2"),
        ({"qk_norm": True}, "q_norm = a Norm"),
        ({"positions": "alibi"}, "kind = 'alibi'"),
        ({"positions": "relative"}, "relative_bias"),
    ],
)
def test_what_the_page_does_not_compute_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedError, match="the page of attention does not support") as found:
        trace(**settings)
    assert named in str(found.value)


@pytest.mark.parametrize("settings", [{"head_dim": 6}, {"linear_bias": False}])
def test_the_gradients_of_other_layers_are_there(settings: dict[str, Any]) -> None:
    _, record = trace(**settings)
    assert all(each.dqueries is not None for each in record.maps)


def test_gradients_of_rotated_queries_are_not_given_as_those_of_rows() -> None:
    _, record = trace(positions="rotary")
    own = [each for each in record.maps if each.kind != "cross"]
    assert own
    assert all(each.dqueries is None for each in own)
