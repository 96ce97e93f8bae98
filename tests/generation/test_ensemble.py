"""Several models that answer as one, against their own probabilities."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pellucid.core.batch import Batch, Packed
from pellucid.generation import (
    Ensemble,
    SampleConfig,
    SearchConfig,
    compile_model,
    mean_probability,
    sample,
    search,
)
from pellucid.models import Seq2Seq, Seq2SeqConfig

BOS, EOS, V = 1, 2, 5
SOURCES = [[3, 4], [4, 4, 3, 0, 4], [3], [0, 3, 3]]


def model_of(seed: int, width: int, dtype: Any) -> Seq2Seq:
    config = Seq2SeqConfig(
        V, V, d_model=width, num_attention_heads=3, ffn_dim=17, encoder_layers=1, decoder_layers=2
    )
    model = Seq2Seq(config, seed=seed, dtype=dtype).eval()
    noise = np.random.default_rng(seed)
    for parameter in model.parameters():
        drawn = 0.3 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + drawn).astype(dtype)
    return model


def log_p_of(models: tuple[Seq2Seq, ...], source: list[int], tokens: tuple[int, ...]) -> float:
    """Return Σ log of the mean probability of each token and of the end, by teacher forcing."""
    batch = Batch(Packed.of([source]), Packed.of([[BOS, *tokens, EOS]]))
    p = []
    for model in models:
        z = model.output(model.decode_rows(batch, inference=True)[0])
        p.append(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
    chosen = np.mean(p, axis=0)[np.arange(len(tokens) + 1), [*tokens, EOS]]
    return float(np.log(chosen).sum())


def test_a_beam_of_all_prefixes_is_exhaustive_search_with_the_mean_probability() -> None:
    models = tuple(model_of(seed, width, np.float64) for seed, width in ((7, 12), (8, 6), (9, 12)))
    words, limit = [token for token in range(V) if token != EOS], 3
    wide = SearchConfig(beam=len(words) ** limit + 1, max_length=limit, length_penalty=0.0)
    found = search(Ensemble(models), Packed.of(SOURCES), wide)
    for source, best in zip(SOURCES, found, strict=True):
        answers = [
            (log_p_of(models, source, tokens), tokens)
            for length in range(limit + 1)
            for tokens in itertools.product(words, repeat=length)
        ]
        assert best[0].tokens == max(answers)[1]
        assert best[0].log_p == pytest.approx(max(answers)[0], rel=1e-10)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_model_with_itself_answers_as_it_does_alone(compiled: bool) -> None:
    model = model_of(5, 12, np.float32)
    own: Any = compile_model(model) if compiled else model
    twice, config = Ensemble((own, own)), SearchConfig(beam=3, best=3, max_length=11)
    both = search(twice, Packed.of(SOURCES), config), search(own, Packed.of(SOURCES), config)
    for ours, theirs in zip(*both, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        np.testing.assert_allclose([h.score for h in ours], [h.score for h in theirs], rtol=1e-4)
    draws = SampleConfig(seed=3, max_length=11)
    assert sample(twice, Packed.of(SOURCES), draws) == sample(own, Packed.of(SOURCES), draws)


def test_answers_do_not_depend_on_the_batch() -> None:
    models = tuple(compile_model(model_of(seed, 12, np.float32)) for seed in (3, 4))
    config = SearchConfig(beam=4, best=2, max_length=13)
    together = search(Ensemble(models), Packed.of(SOURCES), config)
    alone = [search(Ensemble(models), Packed.of([each]), config)[0] for each in SOURCES]
    assert together == alone


def test_a_token_that_no_model_has_stays_impossible() -> None:
    log_p = [np.array([[0.0, -np.inf, -np.inf]]), np.array([[-np.inf, -np.inf, 0.0]])]
    np.testing.assert_array_equal(mean_probability(log_p), [[-np.log(2), -np.inf, -np.log(2)]])


def test_the_room_is_that_of_the_shortest_model() -> None:
    short, long = model_of(1, 12, np.float64), model_of(2, 12, np.float64)
    short.config = Seq2SeqConfig(V, V, d_model=12, num_attention_heads=3, max_position_embeddings=7)
    assert Ensemble((long, short)).room(Packed.of(SOURCES)).tolist() == [6] * 4
