"""What the measures record, against slow and plain computations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pellucid.apps.lab import trial
from pellucid.apps.lab.study import Plan
from pellucid.apps.lab.study_file import SHIPPED
from pellucid.core.batch import Batch, Packed
from pellucid.core.parts import read
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.nn import Recorder

read(str(SHIPPED / "measures.py"))
row_statistics = sys.modules["pellucid_part_measures"].row_statistics

CONFIG = Seq2SeqConfig(
    11,
    13,
    d_model=10,
    num_attention_heads=2,
    ffn_dim=7,
    encoder_layers=1,
    decoder_layers=2,
    positions="learned",
    position_scale=0.5,
)
BATCH = Batch(Packed.of([[5, 6, 7], [8, 9, 10, 4, 5]]), Packed.of([[1, 4, 5, 6, 2], [1, 7, 8, 2]]))


def probe(model: Seq2Seq, batch: Batch, measures: Sequence[str] = Plan.measures) -> dict[str, Any]:
    return trial.probe(model, batch, measures)


def test_jacobian_is_that_of_the_matrix() -> None:
    w = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 2, 4))
    found = row_statistics(w, np.ones((3, 4, 5), bool))["jacobian"]
    for place in np.ndindex(3, 2, 4):
        row = w[place]
        matrix = np.diag(row) - np.outer(row, row)
        assert found[place] == pytest.approx(np.linalg.norm(matrix))


def by_hand(name: str, head: int) -> dict[str, float]:
    """One head of one layer, example by example, from q and k."""
    model, recorder = Seq2Seq(CONFIG, seed=3).eval(), Recorder()
    with recorder:
        model.loss(BATCH)
    seen = recorder.maps[name]
    sources, targets = [3, 5], [4, 3]
    queries = sources if name.startswith("encoder") else targets
    keys = targets if "decoder" in name and name.endswith("self_attn") else sources
    pairs, rows = [], []
    for n, (l_n, s_n) in enumerate(zip(queries, keys, strict=True)):
        for i in range(l_n):
            visible = i + 1 if seen.causal else s_n
            products = np.asarray(seen.k[n, head, :visible]) @ np.asarray(seen.q[n, head, i])
            pairs += list(products)
            if visible >= 2:
                w = np.exp(products * seen.scale)
                rows.append((w / w.sum(), products))
    entropies = [-(w * np.log(w)).sum() for w, _ in rows]
    return {
        "score_variance": float(np.var(pairs)),
        "row_variance": float(np.mean([np.var(p) for _, p in rows])),
        "entropy": float(np.mean(entropies)),
        "evenness": float(
            np.mean([e / np.log(len(w)) for e, (w, _) in zip(entropies, rows, strict=True)])
        ),
        "top": float(np.mean([w.max() for w, _ in rows])),
        "jacobian": float(np.mean([np.linalg.norm(np.diag(w) - np.outer(w, w)) for w, _ in rows])),
    }


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return probe(Seq2Seq(CONFIG, seed=3), BATCH)


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layers.0.self_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ],
)
@pytest.mark.parametrize("head", [0, 1])
def test_heads_by_hand(seen: dict[str, Any], name: str, head: int) -> None:
    for what, value in by_hand(name, head).items():
        assert seen["attention"][name][what][head] == pytest.approx(value, rel=2e-3), what


@pytest.mark.parametrize("scale", ["sqrt_d_k", "learned"])
def test_the_current_scale_is_recorded_and_products_are_taken_before_it(scale: Any) -> None:
    model = Seq2Seq(replace(CONFIG, attention_scale=scale), seed=3)
    layer = model.decoder.layers[1].multihead_attn
    name, before = "decoder.layers.1.multihead_attn", probe(model, BATCH)["attention"]
    assert before[name]["scale"] == pytest.approx([5**-0.5] * 2, rel=1e-3)
    if layer.head_scale is not None:
        layer.head_scale.data[:] = 0.25, -3.0
        after = probe(model, BATCH)["attention"]
        assert after[name]["scale"] == [0.25, -3.0]
        assert after[name]["score_variance"] == before[name]["score_variance"]
        assert after[name]["top"] != before[name]["top"]
        assert after["encoder.layers.0.self_attn"] == before["encoder.layers.0.self_attn"]


def test_by_keys_counts_queries_and_agrees_with_softmax(seen: dict[str, Any]) -> None:
    assert {k: v["queries"] for k, v in seen["by_keys"]["encoder"].items()} == {"3": 3, "5": 5}
    assert {k: v["queries"] for k, v in seen["by_keys"]["cross"].items()} == {"3": 8, "5": 6}
    assert set(seen["by_keys"]["decoder"]) == {"2", "3", "4"}


def test_memory_separates_variance_within_and_between_sentences(seen: dict[str, Any]) -> None:
    model = Seq2Seq(CONFIG, seed=3).eval()
    alone = [model.encode(Packed.of([list(s)])) for s in ([5, 6, 7], [8, 9, 10, 4, 5])]
    within = np.mean([((m - m.mean(axis=0)) ** 2).mean() for m in alone])
    between = (np.subtract(*(m.mean(axis=0) for m in alone)) ** 2).mean() / 4
    assert seen["memory"]["within"] == pytest.approx(within, rel=2e-3)
    assert seen["memory"]["between"] == pytest.approx(between, rel=2e-3)


def test_lengths_carry_their_factors(seen: dict[str, Any]) -> None:
    model = Seq2Seq(CONFIG, seed=3)
    rows = model.source.tokens.weight.data[BATCH.source.tokens] * 10**0.5
    assert seen["lengths"]["source"]["token"] == pytest.approx(
        np.linalg.norm(rows, axis=1).mean(), rel=1e-3
    )
    assert model.target.positions is not None
    places = model.target.positions.weight.data[[0, 1, 2, 3, 0, 1, 2]] * 0.5
    assert seen["lengths"]["target"]["position"] == pytest.approx(
        np.linalg.norm(places, axis=1).mean(), rel=1e-3
    )


def test_gradient_norms_are_of_the_mean_loss_and_are_forgotten() -> None:
    model = Seq2Seq(CONFIG, seed=3).eval()
    loss, backward = model.loss(BATCH)
    backward(1.0 / loss.tokens)
    wanted = np.sqrt(sum(np.sum(np.square(p.grad)) for p in model.parameters()))
    name = "decoder.layers.0.self_attn.in_proj_weight"
    k_part = np.split(dict(model.named_parameters())[name].grad, 3)[1]
    model.train()
    found = probe(model, BATCH)["gradients"]
    assert found["all"] == pytest.approx(wanted, rel=1e-3)
    assert found[name.replace("in_proj", "k_proj")] == pytest.approx(
        np.linalg.norm(k_part), rel=1e-3
    )
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_dead_units_are_those_no_row_wakes() -> None:
    model = Seq2Seq(CONFIG, seed=3)
    before = probe(model, BATCH)["dead"]["encoder.layers.0"]
    bias = dict(model.named_parameters())["encoder.layers.0.linear1.bias"].data
    bias[:3] = -100.0  # no row gets over this
    bias[3:] = 100.0
    assert probe(model, BATCH)["dead"]["encoder.layers.0"] == pytest.approx(3 / 7, rel=1e-3)
    assert before != pytest.approx(3 / 7, rel=1e-3)


def test_only_the_measures_that_are_named_are_recorded() -> None:
    assert set(probe(Seq2Seq(CONFIG, seed=3), BATCH, ["embeddings"])) == {"lengths"}


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative"])
def test_positions_that_are_not_added_have_no_length(positions: Any) -> None:
    lengths = probe(Seq2Seq(replace(CONFIG, positions=positions, head_dim=4), seed=3), BATCH)[
        "lengths"
    ]
    assert set(lengths["source"]) == set(lengths["target"]) == {"token"}
