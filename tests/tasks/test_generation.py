"""What every task that generates is asked from Python: settings, scores, attention, wrong use."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pellucid.core.errors import UsageError, UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.tasks import CausalLMTask, GenerationTask, Seq2SeqTask

TEXTS = ["hello", "he", "", "there then"]
SIZES: Any = {
    "d_model": 12, "ffn_dim": 7, "num_attention_heads": 3, "max_position_embeddings": 23,
}  # fmt: skip


@pytest.fixture(scope="module", params=["seq2seq", "causal"])
def trained(request: pytest.FixtureRequest) -> GenerationTask:
    tokens = train_tokenizer(["hello then there"], "char", None, ())
    size, search = tokens.vocab_size, SearchConfig(beam=3, max_length=7)
    model: Any
    if request.param == "causal":
        model = CausalLM(
            CausalLMConfig(vocab_size=size, num_hidden_layers=2, output_bias=True, **SIZES)
        )
    else:
        model = Seq2Seq(Seq2SeqConfig(size, size, encoder_layers=1, decoder_layers=2, **SIZES))
    noise = np.random.default_rng(3)
    for parameter in model.parameters():
        drawn = noise.standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * drawn
    model.output.bias.data[[0, 1, 2, 3]] += [-9, -9, 2, -9]  # answers end, and are texts
    kind = CausalLMTask if request.param == "causal" else Seq2SeqTask
    return kind(model.eval(), tokens, tokens, search)


def test_settings_of_a_call_are_those_of_the_task(trained: GenerationTask) -> None:
    greedy = replace(trained, search=SearchConfig(max_length=4))
    assert trained.generate(TEXTS, beam=1, max_length=4) == greedy.generate(TEXTS)
    drawn = replace(trained, sampling=SampleConfig(2.0, max_length=7, seed=5))
    answers = trained.generate_answers(TEXTS, temperature=2, seed=5)
    assert answers == drawn.generate_answers(TEXTS)
    assert "".join(trained.stream("he", temperature=2, seed=5)) == drawn.generate(["he"])[0]
    assert [len(some) for some in trained.generate_answers(["he"], best=2)] == [2]
    once = trained.generate_answers(["he"], no_repeat_ngram=1)[0][0].tokens
    assert len(set(once)) == len(once)
    assert trained.search.beam == 3


def test_any_iterable_of_texts_is_answered(trained: GenerationTask) -> None:
    assert trained.generate(iter(TEXTS)) == trained.generate(TEXTS)


def test_log_p_is_the_models_own_under_a_repetition_penalty(trained: GenerationTask) -> None:
    texts = ["hello", "he", "there then", "the"]
    found = trained.generate_answers(texts, repetition_penalty=1.01, beam=5, best=5, max_length=12)
    answers = [(text, answer) for text, some in zip(texts, found, strict=True) for answer in some]
    pairs = [(trained.source.encode(text), answer.tokens) for text, answer in answers]
    assert any(len(set(tokens)) < len(tokens) for _, tokens in pairs)
    for (_, answer), scores in zip(answers, trained.token_scores(pairs), strict=True):
        own = scores.log_p if answer.finished else scores.log_p[:-1]
        assert answer.log_p == pytest.approx(float(own.sum()), abs=1e-4)


def test_numbers_beyond_any_answer_are_as_good_as_none(trained: GenerationTask) -> None:
    many = 10**20
    texts = ["hello", "he"]
    assert trained.generate(texts, temperature=1, max_length=many) == trained.generate(
        texts, temperature=1, max_length=10**6
    )
    assert trained.generate(texts, no_repeat_ngram=many) == trained.generate(texts)


def test_a_sampled_answer_is_json_where_the_positions_end_it(trained: GenerationTask) -> None:
    ((answer,),) = trained.generate_answers(["he"], temperature=1, max_length=10**6)
    assert json.loads(json.dumps(answer)) == [*answer[:3], [*answer.tokens], answer.score]


def test_what_a_call_cannot_do_is_refused(trained: GenerationTask) -> None:
    with pytest.raises(UserError, match="leave out beam and best"):
        next(trained.stream("hello", num_beams=4))
    with pytest.raises(UserError, match="expected 2 numbers, one for each text; got 1"):
        trained.generate_answers(["hello", "he"], numbers=[1])


def test_a_score_is_that_of_the_answer_found(trained: GenerationTask) -> None:
    texts = ["hello", "he", "there then", "the", "hen"]
    pairs, expected = [], []
    for text, (answer, *_) in zip(texts, trained.generate_answers(texts, beam=1), strict=True):
        new = answer.text[len(text) :] if trained.kind == "continue" else answer.text
        if answer.finished and trained.target.encode(new) == list(answer.tokens):
            pairs.append((text, new))
            expected.append(answer.log_p)
    assert pairs
    np.testing.assert_allclose(trained.score(pairs), expected, atol=1e-4)


def test_an_answer_without_tokens_for_it_is_never_written(trained: GenerationTask) -> None:
    """Its log-probability was that of the unknown token, the same for every such answer."""
    odd = "\N{SNOWMAN}"
    known = not trained.target.unknown([odd])
    lowest, finite = trained.score([("hello", odd), ("hello", "he")])
    assert np.isfinite(finite)
    assert np.isfinite(lowest) if known else lowest == -np.inf


def test_only_a_model_that_continues_begins_with_nothing(trained: GenerationTask) -> None:
    if trained.kind == "continue":
        assert np.isfinite(trained.score([("", "he")])).all()
        return
    with pytest.raises(UserError, match="an empty text has no answer"):
        trained.score([("", "he")])


def test_answers_scored_together_score_as_alone(
    trained: GenerationTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [([4, 5, 6], [7]), ([8], [4, 4, 5, 6]), ([4, 9], []), ([5, 5, 5, 5, 5], [6, 7])]
    together = trained.token_scores(pairs)
    monkeypatch.setattr("pellucid.tasks.generation.MOST_SCORED", 1)
    for pair, one, other in zip(pairs, together, trained.token_scores(pairs), strict=True):
        assert one.weights.shape == (len(pair[1]) + 1, len(pair[0]))
        np.testing.assert_allclose(one.log_p, other.log_p, atol=1e-5)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_attention_has_every_layer_with_its_tokens(trained: GenerationTask) -> None:
    seen = trained.attention("hello", "he")
    begin = trained.target.tokens([1])[0]
    if trained.kind == "continue":
        assert list(seen) == ["decoder.layers.0.self_attn", "decoder.layers.1.self_attn"]
        assert seen["decoder.layers.0.self_attn"].queries == [begin, *"hello", *"he"]
    else:
        cross = seen["decoder.layers.1.multihead_attn"]
        assert (cross.queries, cross.keys) == ([begin, "h", "e"], list("hello"))
        assert seen["encoder.layers.0.self_attn"].keys == list("hello")
    for layer in seen.values():
        assert layer.weights.shape == (3, len(layer.queries), len(layer.keys))
        np.testing.assert_allclose(layer.weights.sum(axis=-1), 1.0, rtol=1e-5)


def test_attention_without_an_answer_is_that_of_the_best(trained: GenerationTask) -> None:
    name = "decoder.layers.1.self_attn"
    prefixed = replace(trained, prefix="hen")
    best = prefixed.generate_answers(["he"])[0][0].tokens
    assert len(best) >= 3
    assert prefixed.attention("he")[name].queries[-len(best) :] == trained.target.tokens(best)


def test_a_notebook_shows_an_attention_map(trained: GenerationTask) -> None:
    seen = list(trained.attention("hello", "he").values())[-1]
    shown = seen._repr_html_()
    assert shown.count("<tr>") == 1 + len(seen.queries)
    assert shown.count("<td") == len(seen.queries) * len(seen.keys)
    assert f'title="{seen.weights.mean(axis=0)[0, 0]:.3f}"' in shown
    odd = seen._replace(queries=["<b>"] * len(seen.queries))
    assert "<th><b></th>" not in odd._repr_html_()


def test_settings_have_transformers_names_too(trained: GenerationTask) -> None:
    texts = ["he", "hello"]
    own = trained.generate_answers(texts, beam=3, best=2, max_length=4, no_repeat_ngram=2)
    assert own == trained.generate_answers(
        texts, num_beams=3, num_return_sequences=2, max_new_tokens=4, no_repeat_ngram_size=2,
        do_sample=False,
    )  # fmt: skip
    sampled = trained.generate(texts, temperature=1.0, max_length=4)
    assert trained.generate(texts, do_sample=True, max_new_tokens=4) == sampled
    # a task that samples searches again
    samples = trained.configured(temperature=3.0, seed=5)
    assert samples.generate(texts) != trained.generate(texts)
    assert samples.generate(texts, do_sample=False) == trained.generate(texts)
    assert trained.generate(texts, do_sample=True, top_p=0.5) == trained.generate(texts, top_p=0.5)


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda m: m.generate("hello"), r"list of texts: write generate\(\['hello'\]\)"),
    (lambda m: m.generate(["he", 3]), r"texts\[1\] is 3"),
    (lambda m: m.generate(5), "list of texts; got int"),
    (lambda m: m.generate_answers("hello"), "list of texts"),
    (lambda m: m.generate(["he"], beam_size=4), "no setting beam_size; here it is beam"),
    (lambda m: m.generate(["he"], num_beam=4), "no setting num_beam .did you mean"),
    (lambda m: m.generate(["he"], num_beams=4, beam=4), "num_beams, beam are one setting: leave"),
    (
        lambda m: m.generate_answers(["he"], num_return_sequences=3, samples=5),
        "num_return_sequences, samples are one setting: leave",
    ),
    (lambda m: m.generate(["he"], do_sample=False, top_p=0.9), "do_sample = False, but top_p"),
    (
        lambda m: m.generate(["he"], do_sample=True, num_return_sequences=2, num_beams=1),
        "one answer to each text, got samples = 2; generate_answers returns all",
    ),
    (lambda m: m.generate(["he"], beem=4), "did you mean beam"),
    (lambda m: m.generate(["he"], beam="4"), "beam: expected a whole number, got '4'"),
    (lambda m: m.generate(["he"], top_p=2.0), "top_p must be above 0 and at most 1"),
    (lambda m: m.generate(["he"], best=2, top_k=5), "best = 2 is of a search"),
    (lambda m: m.generate(["he"], num_beams=4, do_sample=True), "beam = 4 is of a search"),
    (lambda m: m.generate(["he"], length_penalty=2.0, seed=1), "length_penalty = 2.0 is of a se"),
    (lambda m: m.configured(top_k=5).generate(["he"], beam=4), "beam = 4 is of a search"),
    (lambda m: m.generate({"text": ["he"]}), "generate takes a list of texts; got dict"),
    (lambda m: m.generate(["he"], beam=3, num_return_sequences=2), "generate_answers returns all"),
    (lambda m: m.generate(["he"], prefix=3), "prefix: expected one text, a str; got int"),
    (
        lambda m: list(m.configured(seed=1).stream("he", do_sample=False, num_return_sequences=2)),
        "leave out beam and best",
    ),
    (lambda m: list(m.stream(["he"])), "stream: expected one text, a str; got list"),
    (lambda m: m.attention(["he"]), "attention: expected one text"),
    (lambda m: m.score("he"), r"list of pairs \(text, answer\); got 'he'"),
    (lambda m: m.score([("he", "x", "y")]), "list of pairs"),
    (lambda m: m.score([5]), r"list of pairs \(text, answer\); got 5"),
    (lambda m: m.score(5), r"list of pairs \(text, answer\); got 5"),
    (lambda m: m.evaluate([("he", "h")], "labels"), 'metric = "labels" is for models of labels'),
    (lambda m: m.evaluate([("he", "h")], "blue"), "metric = 'blue' is not known"),
    (lambda m: m.evaluate([("he", "h")], max_tokens=0), "max_tokens must be at least 1"),
    (lambda m: m.evaluate([("he", "h")], max_tokens=-1), "max_tokens must be at least 1, got -1"),
    (lambda m: m.generate(["he"], temperature=0.0), "temperature must be above 0; greedy"),
    (lambda m: m.score([("he", "l" * 30)]), "an answer of 30 tokens, more than the"),
    (lambda m: m.score([("h" * 30, "l")]), "30 tokens, more than the"),
]


def test_what_training_never_saw_is_named_by_every_method(
    trained: GenerationTask, caplog: pytest.LogCaptureFixture
) -> None:
    trained.score([("hello", "he"), ("hallo", "he"), ("hillo", "he")])
    trained.attention("hallo", "he")
    assert caplog.messages == [f"not seen in training: {new}" for new in ("'a' 'i'", "'a'")]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_use_is_answered_in_words(
    trained: GenerationTask, call: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        call(trained)


def test_a_notebook_shows_a_model_as_a_table(trained: GenerationTask) -> None:
    table = trained._repr_html_()
    parameters = sum(parameter.data.size for parameter in trained.model.parameters())
    assert f"<th>parameters</th><td>{parameters:,}</td>" in table
    assert trained.about in table


def test_what_is_never_generated_has_no_probability_and_begins_no_answer(
    trained: GenerationTask,
) -> None:
    letter, other = trained.target.encode("he")
    config = replace(trained.model.config, end_token_ids=(letter,), suppress_tokens=(other,))
    model: Any = type(trained.model)(config)
    model.load_state_dict(trained.model.state_dict())
    task = replace(trained, model=model.eval())
    ids = task.source.encode("there")
    ends = [task.model.config.eos_token_id, letter]
    before = max(trained.token_scores([(ids, [end])])[0].log_p[0] for end in ends)
    assert task.token_scores([(ids, [])])[0].log_p[0] == pytest.approx(before, abs=1e-5)
    pairs = [("there", "h"), ("there", "e")]
    assert task.score(pairs) == [-np.inf, -np.inf]
    for never in "he":
        with pytest.raises(UsageError, match="holds a token that the model never generates"):
            replace(task, prefix=never)


def test_several_answers_are_drawn_for_each_text(trained: GenerationTask) -> None:
    texts = [text for text in TEXTS if text]
    drawn = trained.generate_answers(texts, temperature=3.0, seed=5, samples=4)
    one = trained.generate_answers(texts, temperature=3.0, seed=5)
    assert [some[0].text for some in drawn] == [some[0].text for some in one]
    for text, some in zip(texts, drawn, strict=True):
        assert len(some) == 4
        assert len({answer.text for answer in some}) > 1, text
    theirs = {"do_sample": True, "temperature": 3.0, "seed": 5, "num_return_sequences": 4}
    assert trained.generate_answers(texts, **theirs) == drawn
    sampling = trained.configured(temperature=3.0, seed=5)
    assert sampling.generate_answers(texts, num_return_sequences=4) == drawn
    for i, text in enumerate(texts):
        (alone,) = trained.generate_answers([text], [i], temperature=3.0, seed=5, samples=4)
        assert [answer.tokens for answer in alone] == [answer.tokens for answer in drawn[i]]


def test_answers_that_do_not_end_are_counted(
    trained: GenerationTask, caplog: pytest.LogCaptureFixture
) -> None:
    """A decoder alone continues a text, which needs no end."""
    endless: Any = type(trained.model)(trained.model.config)
    endless.load_state_dict(trained.model.state_dict())
    ending = replace(trained, model=endless.eval())
    endless.output.bias.data[2] += 99
    ending.generate(["he", "hello"])
    list(ending.stream("he", max_length=4))
    assert not caplog.messages
    endless.output.bias.data[2] -= 999
    endless.output.bias.data[5] += 999
    expected = "answers cut at the longest length, before their end: "
    for count, generate in (
        (2, lambda: ending.generate(["he", "hello"])),
        (2, lambda: ending.generate(["he", "hello"], temperature=1.0)),
        (1, lambda: list(ending.stream("he", max_length=4))),
    ):
        caplog.clear()
        generate()
        found = [message[: len(expected) + 1] for message in caplog.messages]
        assert found == ([f"{expected}{count}"] if trained.kind == "answer" else [])
