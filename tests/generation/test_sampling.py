"""Sampling draws what it says, and the same whatever else is in the batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.small import exactly

from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.generation import Constraints, SampleConfig, sample
from pellucid.generation.sampling import kept_probabilities, likeliest_first
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.models.decoding import constrain, limits_of


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    config = Seq2SeqConfig(
        7, 7, d_model=12, num_attention_heads=3, ffn_dim=17, encoder_layers=1, decoder_layers=1
    )
    return Seq2Seq(config, seed=1, dtype=np.float64).eval()


def test_a_draw_is_keyed_by_seed_and_input_not_by_the_batch(model: Seq2Seq) -> None:
    sources = [[3, 4], [5], [6, 6, 6, 3], [4]]
    config = SampleConfig(max_length=17, seed=5)
    together = sample(model, Packed.of(sources), config)
    for i, source in enumerate(sources):
        assert sample(model, Packed.of([source], [i]), config) == [together[i]]
    shuffled = sample(model, Packed.of(sources[::-1], [3, 2, 1, 0]), config)
    assert shuffled == together[::-1]
    assert sample(model, Packed.of(sources), SampleConfig(max_length=17, seed=6)) != together


def test_a_text_without_room_says_nothing_in_any_company() -> None:
    config = CausalLMConfig(
        vocab_size=11, d_model=12, num_attention_heads=3, ffn_dim=17, max_position_embeddings=5
    )
    small = CausalLM(config, seed=1).eval()
    for seed in range(5):
        drawn = SampleConfig(max_length=3, seed=seed)
        assert sample(small, Packed.of([[5, 6, 7, 8]]), drawn) == [()]
        full, _ = sample(small, Packed.of([[5, 6, 7, 8], [7]]), drawn)
        assert full == ()
        _, alone = sample(small, Packed.of([[7], [7]]), drawn)
        assert sample(small, Packed.of([[5, 6, 7, 8], [7]]), drawn)[1] == alone


def test_first_tokens_come_as_often_as_the_model_says(model: Seq2Seq) -> None:
    n = 4001
    log_p, _ = model.step(model.start(Packed.of([[3, 4]])), np.array([1]))
    drawn = sample(model, Packed.of([[3, 4]] * n), SampleConfig(max_length=1))
    counts = np.bincount([d[0] if d else 2 for d in drawn], minlength=7)
    expected = n * np.exp(log_p[0])
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi-square, 6 degrees, p = 0.001


def test_the_cuts_keep_what_they_say() -> None:
    log_p = np.log([0.1, 0.4, 0.3, 0.15, 0.05])
    for config, tokens in (
        (SampleConfig(top_k=2), [1, 2]),
        (SampleConfig(top_p=0.69), [1, 2]),
        (SampleConfig(top_p=0.71), [1, 2, 3]),
        (SampleConfig(min_p=0.3), [1, 2, 3]),
        (SampleConfig(), [1, 2, 3, 0, 4]),
    ):
        kept, p = kept_probabilities(log_p, config)
        assert kept.tolist() == tokens
        assert p.sum() == pytest.approx(1.0)
    for cold in (1e-3, 1e-310):
        assert kept_probabilities(log_p, SampleConfig(temperature=cold))[1][0] > 0.999999


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tokens_are_ordered_as_a_stable_sort_does(dtype: type) -> None:
    drawn = np.random.default_rng(3).normal(size=1009).round(1).astype(dtype)
    drawn[[5, 7, 11, 13, 17, 19]] = [-np.inf, 0.0, -0.0, np.inf, -np.inf, 0.0]
    assert likeliest_first(drawn).tolist() == np.argsort(-drawn, kind="stable").tolist()


def test_a_repeated_token_is_penalised_and_the_end_is_free() -> None:
    log_p = np.log([0.25, 0.25, 0.5])
    ruled = constrain(log_p, [0, 2], Constraints(repetition_penalty=2.0), None, eos=2, left=9)
    np.testing.assert_allclose(ruled, [2 * np.log(0.25), np.log(0.25), np.log(0.5)])
    hardest = Constraints(repetition_penalty=1e308)
    assert constrain(log_p.astype(np.float32), [0], hardest, None, eos=2, left=9)[0] == -np.inf


def test_an_answer_begins_with_its_prefix(model: Seq2Seq) -> None:
    prefixes = [exactly([6, 5])]
    (tokens,) = sample(model, Packed.of([[3]]), SampleConfig(max_length=9), prefixes=prefixes)
    assert tokens[:2] == (6, 5)
    with pytest.raises(ValueError, match="a prefix of 2 tokens for an answer of at most 1"):
        sample(model, Packed.of([[3]]), SampleConfig(max_length=1), prefixes=prefixes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 1.0},
        {"max_length": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
        SampleConfig(**wrong)  # type: ignore[arg-type]


def test_rules_out_of_range_are_refused() -> None:
    for wrong in (
        {"repetition_penalty": 0.5},
        {"repetition_penalty": math.inf},
        {"no_repeat_ngram": -1},
        {"min_length": -1},
    ):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
            Constraints(**wrong)  # type: ignore[arg-type]


def test_no_answer_is_longer_than_the_room_of_its_own_text() -> None:
    config = CausalLMConfig(
        vocab_size=11, d_model=12, num_attention_heads=3, ffn_dim=17, max_position_embeddings=9
    )
    model, texts = CausalLM(config, 3).eval(), Packed.of([[3], [3, 4, 5], [4, 5]])
    for wrong in ([17, 17], [17] * 4):
        with pytest.raises(ValueError, match="expected a max_length for each of 3 inputs, got"):
            limits_of(model, texts, wrong)
    limits = limits_of(model, texts, 17)
    assert len(set(limits.tolist())) == 3
    longest = np.zeros(3, int)
    for seed in range(7):
        answers = sample(model, texts, SampleConfig(max_length=17, seed=seed))
        longest = np.maximum(longest, [len(answer) for answer in answers])
    assert (longest == limits).all()
