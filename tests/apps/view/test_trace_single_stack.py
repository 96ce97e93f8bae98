"""A decoder alone and an encoder alone: their maps, gradients and guesses, drawn right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import bert, gpt, labelling

import pellucid
from pellucid import nn, ops
from pellucid.apps import view
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.nn import Recorder

FIXTURES = Path(__file__).parents[2] / "fixtures" / "huggingface"


def check_maps(record: view.Record, causal: bool, tokens: int) -> None:
    """Queries, keys and scale give the probabilities again; there are gradients."""
    assert [m.layer for m in record.maps] == [1, 2]
    for m in record.maps:
        assert (m.kind == "decoder") == causal
        assert m.probabilities.shape == (3, tokens, tokens)
        _, saved = ops.attention(m.q, m.k, m.v, scale=m.scale, causal=causal)
        np.testing.assert_allclose(saved.probabilities, m.probabilities, atol=1e-12)
        assert m.doutputs.any()


def test_a_decoder_alone_is_drawn() -> None:
    trained = gpt()
    record = view.attention(trained, "가나", "다a").record
    assert record.kinds == ("decoder",)
    assert [label.text for label in record.target] == ["<s>", "가", "나", "다", "a"]
    check_maps(record, causal=True, tokens=5)
    assert [(step.label.text, step.place) for step in record.steps] == [
        ("다", 2),
        ("a", 3),
        ("</s>", 4),
    ]
    ids = trained.source.encode("가나다a")
    log_p, _ = ops.log_softmax(trained.model(Packed.of([[1, *ids]])))
    expected = -log_p[[2, 3, 4], [*ids[2:], 2]].sum()
    assert record.loss == pytest.approx(expected)
    assert record.loss == pytest.approx(-sum(np.log(s.probability) for s in record.steps))


def test_an_unknown_character_of_a_given_continuation_is_named() -> None:
    record = view.attention(gpt(), "가나", "다ж").record
    assert record.target[-1].text == "ж"
    assert [note.en for note in record.notes] == ["Never seen in training: ж"]


def test_without_an_output_it_is_the_continuation_that_generate_gives() -> None:
    trained = gpt()
    record = view.attention(trained, "가나").record
    (answer, *_), *_ = trained.generate_answers(["가나"])
    generated = "".join(label.text for label in record.target[3:]).replace("␣", " ")
    assert f"가나{generated}" == answer.text
    assert record.tree[0].label.text == "나"
    assert any(node.rank == 1 for node in record.tree)


def test_the_loss_is_of_the_continuation_generated() -> None:
    for kind, finished in (("char", True), ("bpe", False)):
        trained = gpt(kind)
        record = view.attention(trained, "가나").record
        ((answer, *_),) = trained.generate_answers(["가나"])
        assert answer.finished == finished
        assert len(record.steps) == len(answer.tokens) + finished
        assert record.loss == pytest.approx(-answer.log_p)


def test_the_gradient_is_the_losss() -> None:
    """Moving one value moves the loss by doutputs · w: checked by a small step on V's bias."""
    trained = gpt()
    m = view.attention(trained, "가나", "다a").record.maps[-1]
    bias = dict(trained.model.named_parameters())["decoder.layers.1.self_attn.in_proj_bias"]
    losses = []
    for step in (-1e-5, 1e-5):
        bias.data[24] += step  # the first channel of head 1's values
        losses.append(view.attention(trained, "가나", "다a").record.loss)
        bias.data[24] -= step
    slope = (losses[1] - losses[0]) / 2e-5
    assert slope == pytest.approx((m.probabilities[0].sum(1) * m.doutputs[0, :, 0]).sum(), rel=1e-5)


def test_a_bare_decoder_reads_a_pair() -> None:
    record = view.attention(gpt().model, [5, 6], [7]).record
    assert [label.text for label in record.target] == ["5", "6", "<s>", "7"]
    assert [step.place for step in record.steps] == [2, 3]
    assert view.attention(gpt().model, [], [7, 5]).record.maps[0].q.shape[1] == 3


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_an_encoder_alone_is_drawn(kind: str) -> None:
    trained = bert(kind)
    record = view.attention(trained, "a [MASK]c").record
    assert record.kinds == ("encoder",)
    labels = [label.text for label in record.source]
    assert labels[0] == "<s>"
    assert "[MASK]" in labels
    check_maps(record, causal=False, tokens=len(labels))
    (step,) = record.steps
    assert step.place == labels.index("[MASK]")
    ((first, *_),) = trained.guesses("a [MASK]c")
    assert step.probability == pytest.approx(first.p)
    assert record.loss == pytest.approx(-np.log(first.p))
    assert record.title == f"a [MASK]c → {first.text}" or kind == "bpe"


def test_a_given_word_takes_the_masks_place() -> None:
    record = view.attention(bert(), "a[MASK]가", "다").record
    assert record.title == "a[MASK]가 → a다가"
    assert [step.label.text for step in record.steps] == ["다"]
    with pytest.raises(UserError, match=r"the output has 2 tokens, the sentence 1 of \[MASK\]"):
        view.attention(bert(), "a[MASK]가", "다다")


