"""The page shows a model's numbers, or refuses the model by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.whole_model import shake

from pellucid.apps.view.capture import capture, frozen
from pellucid.apps.view.page import as_json
from pellucid.apps.view.trace import Asked, trace_seq2seq
from pellucid.models import Seq2Seq, Seq2SeqConfig

CONFIG = Seq2SeqConfig(
    17, 19, d_model=12, num_attention_heads=6, ffn_dim=7, encoder_layers=1, decoder_layers=1
)
TOGETHER: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "rms_norm",
    "activation_function": "swiglu",
    "positions": "rotary",
    "rope_theta": 30.0,
    "num_key_value_heads": 2,
    "qk_norm": True,
    "attention_softcap": 0.7,
    "sliding_window": 3,
    "embedding_norm": True,
    "linear_bias": False,
}
DISTANCES: dict[str, Any] = {
    "positions": "relative",
    "relative_attention_num_buckets": 6,
    "relative_attention_max_distance": 5,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"head_dim": 6},
        {"linear_bias": False},
        {"num_key_value_heads": 3},
        {"attention_softcap": 0.7},
        {"sliding_window": 2},
        {"qk_norm": True, "attention_scale": "learned"},
        {"positions": "rotary"},
        {"positions": "rotary_cross"},
        {"positions": "alibi", "sliding_window": 3},
        DISTANCES,
        TOGETHER,
    ],
    ids=lambda settings: ", ".join(settings),
)
def test_the_page_has_what_weights_and_gradients_are_made_of(settings: dict[str, Any]) -> None:
    model = Seq2Seq(replace(CONFIG, **settings), dtype=np.float64).eval()
    shake(model)
    model = frozen(model)
    record = trace_seq2seq(model, Asked(None, [5, 6, 7, 8], [4, 8, 5]))
    texts = {"source": [5, 6, 7, 8], "target": [1, 4, 8, 5]}
    rows = capture(model, texts, range(4), [4, 8, 5, 2]).rows
    values = as_json(record)
    assert values["off"] < 2e-6
    assert ("added" in values["maps"][0]) == (settings.get("positions") in ("alibi", "relative"))
    for m in record.maps:
        assert m.dqueries is not None
        assert m.dkeys is not None
        stack = "encoder" if m.kind == "encoder" else "decoder"
        block = rows[f"{stack}.layers.0.{int(m.kind == 'cross')}.sublayer"]
        dx = m.dqueries if m.kind == "cross" else m.dqueries + m.dkeys
        np.testing.assert_allclose(dx, block.dx, atol=1e-12)
