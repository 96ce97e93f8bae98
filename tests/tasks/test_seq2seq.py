"""Answers, streamed and read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import Constraints, SampleConfig, SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask

TEXTS = ["안녕 🙂", "abc", "", "가나다라마바사", "x"]


@pytest.fixture(scope="module")
def trained() -> Seq2SeqTask:
    tokenizer = train_tokenizer(["안녕하세요 🙂 abc"], "bpe", 270)
    v = tokenizer.vocab_size
    config = Seq2SeqConfig(
        v, v, d_model=12, num_attention_heads=3, ffn_dim=17, encoder_layers=1, decoder_layers=2
    )
    model = Seq2Seq(config, seed=3).eval()
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        drawn = noise.standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * drawn
    return Seq2SeqTask(model, tokenizer, tokenizer, SearchConfig(max_length=19))


def test_a_stream_ends_as_the_greedy_answer(trained: Seq2SeqTask) -> None:
    for text, answer in zip(TEXTS, trained.generate(TEXTS), strict=True):
        assert "".join(trained.stream(text)) == answer


def test_a_stream_of_draws_ends_as_the_drawn_answer(trained: Seq2SeqTask) -> None:
    drawing = replace(trained, sampling=SampleConfig(temperature=2.0, max_length=19, seed=5))
    answers = drawing.generate_answers(TEXTS, numbers=[7, 1, 2, 9, 4])
    for text, number, some in zip(TEXTS, (7, 1, 2, 9, 4), answers, strict=True):
        assert "".join(drawing.stream(text, number)) == some[0].text


def test_an_empty_text_has_an_empty_answer_whatever_the_prefix(trained: Seq2SeqTask) -> None:
    prefixed = replace(trained, prefix="ab")
    (empty, *_), (answer, *_) = prefixed.generate_answers(["", "abc"])
    assert (empty.text, answer.text[:2]) == ("", "ab")
    assert list(prefixed.stream("")) == []


def test_a_stream_never_shows_half_a_character(trained: Seq2SeqTask) -> None:
    pushed = replace(trained, prefix="🙂가", search=SearchConfig(max_length=7))
    pieces = list(pushed.stream("abc"))
    assert pieces[0] == "🙂"
    assert "\ufffd" not in "".join(pieces[:2])


def test_teacher_forcing_gives_the_score_that_search_gave(trained: Seq2SeqTask) -> None:
    wide = replace(trained, search=SearchConfig(beam=3, best=3, max_length=11))
    for answers, text in zip(wide.generate_answers(TEXTS), TEXTS, strict=True):
        source = trained.source.encode(text)
        for answer in answers if source else ():
            scores = trained.token_scores([(source, answer.tokens)])[0]
            generated = scores.log_p[: len(answer.tokens) + answer.finished]
            assert float(generated.sum()) == pytest.approx(answer.log_p, abs=1e-3)
            np.testing.assert_allclose(scores.weights.sum(axis=1), 1.0, rtol=1e-5)
            assert len(scores.alignment) == len(answer.tokens)


def test_an_answer_cut_off_is_as_likely_drawn_as_searched_for(trained: Seq2SeqTask) -> None:
    short = replace(trained, search=SearchConfig(max_length=2))
    drawing = replace(short, sampling=SampleConfig(top_k=1, max_length=2))
    ((searched,),), ((drawn,),) = short.generate_answers(["abc"]), drawing.generate_answers(["abc"])
    assert (searched.tokens, searched.finished) == (drawn.tokens, False)
    assert searched.log_p == pytest.approx(drawn.log_p, abs=1e-3)


def test_rules_hold_in_a_stream(trained: Seq2SeqTask) -> None:
    rules = Constraints(no_repeat_ngram=1)
    once = replace(trained, search=SearchConfig(max_length=19, constraints=rules))
    (answers,) = once.generate_answers(["abc"])
    assert len(set(answers[0].tokens)) == len(answers[0].tokens)
    assert "".join(once.stream("abc")) == answers[0].text
