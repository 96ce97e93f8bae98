"""Search against exhaustive enumeration, and batches against single sentences."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from tests.small import exactly

from pellucid import ops, reference
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError
from pellucid.generation import Constraints, SampleConfig, SearchConfig, sample, search
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.decoding import penalty

BOS, EOS, V = 1, 2, 5


def model_of(**settings: Any) -> Seq2Seq:
    config = Seq2SeqConfig(
        V, V, d_model=12, num_attention_heads=3, ffn_dim=17, encoder_layers=2, decoder_layers=2,
        **settings,
    )  # fmt: skip
    model = Seq2Seq(config, seed=7, dtype=np.float64).eval()
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.3 * noise.standard_normal(parameter.shape)
    return model


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return model_of()


def log_p_of(model: Seq2Seq, source: list[int], tokens: tuple[int, ...]) -> float:
    loss, _ = model.loss(Batch(Packed.of([source]), Packed.of([[BOS, *tokens, EOS]])))
    return -loss.nats


def test_a_beam_of_all_prefixes_is_exhaustive_search(model: Seq2Seq) -> None:
    limit, alpha = 3, 0.7
    words = [token for token in range(V) if token != EOS]
    for source in ([3, 4], [4, 4, 3, 0, 4], [3]):
        answers = [
            (log_p_of(model, source, tokens) / penalty(length + 1, alpha), tokens)
            for length in range(limit + 1)
            for tokens in itertools.product(words, repeat=length)
        ]
        score, tokens = max(answers)
        wide = SearchConfig(beam=len(words) ** limit + 1, max_length=limit, length_penalty=alpha)
        best = search(model, Packed.of([source]), wide)[0][0]
        assert best.tokens == tokens
        assert best.score == pytest.approx(score, rel=1e-10)


def test_greedy_takes_the_likeliest_token_each_time(model: Seq2Seq) -> None:
    source = [3, 0, 4]
    tokens: list[int] = []
    for _ in range(11):
        rows, _ = model.decode_rows(Batch(Packed.of([source]), Packed.of([[BOS, *tokens, EOS]])))
        token = int(np.argmax(model.output(rows)[-1]))
        if token == EOS:
            break
        tokens.append(token)
    found = search(model, Packed.of([source]), SearchConfig(max_length=11))[0][0]
    assert list(found.tokens) == tokens


@pytest.mark.parametrize("beam", [1, 3, 5])
def test_a_batch_answers_as_its_sentences_do_alone(model: Seq2Seq, beam: int) -> None:
    sources = [[3], [4, 3, 3, 0, 4, 3, 4], [0, 3], [4, 4, 4, 0, 3]]
    config = SearchConfig(beam=beam, best=beam, max_length=13)
    together = search(model, Packed.of(sources), config)
    for source, answers in zip(sources, together, strict=True):
        (alone,) = search(model, Packed.of([source]), config)
        assert [a.tokens for a in answers] == [a.tokens for a in alone]
        assert [a.score for a in answers] == pytest.approx([a.score for a in alone], rel=1e-12)


def test_scores_are_the_models_own(model: Seq2Seq) -> None:
    """Every answer is ranked with its end, and as likely as the model holds it."""
    config, source = SearchConfig(beam=5, best=5, max_length=3), [3, 4]
    (answers,) = search(model, Packed.of([source]), config)
    assert {answer.finished for answer in answers} == {True, False}
    for answer in answers:
        whole = log_p_of(model, source, answer.tokens)
        assert answer.score == pytest.approx(
            whole / penalty(len(answer.tokens) + 1, config.length_penalty), rel=1e-10
        )
        rows, _ = model.decode_rows(
            Batch(Packed.of([source]), Packed.of([[BOS, *answer.tokens, EOS]]))
        )
        unsaid = 0.0 if answer.finished else float(ops.log_softmax(model.output(rows))[0][-1, EOS])
        assert answer.log_p == pytest.approx(whole - unsaid, rel=1e-10)


@pytest.mark.parametrize("limit", [1, 2, 3, 10**30])
def test_no_answer_is_longer_than_asked_or_than_the_positions(limit: int) -> None:
    short = model_of(max_position_embeddings=7)
    short.output.bias.data[EOS] -= 9  # it never ends by itself
    (found,) = search(short, Packed.of([[3, 3]]), SearchConfig(max_length=limit))[0]
    assert len(found.tokens) == min(limit, 6)  # the first position is that of the begin token


def test_nothing_in_nothing_out(model: Seq2Seq) -> None:
    assert search(model, Packed.of([])) == []


def test_an_empty_source_is_answered_as_alone(model: Seq2Seq) -> None:
    three = SearchConfig(max_length=3)
    (empty, _) = search(model, Packed.of([[], [3]]), three)
    (alone,) = search(model, Packed.of([[]]), three)
    assert empty[0].tokens == alone[0].tokens
    assert empty[0].log_p == pytest.approx(alone[0].log_p, rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0},
        {"max_length": 0},
        {"best": 2},
        {"best": 0},
        {"length_penalty": float("nan")},
        {"length_penalty": float("inf")},
        {"length_penalty": 10.1},
        {"length_penalty": -1000.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
        SearchConfig(**wrong)


class Rounded:
    """A model whose values depend on the batch in their last digits, as BLAS makes them."""

    def __init__(self, model: Seq2Seq, noise: float) -> None:
        self.model, self.noise, self.config, self.dtype = model, noise, model.config, model.dtype

    def room(self, source: Packed) -> np.ndarray:
        return self.model.room(source)

    def start(self, source: Packed) -> object:
        return self.model.start(source)

    def step(self, state: object, tokens: np.ndarray) -> tuple[np.ndarray, object]:
        log_p, state = self.model.step(state, tokens)  # type: ignore[arg-type]
        shake = np.random.default_rng(len(tokens)).uniform(-1, 1, log_p.shape)
        return log_p + (self.noise * shake if len(tokens) > 1 else 0.0), state


def test_a_decision_that_rounding_could_turn_is_made_again_alone(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [[3, 4], [4, 4, 3], [0], [3, 3, 3, 4], [0, 4]]
    shaky = Rounded(model, 1e-2)
    alone = [search(shaky, Packed.of([s]))[0][0].tokens for s in sources]
    monkeypatch.setitem(search.__globals__["MARGIN"], model.dtype, 0.2)
    assert [a[0].tokens for a in search(shaky, Packed.of(sources))] == alone
    seen: list[int] = []
    plain = search.__globals__["search_once"]
    monkeypatch.setitem(
        search.__globals__,
        "search_once",
        lambda model, source, *more: seen.append(len(source)) or plain(model, source, *more),
    )
    search(shaky, Packed.of(sources))
    assert seen[0] == 5
    assert set(seen[1:]) == {1}


def test_a_forced_prefix_begins_every_answer(model: Seq2Seq) -> None:
    found = search(
        model,
        Packed.of([[3, 4], [4]]),
        SearchConfig(beam=3, best=3),
        prefixes=[exactly([4, 4, 0]), None],
    )  # fmt: skip
    assert all(answer.tokens[:3] == (4, 4, 0) for answer in found[0])
    with pytest.raises(ValueError, match="a prefix for each"):
        search(model, Packed.of([[3], [4]]), prefixes=[None])
    with pytest.raises(ValueError, match="a prefix of 2 tokens for an answer of at most 1"):
        search(model, Packed.of([[3]]), SearchConfig(max_length=1), prefixes=[exactly([3, 4])])


def test_no_ngram_is_generated_twice() -> None:
    long = model_of()
    long.output.bias.data[EOS] -= 9  # it would go on and on
    pairs = []
    for rules in (Constraints(), Constraints(no_repeat_ngram=2)):
        config = SearchConfig(beam=2, max_length=40, constraints=rules)
        tokens = search(long, Packed.of([[3, 4, 4]]), config)[0][0].tokens
        pairs.append(list(itertools.pairwise(tokens)))
    free, ruled = pairs
    assert len(free) > len(set(free))
    assert len(ruled) == len(set(ruled)) > 1


@pytest.mark.parametrize("settings", [{}, {"beam": 3, "best": 3}])
def test_no_answer_ends_before_its_shortest_length(settings: dict[str, int]) -> None:
    short = model_of()
    short.output.bias.data[EOS] += 9  # it would end at once
    source = Packed.of([[3, 4, 4], [4]])
    free = search(short, source, SearchConfig(max_length=9, **settings))
    config = SearchConfig(max_length=9, constraints=Constraints(min_length=5), **settings)
    assert min(len(h.tokens) for best in free for h in best) == 0
    for layers in (False, True):
        with reference() if layers else nullcontext():
            found = search(short, source, config)
        assert {len(h.tokens) for best in found for h in best} <= {5, 6, 7, 8, 9}
        assert found[0][0].finished
        drawn = sample(short, source, SampleConfig(max_length=9, constraints=config.constraints))
        assert min(map(len, drawn)) >= 5
