"""Texts continued: searched, drawn, streamed and read."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import pellucid
from pellucid import ops
from pellucid.apps.cli.answers import described
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import Constraints, SampleConfig, SearchConfig
from pellucid.models import CausalLM, CausalLMConfig
from pellucid.tasks import CausalLMTask
from pellucid.tasks.generation import Opening

TEXTS = ["안녕 🙂", "abc", "", "가나다라마바사", "x"]


@pytest.fixture(scope="module")
def trained() -> CausalLMTask:
    tokenizer = train_tokenizer(["안녕하세요 🙂 abc"], "bpe", 270)
    config = CausalLMConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=12,
        num_attention_heads=3,
        ffn_dim=17,
        num_hidden_layers=2,
        max_position_embeddings=61,
    )
    model = CausalLM(config, seed=3).eval()
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        drawn = noise.standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * drawn
    return CausalLMTask(model, tokenizer, tokenizer, SearchConfig(max_length=19))


def greedily(trained: CausalLMTask, text: str, most: int) -> list[int]:
    """The continuation, found by running the whole text anew for every token."""
    generated = trained.prompt_ids(trained.source.encode(text))
    start = len(generated)
    while len(generated) - start < most:
        token = int(trained.model(Packed.of([generated]))[-1].argmax())
        if token == trained.model.config.eos_token_id:
            break
        generated.append(token)
    return generated[start:]


@pytest.mark.parametrize("begins", [True, False])
def test_a_text_is_continued_by_what_the_model_holds_likeliest(
    trained: CausalLMTask, begins: bool
) -> None:
    tokenizer = copy(trained.source)
    tokenizer.begins = begins
    speaking = replace(trained, source=tokenizer)
    for text, (answer, *_) in zip(TEXTS, speaking.generate_answers(TEXTS), strict=True):
        if not text and not begins:
            assert answer.text == ""
            continue
        assert list(answer.tokens) == greedily(speaking, text, 19)
        assert answer.text.startswith(text)
        assert answer.text == speaking.source.decode(
            [*speaking.source.encode(text), *answer.tokens]
        )


def test_a_stream_ends_as_the_greedy_answer(trained: CausalLMTask) -> None:
    for text, answer in zip(TEXTS, trained.generate(TEXTS), strict=True):
        assert "".join(trained.stream(text)) == answer


def test_a_draw_is_keyed_by_its_number_not_by_the_batch(trained: CausalLMTask) -> None:
    drawing = replace(trained, sampling=SampleConfig(temperature=2.0, max_length=19, seed=5))
    answers = drawing.generate_answers(TEXTS, numbers=[7, 1, 2, 9, 4])
    for text, number, some in zip(TEXTS, (7, 1, 2, 9, 4), answers, strict=True):
        assert drawing.generate_answers([text], [number])[0][0].tokens == some[0].tokens
        assert "".join(drawing.stream(text, number)) == some[0].text


def test_teacher_forcing_gives_the_score_that_search_gave(trained: CausalLMTask) -> None:
    wide = replace(trained, search=SearchConfig(beam=3, best=3, max_length=11), prefix="ab")
    for answers, text in zip(wide.generate_answers(TEXTS), TEXTS, strict=True):
        source = trained.source.encode(text)
        for answer in answers if source else ():
            scores = trained.token_scores([(source, answer.tokens)])[0]
            generated = scores.log_p[: len(answer.tokens) + answer.finished]
            assert float(generated.sum()) == pytest.approx(answer.log_p, abs=1e-3)
            assert scores.weights.shape == (len(answer.tokens) + 1, len(source))
            assert (scores.weights > 0).all()
            assert (scores.weights.sum(axis=1) < 1).all()
            assert len(scores.alignment) == len(answer.tokens)
            assert answer.text.startswith(f"{text}ab")


def test_scores_are_of_the_tokens_after_the_text(trained: CausalLMTask) -> None:
    scores = trained.token_scores([([7, 8], [9])])[0]
    log_p, _ = ops.log_softmax(trained.model(Packed.of([[1, 7, 8, 9]])))
    np.testing.assert_allclose(scores.log_p, [log_p[2, 9], log_p[3, 2]], rtol=1e-6)


def test_an_answer_cut_off_is_as_likely_drawn_as_searched_for(trained: CausalLMTask) -> None:
    short = replace(trained, search=SearchConfig(max_length=2))
    drawing = replace(short, sampling=SampleConfig(top_k=1, max_length=2))
    ((searched,),), ((drawn,),) = short.generate_answers(["abc"]), drawing.generate_answers(["abc"])
    assert (searched.tokens, searched.finished) == (drawn.tokens, False)
    assert searched.log_p == pytest.approx(drawn.log_p, abs=1e-3)


def test_rules_hold_in_a_continuation(trained: CausalLMTask) -> None:
    rules = Constraints(no_repeat_ngram=1)
    once = replace(trained, search=SearchConfig(max_length=19, constraints=rules))
    (answers,) = once.generate_answers(["abc"])
    assert len(set(answers[0].tokens)) == len(answers[0].tokens)


def test_the_longest_text_has_room_for_one_token_more(trained: CausalLMTask) -> None:
    text = "x" * trained.max_source_length
    assert len(trained.source.encode(text)) == trained.max_source_length == 59
    long, short = trained.generate_answers([text, "abc"])
    assert len(long[0].tokens) <= 1
    assert short[0].tokens == trained.generate_answers(["abc"])[0][0].tokens
    with pytest.raises(UserError, match="62 tokens, more than the 59"):
        trained.generate_answers([text + "xxx"])


def test_a_text_is_drawn_from_nothing_as_likely_as_it_is_scored(trained: CausalLMTask) -> None:
    short = replace(trained, search=SearchConfig(max_length=5))
    answers = short.generate_answers(["", "abc", ""], temperature=1.0, seed=2, samples=3)
    assert len({a.text for some in (answers[0], answers[2]) for a in some}) > 2
    for answer in answers[0]:
        (scores,) = trained.token_scores([([], answer.tokens)])
        count = len(answer.tokens) + answer.finished
        assert answer.log_p == pytest.approx(float(scores.log_p[:count].sum()), abs=1e-4)
        assert scores.alignment == []
    greedy = greedily(trained, "", 5)
    assert short.generate([""]) == [trained.target.decode(greedy)]
    assert "".join(short.stream("")) == trained.target.decode(greedy)
    for seed in (1, 2):
        drawn = short.generate([""], temperature=1.0, seed=seed)[0]
        assert "".join(short.stream("", temperature=1.0, seed=seed)) == drawn
    silent = copy(trained.source)
    silent.begins = False  # nothing to begin with
    assert replace(short, source=silent).generate([""]) == [""]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[CausalLMTask, list[str]]:
    """A model of pieces that knows sixteen sentences, and these."""
    who = ["the cat", "the other cat", "another child", "no one there"]
    does = ["reads there", "is reading", "sleeps then", "eats the rest"]
    texts, folder = [" ".join(both) for both in product(who, does)], tmp_path_factory.mktemp("gpt")
    (folder / "texts.txt").write_text("\n".join(texts))
    schedule = {"lr": 5e-3, "warmup": 20}
    task = pellucid.train(
        "gpt-ko", train=folder / "texts.txt", run=folder / "run", steps=250, data={"held_out": 0},
        model={"d_model": 32, "ffn_dim": 64, "num_attention_heads": 2, "dropout": 0.0},
        training={"minutes": None, "validate_every": 250, "schedule": schedule},
        tokenizer={"kind": "bpe", "vocab_size": 330},
    )  # fmt: skip
    return task, texts


def test_every_beginning_of_a_sentence_is_continued_to_a_sentence(
    learnt: tuple[CausalLMTask, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, texts = learnt
    begun = [text[:end] for text in texts for end in range(1, len(text) + 1)]
    answers = [answers[0] for answers in task.generate_answers(begun)]
    for text, answer in zip(begun, answers, strict=True):
        assert answer.text.startswith(text)
        assert answer.text in texts, (text, answer)
    for text, answer in list(zip(begun, answers, strict=True))[::7]:
        assert "".join(task.stream(text)) == answer.text
        (drawn,) = task.generate([text], temperature=1.5, seed=3)
        assert drawn.startswith(text)
        assert task.generate([text], beam=3)[0] in texts
        (found,) = described(task, [text], [[answer]])
        assert sum(found["answers"][0]["token_log_p"]) == pytest.approx(answer.log_p, abs=1e-3)
    own = Opening  # the naive form: a prompt's own tokens, as they are
    monkeypatch.setattr(
        CausalLMTask, "opening", lambda self, text: own(self.source.encode(text), None, text)
    )
    naive = task.generate(begun)
    assert sum(text in texts for text in naive) < len(begun) / 3


def test_a_prefix_of_a_continuation_is_text_behind_its_text(
    learnt: tuple[CausalLMTask, list[str]],
) -> None:
    task, texts = learnt
    for text in texts[::5]:
        for at in range(0, len(text), 3):
            for end in range(at + 1, len(text) + 1, 5):
                (found,) = task.generate([text[:at]], prefix=text[at:end])
                assert found == task.generate([text[:end]])[0]


@pytest.mark.parametrize(
    ("text", "read", "again", "before"),
    [
        ("the ca", ["the"], 3, "the ca"),
        ("the cat ", ["the", " cat"], 1, "the cat "),
        ("th", [], 2, "th"),
        ("", [], 0, ""),
        ("the zoo", ["the", " ", "z", "o", "o"], 0, "the zoo"),
    ],
)
def test_what_a_token_could_reach_beyond_is_not_read(
    learnt: tuple[CausalLMTask, list[str]], text: str, read: list[str], again: int, before: str
) -> None:
    task = learnt[0]
    opening = task.opening(text)
    assert task.source.tokens(opening.source) == read
    assert (opening.again, opening.text) == (again, before)
    assert (opening.beginning is None) == (again == 0)


@pytest.mark.parametrize("normalise", [(), ("nfd",)])
@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_no_answer_changes_its_text(kind: str, normalise: tuple[str, ...]) -> None:
    texts = ["안녕하세요 반가워요 고마워요", "안녕 각하 é", "the there other"]
    tokenizer = train_tokenizer(texts, kind, 300 if kind == "bpe" else None, normalise)
    shape = {"d_model": 12, "num_attention_heads": 3, "ffn_dim": 17, "num_hidden_layers": 1}
    model = CausalLM(CausalLMConfig(vocab_size=tokenizer.vocab_size, **shape), seed=5).eval()
    for parameter in model.parameters():
        noise = np.random.default_rng(2).standard_normal(parameter.shape).astype(np.float32)
        parameter.data = parameter.data + np.float32(0.3) * noise
    for begins in (True, False):
        own = copy(tokenizer)
        own.begins = begins
        task = CausalLMTask(model, own, own, SearchConfig(max_length=5))
        given = [text[:end] for text in texts for end in range(1, len(text) + 1)]
        given = [text for text in given if tokenizer.knows(text)]
        for text, (answer, *_) in zip(given, task.generate_answers(given), strict=True):
            unknown = tokenizer.unknown([text])
            single = not begins and len(tokenizer.encode(text)) < 2
            assert unknown or single or answer.text.startswith(text), (text, answer)
            assert not unknown or answer.text.startswith(tokenizer.decode(tokenizer.encode(text)))
