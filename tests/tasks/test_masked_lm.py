"""Masks filled: where they stand among the tokens, and what is held likely there."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import ops
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import Tokenizer, train_tokenizer
from pellucid.models import MaskedLM, MaskedLMConfig
from pellucid.tasks import MaskedLMTask

CORPUS = ["오늘은 날씨가 좋다", "나는 너를 정말 좋아해!", "the cat sat on the mat", "￼ ￼￼!?"] * 5


def build(kind: str, *normalise: str) -> MaskedLMTask:
    tokenizer = train_tokenizer(CORPUS, kind, 400, normalise)
    config = MaskedLMConfig(
        vocab_size=tokenizer.vocab_size + 1,
        d_model=12,
        num_attention_heads=3,
        ffn_dim=17,
        num_hidden_layers=1,
        max_position_embeddings=23,
    )
    return MaskedLMTask.of(MaskedLM(config, seed=3).eval(), [tokenizer])


@pytest.fixture(scope="module")
def trained() -> MaskedLMTask:
    return build("bpe")


@pytest.mark.parametrize("normalise", [(), ("nfc", "lowercase", "whitespace", "punctuation")])
@pytest.mark.parametrize(
    "text",
    [
        "[MASK]",
        "오늘은 [MASK] 좋다",
        "오늘은   [MASK] 좋다",
        "[MASK] 날씨가 [MASK]",
        "나는[MASK] 좋아해",
        "[MASK][MASK] mat",
        "cat [MASK]!",
        "￼ [MASK] ￼",
    ],
)
def test_a_mask_is_one_token_among_those_of_the_rest(text: str, normalise: tuple[str, ...]) -> None:
    trained = build("bpe", *normalise)
    assert isinstance(trained.source, Tokenizer)
    mask = trained.model.config.mask_id
    ids = trained.token_ids(text)
    assert ids.count(mask) == text.count("[MASK]")
    # what stands between the masks is what the whole text without them would be cut into
    pieces: list[list[int]] = [[]]
    for token in ids:
        if token == mask:
            pieces.append([])
        else:
            pieces[-1].append(token)
    written = "|".join(trained.source.decode(piece) for piece in pieces)
    expected = trained.source.decode(
        trained.source.encode("|".join(p.rstrip() for p in text.split("[MASK]")[:-1]))
    )
    last = text.split("[MASK]")[-1]
    assert written.replace(" ", "") == f"{expected}|{last}".replace(" ", "")
    if last.startswith(" ") and pieces[-1]:  # the space before a word is the word's
        assert trained.source.tokens(pieces[-1])[0].startswith(" ")


def test_the_space_before_a_mask_belongs_to_it(trained: MaskedLMTask) -> None:
    left, right = trained.source.encode_all(["오늘은", " 좋다"])
    assert trained.token_ids("오늘은 [MASK] 좋다") == [*left, trained.model.config.mask_id, *right]


def test_a_character_that_is_masked_leaves_the_others_alone() -> None:
    trained = build("char")
    assert isinstance(trained.source, Tokenizer)
    left, right = trained.source.encode("the c"), trained.source.encode("t sat")
    assert trained.token_ids("the c[MASK]t sat") == [*left, trained.model.config.mask_id, *right]


def test_guesses_are_the_models_likeliest_tokens(trained: MaskedLMTask) -> None:
    text = "오늘은 [MASK] 좋다 [MASK]"
    blanks = trained.guesses(text, best=7)
    assert len(blanks) == 2
    ids = trained.token_ids(text)
    places = [i for i, token in enumerate(ids) if token == trained.model.config.mask_id]
    rows = trained.model(Packed.of([[1, *ids, 2]]))
    p = np.exp(ops.log_softmax(rows)[0])
    for blank, place in zip(blanks, places, strict=True):
        row = p[place + 1]
        assert len(blank) == 7
        np.testing.assert_allclose([g.p for g in blank], np.sort(row)[::-1][:7], rtol=1e-6)
        assert blank[0].token == trained.source.tokens([int(row.argmax())])[0]


def test_a_guess_says_the_whole_text(trained: MaskedLMTask) -> None:
    with pytest.raises(UserError, match="best must be at least 1"):
        trained.guesses("오늘은 [MASK]", -1)
    first, second = trained.guesses("오늘은 [MASK] 좋다 [MASK]", best=400)
    by_token = {g.token: g.text for g in first}
    assert by_token[" 날씨가"] == "오늘은 날씨가 좋다 [MASK]"
    assert by_token["."] == "오늘은. 좋다 [MASK]"
    assert {g.token: g.text for g in second}[" 좋아해"] == "오늘은 [MASK] 좋다 좋아해"
    assert sum(g.p for g in first) == pytest.approx(1, abs=1e-5)


def test_vectors_of_texts(trained: MaskedLMTask) -> None:
    vectors = trained.embed(["the cat", "나는 너를"])
    alone = trained.model.embeddings(Packed.of([[1, *trained.token_ids("나는 너를"), 2]]))
    np.testing.assert_allclose(vectors[1], alone[0], rtol=0, atol=1e-6)


def test_vectors_are_in_the_order_of_the_texts(
    trained: MaskedLMTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["나는 너를 좋아해", "the", "the cat", "a"]
    alone = np.concatenate([trained.embed([text]) for text in texts])
    np.testing.assert_allclose(trained.embed(iter(texts)), alone, rtol=0, atol=1e-6)
    monkeypatch.setattr("pellucid.tasks.task.TEXTS_AT_ONCE", 2)
    np.testing.assert_allclose(trained.embed(texts), alone, rtol=0, atol=1e-6)
    assert trained.embed([]).shape == (0, trained.model.config.d_model)
    with pytest.raises(UserError, match=r"write embed\(\['the cat'\]\)"):
        trained.embed("the cat")


def test_attention_of_an_encoder_has_its_own_tokens(trained: MaskedLMTask) -> None:
    seen = trained.attention("a [MASK]")
    first = seen["encoder.layers.0.self_attn"]
    assert (
        first.queries == first.keys == trained.source.tokens([1, *trained.token_ids("a [MASK]"), 2])
    )
    assert first.weights.shape[1:] == (len(first.queries), len(first.keys))
    with pytest.raises(UserError, match="writes no answer"):
        trained.attention("a", "b")


def test_what_cannot_be_filled_is_said(trained: MaskedLMTask) -> None:
    with pytest.raises(UserError, match=r"no \[MASK\] to fill"):
        trained.guesses("the cat")
    with pytest.raises(UserError, match="more than the 21 that this model can read"):
        trained.guesses("x" * 30 + "[MASK]")


def test_what_training_never_saw_is_named(caplog: pytest.LogCaptureFixture) -> None:
    trained = build("char")
    trained.guesses("the cat [MASK] on the mat")
    trained.embed(["the cat", "the mat"])
    assert not caplog.messages
    trained.guesses("the cät [MASK] on the mat")
    trained.embed(["the cat", "the möt"])
    assert caplog.messages == [f"not seen in training: {letter!r}" for letter in "äö"]
