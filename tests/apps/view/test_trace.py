"""What is recorded is what the model did, and looking leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.apps.view.samples import CONFIG, bert, bpe, shake, shaken, speaking

from pellucid import ops
from pellucid.apps import view
from pellucid.apps.view.tokens import Label
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.generation import SearchConfig, search
from pellucid.nn import Recorder

SOURCE, TARGET = [5, 6, 7, 5, 9, 4, 3], [4, 12, 8, 6]


def test_every_layer_of_every_kind_is_there() -> None:
    record = view.attention(shaken(), SOURCE, TARGET).record
    assert record.kinds == ("encoder", "decoder", "cross")
    assert [m.name for m in record.maps] == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.multihead_attn",
    ]
    assert [m.probabilities.shape for m in record.maps[::2]] == [(3, 7, 7), (3, 5, 5), (3, 5, 7)]
    assert [(m.kind == "decoder") for m in record.maps[::2]] == [False, True, False]
    assert [label.text for label in record.target] == ["<s>", "4", "12", "8", "6"]


@pytest.mark.parametrize("scale", ["sqrt_d_k", "none", 0.3, "learned"])
def test_queries_keys_and_scale_give_the_probabilities_again(scale: float) -> None:
    model = shaken(replace(CONFIG, attention_scale=scale), np.float64)
    for m in view.attention(model, SOURCE, TARGET).record.maps:
        _, saved = ops.attention(m.q * m.scale, m.k, m.v, scale=1.0, causal=(m.kind == "decoder"))
        np.testing.assert_allclose(saved.probabilities, m.probabilities, atol=1e-12)


def test_gradients_are_those_of_the_loss() -> None:
    model = shaken(dtype=np.float64)
    record = view.attention(model, SOURCE, TARGET).record
    with Recorder() as recorder:
        loss, backward = model.loss(Batch(Packed.of([SOURCE]), Packed.of([[1, *TARGET, 2]])))
    backward(1.0)
    assert record.loss == pytest.approx(loss.nats)
    for m in record.maps:
        dweights = m.doutputs @ m.v.swapaxes(-1, -2)
        expected = recorder.maps[m.name].dweights
        assert expected is not None
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(dweights, expected[0], atol=1e-12)


def test_steps_add_up_to_the_loss() -> None:
    record = view.attention(shaken(), SOURCE, TARGET).record
    assert [step.label.text for step in record.steps] == ["4", "12", "8", "6", "</s>"]
    assert -sum(np.log(step.probability) for step in record.steps) == pytest.approx(
        record.loss, rel=1e-5
    )
    for step in record.steps:
        likely = [c.probability for c in step.candidates]
        assert likely == sorted(likely, reverse=True)
        assert len(likely) == 10


def test_without_a_target_it_is_the_models_own_answer() -> None:
    model = shaken()
    config = SearchConfig(beam=3, max_length=7)
    record = view.attention(model, SOURCE, search=config).record
    best = search(model, Packed.of([SOURCE]), config)[0][0]
    assert [label.text for label in record.target[1:]] == [str(i) for i in best.tokens]


def test_looking_leaves_no_trace() -> None:
    model = shaken(replace(CONFIG, dropout=0.5))
    model.train()
    model.decoder.eval()
    model.output.weight.requires_grad = False
    first = next(model.parameters())
    first.grad = np.ones_like(first.data)
    modes = [module.training for module in model.modules()]
    one = view.attention(model, SOURCE, TARGET).record
    assert [module.training for module in model.modules()] == modes
    assert not model.output.weight.requires_grad
    assert all(p.requires_grad for p in model.parameters() if p is not model.output.weight)
    assert (first.grad == 1).all()
    assert all(p.grad is None for p in model.parameters() if p is not first)
    two = view.attention(model.eval(), SOURCE, TARGET).record
    np.testing.assert_array_equal(one.maps[0].probabilities, two.maps[0].probabilities)


def test_texts_and_subwords() -> None:
    trained = speaking(bpe())
    record = view.attention(trained, "뭐 😀", "가").record
    assert [label.text for label in record.source] == [
        *["뭐₁", "뭐₂", "뭐₃", "␣"],
        *["😀₁", "😀₂", "😀₃", "😀₄"],
    ]
    assert [label.text for label in record.target] == ["<s>", "가₁", "가₂", "가₃"]
    assert record.title == "뭐 😀 → 가"


def test_unknown_characters_are_named() -> None:
    record = view.attention(speaking(), "가ж나ж").record
    assert record.source[1] == Label("ж", "unknown")
    assert "Never seen in training: ж" in [note.en for note in record.notes]
    record = view.attention(speaking(), "가", "나ж").record
    assert record.target[-1] == Label("ж", "unknown")
    assert [note.en for note in record.notes] == ["Never seen in training: ж"]


def test_what_the_model_says_that_has_no_name_is_not_noted() -> None:
    record = view.attention(speaking(), [4, 5], [6, 3]).record
    assert record.target[-1] == Label("<unk>", "unknown")
    assert record.notes == ()


def test_an_answer_that_does_not_end_says_so() -> None:
    trained = speaking(max_length=2)
    record = view.attention(trained, "가나").record
    assert any("did not end within 2 tokens" in note.en for note in record.notes)
    ((answer, *_),) = trained.generate_answers(["가나"])
    assert len(record.steps) == 2
    assert record.loss == pytest.approx(-answer.log_p)
    (last,) = (node for node in record.tree if node.rank == 1)
    assert record.loss == pytest.approx(-last.log_p)


def test_an_end_that_was_not_generated_has_no_gradient() -> None:
    model, answer = shaken(), SearchConfig(max_length=2)
    generated = search(model, Packed.of([SOURCE]), answer)[0][0].tokens
    cut_off = view.attention(model, SOURCE, search=answer).record
    ended = view.attention(model, SOURCE, generated).record
    for m, whole in zip(cut_off.maps, ended.maps, strict=True):
        np.testing.assert_array_equal(m.probabilities, whole.probabilities)
        if m.kind != "encoder":  # what read the last token is asked for the end alone
            assert whole.doutputs[:, -1].any()
            assert not m.doutputs[:, -1].any()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", None, "the sentence is empty"),
        ("가" * 24, None, "the sentence has 24 tokens, more than the 23"),
        ("가", "나" * 23, "the output has 23 tokens, more than the 22"),
        ([4, 99], None, "holds token 99; this model has tokens 0 to"),
        ([4], [-1], "the output holds token -1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    source: str | list[int], target: str | list[int] | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        view.attention(speaking(), source, target)


def test_the_longest_that_fits_is_drawn() -> None:
    record = view.attention(speaking(), "가" * 23, "나" * 22).record
    assert record.maps[-1].probabilities.shape == (3, 23, 23)


def test_an_empty_output_is_drawn() -> None:
    record = view.attention(speaking(), "가나", "").record
    assert [step.label.text for step in record.steps] == ["</s>"]


def test_a_bare_model_reads_no_text() -> None:
    with pytest.raises(UserError, match="a bare model has no tokenizer"):
        view.attention(shaken(), "가나")


def test_a_broken_model_is_refused() -> None:
    model = shaken()
    model.source.tokens.weight.data[5] = np.nan
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(UserError, match="numbers are not finite"),
    ):
        view.attention(model, SOURCE, TARGET)


def test_a_model_without_encoder_layers() -> None:
    record = view.attention(shaken(replace(CONFIG, encoder_layers=0)), SOURCE, TARGET).record
    assert record.kinds == ("decoder", "cross")


def test_a_model_without_decoder_layers() -> None:
    record = view.attention(shaken(replace(CONFIG, decoder_layers=0)), SOURCE, TARGET).record
    assert record.kinds == ("encoder",)
    assert not record.maps[0].doutputs.any()


def test_a_model_without_layers_has_no_attention_to_draw() -> None:
    picture = view.attention(shaken(replace(CONFIG, encoder_layers=0, decoder_layers=0)), SOURCE)
    assert picture.record.kinds == ()
    assert picture.html().startswith("<!doctype html>")
    for kind in (None, "cross"):
        with pytest.raises(UsageError, match="no attention to draw: this model has no layers"):
            picture.terminal(kind)


def test_a_given_answer_may_be_one_that_was_cut() -> None:
    trained = speaking(max_length=2)
    own = view.attention(trained, "가나").record
    given, ended = (view.attention(trained, "가나", own.own, ends=ends) for ends in (False, True))
    assert (own.ended, given.record.ended, ended.record.ended) == (False, False, True)
    assert given.record.loss == pytest.approx(own.loss)
    assert len(ended.record.steps) == len(own.steps) + 1


def test_the_models_own_answer_begins_with_its_prefix() -> None:
    trained = speaking().configured(prefix="나")
    record = view.attention(trained, "가나").record
    assert record.own == trained.generate(["가나"])[0]
    assert record.own.startswith("나")


def test_an_int8_models_answer_is_searched_for_in_int8() -> None:
    trained = speaking()
    found = []
    for task in (trained, replace(trained, arithmetic="int8")):
        tree = view.attention(task, "가나").record.tree
        (last,) = (node for node in tree if node.rank == 1)
        ((answer, *_),) = task.generate_answers(["가나"])
        assert last.log_p == pytest.approx(answer.log_p, rel=1e-5)
        found.append(last.log_p)
    assert found[0] != pytest.approx(found[1], rel=1e-4)


def test_an_ensemble_is_refused() -> None:
    trained = speaking()
    with pytest.raises(UserError, match="the page shows one model, not an ensemble"):
        view.attention(trained.ensemble(trained), "가나")


def test_two_masked_models_are_compared_on_the_first_ones_guesses() -> None:
    first, second = bert(), bert()
    shake(second.model)  # once more: other guesses
    record = view.attention(first, "a[MASK]가[MASK]").record
    guesses = [best[0].token for best in first.guesses("a[MASK]가[MASK]", 1)]
    assert record.own == "".join(guesses)
    assert view.attention(second, "a[MASK]가[MASK]", record.own).record.title == record.title
    assert view.attention(second, "a[MASK]가[MASK]").record.own != record.own
    assert view.attention(first, "a[MASK]가[MASK]", "ab").record.own == ""


def test_guesses_that_are_other_tokens_as_a_text_are_not_passed_on() -> None:
    task = bert("bpe")  # a guess may be a part of a character
    record = view.attention(task, "a[MASK][MASK]").record
    assert record.own == "" or len(task.source.encode(record.own)) == 2


@pytest.mark.parametrize("end", [2, 7])
def test_an_answers_end_is_the_likeliest_of_several(end: int) -> None:
    model = shaken(replace(CONFIG, end_token_ids=(7,), suppress_tokens=(5,)), np.float64)
    model.output.bias.data[end] += 5
    record = view.attention(model, [5, 6, 7], [4, 8]).record
    last = record.steps[-1]
    batch = Batch(Packed.of([[5, 6, 7]]), Packed.of([[1, 4, 8, end]]))
    assert last.token == end
    np.testing.assert_allclose(record.loss, model.loss(batch)[0].nats, rtol=1e-9)
    best = next(node for node in record.tree if node.rank == 1)
    own = view.attention(model, [5, 6, 7]).record
    np.testing.assert_allclose(own.loss, -best.log_p, rtol=1e-5)
    assert not any(c.label.text == "5" for step in record.steps for c in step.candidates)