def test_the_label_of_a_text_is_predicted_by_all_of_its_rows() -> None:
    trained = labelling()
    record = view.attention(trained, "a bc").record
    check_maps(record, causal=False, tokens=4)
    ((guesses,),) = trained.labels(["a bc"], best=9)
    (step,) = record.steps
    assert step.place == -1
    names = [c.label.text.replace("␣", " ") for c in step.candidates]
    assert names == [guess.token for guess in guesses]
    assert [c.probability for c in step.candidates] == pytest.approx([g.p for g in guesses])
    assert record.loss == pytest.approx(-np.log(guesses[0].p or 0.0))
    assert record.title == f"a bc → {guesses[0].token}"
    assert [part.role for part in record.parts][-2:] == ["mean", "output"]
    assert record.parts[-1].shape == (("V", 4 + len(guesses)),)
    bare = view.attention(trained.model, trained.source.encode("a bc"), [5]).record
    p = {guess.token: guess.p or 0.0 for guess in guesses}["some word"]
    assert bare.loss == pytest.approx(-np.log(p))


def test_every_token_has_a_label_where_the_model_labels_tokens() -> None:
    trained = labelling("token")
    record = view.attention(trained, "a b", "taxi some word").record
    assert [step.place for step in record.steps] == [0, 1, 2]
    assert record.title == "a b → taxi some word"
    assert record.own == " ".join(guess[0].token for guess in trained.labels(["a b"])[0])


@pytest.mark.parametrize(("labels", "given"), [("text", "som"), ("token", "taxi"), ("text", "")])
def test_an_answer_that_is_no_label_is_refused(labels: Any, given: str) -> None:
    with pytest.raises(UserError, match="pass one label that the model knows"):
        view.attention(labelling(labels), "a b", given)


def test_without_a_mask_every_token_is_predicted_while_it_is_seen() -> None:
    record = view.attention(bert(), "a가").record
    assert [step.place for step in record.steps] == [1, 2]
    assert "Nothing is masked" in record.notes[0].en


def test_an_encoder_that_predicts_nothing_has_maps_and_no_gradient() -> None:
    trained = bert(head=False)
    record = view.attention(trained, "a가").record
    assert record.steps == ()
    assert not record.maps[0].doutputs.any()
    assert "no loss and no gradient" in record.notes[0].en
    with Recorder() as expected:
        trained.model.rows(Packed.of([[1, *trained.token_ids("a가"), 2]]))
    seen = expected.maps["encoder.layers.0.self_attn"].probabilities[0]
    np.testing.assert_allclose(record.maps[0].probabilities, seen)


@pytest.mark.parametrize("half", [gpt, bert])
def test_looking_leaves_no_trace_and_a_page(half: type) -> None:
    trained = half()
    trained.model.train()
    picture = view.attention(trained, "가ж나")
    assert trained.model.training
    assert all(p.grad is None and p.requires_grad for p in trained.model.parameters())
    assert "Never seen in training: ж" in [note.en for note in picture.record.notes]
    assert picture.html().count('self_attn","kind"') == 2
    assert "self-attention, layer 2" in picture.terminal()


@pytest.mark.parametrize(
    ("half", "message"),
    [(gpt, "25 tokens, more than the 21"), (bert, "25 tokens, more than the 21")],
)
def test_what_does_not_fit_is_refused(half: type, message: str) -> None:
    with pytest.raises(UserError, match=message):
        view.attention(half(), "가" * 25)
    with pytest.raises(UserError, match="the sentence is empty"):
        view.attention(half(), "")


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_ids_are_drawn_where_a_checkpoint_has_no_tokenizer(family: str) -> None:
    trained = pellucid.load(FIXTURES / family)
    picture = view.attention(trained, [5, 6, 7])
    assert {"5", "6", "7"} <= {x.text for x in (*picture.record.source, *picture.record.target)}
    assert picture.record.title.startswith("5 6 7")
    assert "self-attention, layer 2" in picture.terminal()
    with pytest.raises(UserError, match=r"has no tokenizer\.json, so texts cannot be read"):
        view.attention(trained, "a")


def test_other_models_are_refused() -> None:
    with pytest.raises(UserError, match="there is no task for a Linear"):
        view.attention(nn.Linear(3, 5, seed=0), [5])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "read", "filled"),
    [
        ("[MASK][MASK] bc", ["[MASK]", "[MASK]", "bc"], 3),
        ("[MASK]bc", ["[MASK]", "bc"], 2),
        ("a [MASK] bc", ["a", "[MASK]", "bc"], 3),
    ],
)
def test_a_mask_is_a_word_of_its_own(text: str, read: list[str], filled: int) -> None:
    task = bert("word")
    record = view.attention(task, text).record
    assert [label.text for label in record.source[1:-1]] == read
    guesses = task.guesses(text, 1)
    assert len(guesses) == read.count("[MASK]")
    assert len(guesses[0][0].text.split()) == filled


@pytest.mark.parametrize(("kind", "title"), [("char", "a[MASK]c"), ("word", "가나다라 [MASK]")])
def test_the_title_of_masked_ids_has_the_masks(kind: str, title: str) -> None:
    task = bert(kind)
    record = view.attention(task, task.token_ids(title)).record
    assert record.title.startswith(f"{title} → ")
