"""Answers, streamed and read."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.core.errors import UsageError, UserError
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import Constraints, SampleConfig, SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import load_model, save_model

SHIPPED = Path(pellucid.__file__).parent / "trained"
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


@pytest.mark.parametrize(
    ("kind", "size", "normalise"),
    [
        ("bpe", 290, ()), ("bpe", 300, ("nfd",)), ("char", None, ()), ("char", None, ("nfd",)),
        ("word", None, ()), ("char", None, ("lowercase", "whitespace")),
    ],
)  # fmt: skip
def test_every_beginning_of_an_answer_leads_to_one_as_likely(
    kind: str, size: int | None, normalise: tuple[str, ...]
) -> None:
    texts = ["안녕하세요 반가워요 고마워요", "안녕 각하 é", "the there other"]
    tokenizer = train_tokenizer(texts, kind, size, normalise)
    v = tokenizer.vocab_size
    config = Seq2SeqConfig(
        v, v, d_model=12, num_attention_heads=3, ffn_dim=17, encoder_layers=1, decoder_layers=2
    )
    model = Seq2Seq(config, seed=5).eval()
    noise = np.random.default_rng(2)
    for parameter in model.parameters():
        drawn = noise.standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * drawn
    likely = [i for text in texts for i in tokenizer.encode(text)]
    model.output.bias.data[likely] += 6.0
    task = Seq2SeqTask(model, tokenizer, tokenizer, SearchConfig(max_length=9))
    tried = 0
    for text in texts:
        (free,) = task.generate_answers([text])[0]
        for end in range(1, len(free.text) + 1):
            prefix = free.text[:end]
            (found,) = task.generate_answers([text], prefix=prefix)[0]
            assert found.text.startswith(prefix), (free.text, prefix, found.text)
            assert found.log_p >= free.log_p - 1e-4, (free, prefix, found)
            for more in ({"beam": 3}, {"temperature": 1.5, "seed": end}):
                ((other, *_),) = task.generate_answers([text], prefix=prefix, **more)
                assert other.text.startswith(prefix)
            assert "".join(task.stream(text, prefix=prefix)) == found.text
            tried += 1
    assert tried > 20


def test_a_prefix_that_ends_inside_a_token_of_the_shipped_chatbot() -> None:
    trained = replace(load_model(SHIPPED / "chat-ko"), arithmetic="float32")
    tried = 0
    texts = (
        "안녕 배고파 심심해 힘들어 사랑해 졸려 우울해 주말이다 축하해 뭐해 고마워 사과해 잘자 운동"
    )
    for text in (*texts.split(), "커피"):
        free = trained.generate_answers([text])[0][0]
        for end in range(1, len(free.text) + 1):
            (found,) = trained.generate_answers([text], prefix=free.text[:end])[0]
            assert (found.text, found.log_p) == (free.text, pytest.approx(free.log_p, abs=1e-4))
            tried += 1
    assert tried >= 144


def test_a_prefix_that_the_model_would_not_begin_with_is_written_all_the_same(
    trained: Seq2SeqTask,
) -> None:
    tight = replace(trained, search=SearchConfig(max_length=5))
    for prefix in ("가a", "\U0001f642a", "ab c"):  # as many tokens as there may be, or one fewer
        for more in ({}, {"beam": 4}, {"temperature": 9.0, "seed": 3}):
            assert tight.generate(["abc"], prefix=prefix, **more)[0].startswith(prefix)


def test_a_syllable_is_no_beginning_of_another_for_letters_that_are_composed() -> None:
    tokenizer = train_tokenizer(["가각간 é e"], "char", None, ("nfd",))
    v = tokenizer.vocab_size
    config = Seq2SeqConfig(
        v, v, d_model=12, num_attention_heads=3, ffn_dim=7, encoder_layers=1, decoder_layers=1
    )
    model = Seq2Seq(config).eval()
    end_letter, accent = tokenizer.encode("각")[-1], tokenizer.encode("é")[-1]
    model.output.bias.data[[end_letter, accent]] += 40.0  # it wants nothing but these
    task = Seq2SeqTask(model, tokenizer, tokenizer, SearchConfig(max_length=6))
    for prefix in ("가", "e", "e가", "\u1100\u1161"):
        answer = task.generate(["가"], prefix=prefix)[0]
        assert answer.startswith(unicodedata.normalize("NFC", prefix))
    assert task.generate(["가"], prefix="각")[0].startswith("각")


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


def with_other_weights(trained: Seq2SeqTask, seed: int) -> Seq2SeqTask:
    model = Seq2Seq(trained.model.config, seed=seed).eval()
    noise = np.random.default_rng(seed)
    for parameter in model.parameters():
        drawn = noise.standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * drawn
    return replace(trained, model=model)


def test_an_ensemble_scores_by_the_mean_probability_of_each_token(trained: Seq2SeqTask) -> None:
    first, other = (with_other_weights(trained, seed) for seed in (7, 11))
    letters = [trained.target.encode(letter)[0] for letter in "abc "]
    for task in (first, other):  # answers are texts, and end
        task.model.output.bias.data[letters] += 5
        task.model.output.bias.data[2] += 4
    both = first.ensemble(other)
    pairs = [(trained.source.encode(a), trained.target.encode(b)) for a, b in [("abc", "안녕")]]
    ((own,), (others,)) = (task.token_scores(pairs) for task in (first, other))
    (together,) = both.token_scores(pairs)
    mean = np.log((np.exp(own.log_p) + np.exp(others.log_p)) / 2)
    np.testing.assert_allclose(together.log_p, mean, rtol=1e-5)
    np.testing.assert_array_equal(together.weights, own.weights)
    once = Constraints(no_repeat_ngram=1)
    wide = replace(both, search=SearchConfig(beam=3, max_length=11, constraints=once))
    texts = list(filter(None, TEXTS))
    answers = [answer for (answer,) in wide.generate_answers(texts)]
    assert all(answer.tokens and answer.finished for answer in answers)
    scored = wide.score([(text, answer.text) for text, answer in zip(texts, answers, strict=True)])
    np.testing.assert_allclose(scored, [answer.log_p for answer in answers], atol=1e-3)


def test_the_loss_of_an_ensemble_is_that_of_its_mean(trained: Seq2SeqTask) -> None:
    both = trained.ensemble(with_other_weights(trained, 11), with_other_weights(trained, 13))
    pairs = [TextPair("abc", ("안녕",)), TextPair("x", ("🙂 abc",)), TextPair("하세", ("a",))]
    scores = both.evaluate(pairs, max_tokens=40, batch_tokens=64)
    targets = [trained.target.encode(pair.target) for pair in pairs]
    log_p = both.score([(pair.source, pair.target) for pair in pairs])
    tokens = sum(len(ids) + 1 for ids in targets)
    assert scores.loss == pytest.approx(-sum(log_p) / tokens, rel=1e-5)


def test_an_ensemble_refuses_other_tokens_and_other_kinds(trained: Seq2SeqTask) -> None:
    other = replace(trained, target=train_tokenizer(["안녕 abc"], "bpe", 268))
    with pytest.raises(UsageError, match="model 2 has other tokens than the first"):
        trained.ensemble(other)
    with pytest.raises(UsageError, match="model 3 is pellucid-classifier; an ensemble is of"):
        trained.ensemble(trained, pellucid.load("topics-ko"))
    with pytest.raises(UsageError, match="model 2 is list"):
        trained.ensemble([trained])  # type: ignore[arg-type]


def test_an_ensemble_is_not_saved_as_its_first_model(trained: Seq2SeqTask, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="save each in a folder of its own"):
        save_model(tmp_path / "both", trained.ensemble(trained), "card")
    assert not list(tmp_path.iterdir())


def test_the_attention_of_an_ensemble_is_that_of_its_first_model(trained: Seq2SeqTask) -> None:
    deeper = Seq2Seq(replace(trained.model.config, decoder_layers=5), seed=11).eval()
    both = trained.ensemble(replace(trained, model=deeper))
    for answer in (None, "안녕"):
        own, seen = trained.attention("abc", "안녕"), both.attention("abc", answer)
        assert own.keys() == seen.keys()
    for name, layer in own.items():
        np.testing.assert_array_equal(seen[name].weights, layer.weights)
    pair = (trained.source.encode("abc"), trained.target.encode("안녕"))
    (alone,), (together,) = trained.token_scores([pair]), both.token_scores([pair])
    np.testing.assert_array_equal(together.weights, alone.weights)


def test_every_model_of_an_ensemble_keeps_its_arithmetic_and_its_room(trained: Seq2SeqTask) -> None:
    short = Seq2Seq(replace(trained.model.config, max_position_embeddings=9), seed=11).eval()
    both = trained.ensemble(replace(trained, model=short, arithmetic="int8"))
    assert [task.arithmetic for task in (both, *both.others)] == ["float32", "int8"]
    assert both.max_source_length == 9
    pairs = [TextPair("abc", ("안녕",)), TextPair("xyz xyz xyz", ("a",))]
    assert both.evaluate(pairs, max_tokens=40, batch_tokens=64).pairs == 1  # the other is too long


def test_a_prefix_begins_the_answer_to_all_pieces(trained: Seq2SeqTask) -> None:
    task, text = replace(trained, search=SearchConfig(max_length=13)), "\nabc. 안녕!\n\n가나다"
    assert len(task.passage(text).pieces) == 3
    (free,) = task.generate([text])
    several = ("ab. 하", "ab. 세요\n", "ab. 세요\n\nb", "ab\nb. 하", "ab. 하. bb. c")
    for prefix in ("a", "녕", "\na", *several):
        for more in ({}, {"beam": 3}, {"temperature": 1.5, "seed": 2}):
            (found,) = task.generate([text], prefix=prefix, **more)
            assert found.startswith("\n" + prefix.removeprefix("\n")), (prefix, found)
            if more.get("beam", 1) == 1:
                assert "".join(task.stream(text, prefix=prefix, **more)) == found
        if prefix not in several:  # the answers to the other pieces are those without a prefix
            assert found.endswith(task.generate([text], **more)[0].rpartition("\n")[2])
    alone = task.passage("가나다").pieces[0]
    assert free.endswith("\n\n" + task.generate([alone])[0])
    with pytest.raises(UserError, match="prefix has 8 tokens, an answer at most 7"):
        task.generate(["abc"], prefix="xy. x\nz.", max_length=7)  # one piece alone


def test_a_prefix_of_several_lines_needs_no_token_for_their_ends() -> None:
    tokenizer = train_tokenizer(["ab. "], "char")
    v = tokenizer.vocab_size
    config = Seq2SeqConfig(
        v, v, d_model=12, num_attention_heads=3, ffn_dim=17, encoder_layers=1, decoder_layers=1
    )
    task = Seq2SeqTask(Seq2Seq(config, seed=3).eval(), tokenizer, tokenizer)
    short = task.configured(max_length=5, prefix="ab\nb")
    first, second = short.generate(["a\nb"])[0].split("\n")
    assert first == "ab"
    assert second.startswith("b")
    with pytest.raises(UsageError, match=r"no tokens for: '\\n'"):
        short.generate(["a"])


def test_an_ensemble_refuses_a_tokenizer_that_reads_otherwise(trained: Seq2SeqTask) -> None:
    plain, spaced = (
        train_tokenizer(["a b."], "char", None, steps) for steps in ((), ("punctuation",))
    )
    config = replace(trained.model.config, source_vocab_size=plain.vocab_size)
    model = Seq2Seq(replace(config, target_vocab_size=plain.vocab_size)).eval()
    one, other = (Seq2SeqTask(model, each, each) for each in (plain, spaced))
    assert plain.fingerprint == spaced.fingerprint
    with pytest.raises(UsageError, match="model 2 has other tokens"):
        one.ensemble(other)
