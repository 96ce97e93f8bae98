"""What a model is worth: what counts as right, which pairs are tried, how a score is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.generation import Answer
from pellucid.tasks.metric import Measured
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.passage import Passage
from pellucid.tasks.scores import Scores
from pellucid.training.config import EvaluationConfig, RunConfig
from pellucid.training.experiment import score

SPELT = {
    "nfc": ("\u1100\u1161\u1102\u1161", "가나"),
    "nfd": ("\u1100\u1161\u1102\u1161", "가나"),
    "lowercase": ("AbC", "abc"),
    "whitespace": (" a  b ", "a b"),
    "punctuation": ("a,b", "a , b"),
}
"""By normaliser: a text as a user may write it, and as a model that learnt it says it."""


def speaking(
    says: str, normalise: tuple[str, ...], patch: pytest.MonkeyPatch, kind: str = "char"
) -> Seq2SeqTask:
    """A model that answers everything with one text."""
    tokenizer = train_tokenizer([says, "q"], kind, normalise=normalise)
    v = tokenizer.vocab_size
    config = Seq2SeqConfig(
        v, v, d_model=6, num_attention_heads=3, ffn_dim=7, encoder_layers=1, decoder_layers=1
    )
    answers = [Answer(says, 0.0, True)]
    patch.setattr(Seq2SeqTask, "generate_answers", lambda self, texts: [answers for _ in texts])
    return Seq2SeqTask(Seq2Seq(config).eval(), tokenizer, tokenizer, SearchConfig())


def settings(metric: str) -> RunConfig:
    return replace(RunConfig(), evaluation=EvaluationConfig(metric))


@pytest.mark.parametrize("name", SPELT)
def test_error_rates_count_against_the_reference_as_the_model_learnt_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, says = SPELT[name]
    trained = speaking(says, (name,), monkeypatch)
    pairs = [TextPair("q", ("qqqqqqq", written))] * 3
    measured = score(trained, pairs, settings("error_rates")).measured
    assert measured is not None
    assert measured.values == {"per": 0.0, "wer": 0.0}
    metric = trained.validation(pairs, "error_rates", 500)
    assert metric is not None
    assert metric(None) == {"per": 0.0, "wer": 0.0}


@pytest.mark.parametrize(("kind", "per"), [("word", 2 / 3), ("char", 2 / 9)])
def test_phones_between_spaces_are_counted_as_words(
    kind: str, per: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = speaking("HH AY2 B", (), monkeypatch, kind)
    measured = score(trained, [TextPair("q", ("HH AY1 BB",))], settings("error_rates")).measured
    assert measured is not None
    assert measured.values["per"] == pytest.approx(per)


def test_a_word_on_several_lines_is_right_as_any_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = speaking("AH0 B", (), monkeypatch, "word")
    pairs = [TextPair("q", (text,)) for text in ("AA1 B", "AH0 B")] + [TextPair("AH0", ("B",))]
    measured = score(trained, pairs, settings("error_rates")).measured
    assert measured is not None
    assert (measured.values, measured.record["words"]) == ({"per": 1 / 3, "wer": 1 / 2}, 2)


def test_bleu_composes_both_sides_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, says = SPELT["nfc"]
    for answer, reference in ((says, written), (written, says)):
        trained = speaking(answer, (), monkeypatch)
        measured = score(trained, [TextPair("q", (reference,))] * 3, settings("bleu")).measured
        assert measured is not None
        assert measured.values["chrf"] == pytest.approx(100)
    trained = speaking("a b c d e", ("lowercase",), monkeypatch)
    measured = score(trained, [TextPair("q", ("A B C D E",))] * 3, settings("bleu")).measured
    assert measured is not None
    assert measured.values["bleu"] == 0 < measured.values["bleu_lower"]


def test_a_score_has_one_name_wherever_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = speaking("a b c d e", (), monkeypatch)
    pairs = [TextPair("q", ("a b c d f",))] * 3
    rates = score(trained, pairs, settings("error_rates")).as_json()
    figures = score(trained, pairs, settings("bleu")).as_json()
    assert set(METRICS["error_rates"].scores.keys()) < set(rates)
    assert [name for name, value in figures.items() if isinstance(value, dict)] == [
        *METRICS["bleu"].scores
    ]
    for name in METRICS:
        monitored = trained.validation(pairs, name, 500)
        assert monitored is not None
        assert [*monitored(None)] == [*METRICS[name].scores]
    assert figures["bleu_lower"]["name"] == "BLEU lower-cased"


@pytest.mark.parametrize("count, tried", [(7, [0, 1, 3, 4, 6, 7, 9]), (13, list(range(11)))])
def test_validation_tries_pairs_from_all_over(
    count: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = speaking("q", (), monkeypatch)
    asked: list[str] = []

    def whole(self: Seq2SeqTask, text: str) -> Passage:
        asked.append(text)
        return Passage([text], ["", ""])

    monkeypatch.setattr(Seq2SeqTask, "passage", whole)
    pairs = [TextPair("q" * n, ("q",)) for n in range(1, 12)]
    trained.validation(pairs, "error_rates", count)
    assert [len(text) - 1 for text in asked] == tried


@pytest.mark.parametrize("loss", [700.0, 1000.0])
def test_a_loss_beyond_all_numbers_is_still_written(loss: float) -> None:
    scores = Scores(loss, 3)
    assert len(scores.written()["loss"]) < 80
    assert json.loads(json.dumps(scores.as_json(), allow_nan=False))["loss"] == loss
    assert Scores(0.5, 3).written()["loss"] == "0.5000 nats per target token (perplexity 1.649)"


def test_scores_are_written_in_korean() -> None:
    found = Measured({}, {}, {"PER": "9.25% (95 %: 8.73% to 9.82%)"})
    assert Scores(0.5, 3000, "fill", found, accuracy=0.25).written("ko") == {
        "텍스트": "3,000",
        "손실": "가려진 토큰당 0.5000 nat(퍼플렉서티 1.649)",
        "정확도": "가려진 토큰의 25.00%를 맞힘",
        "PER": "9.25% (95 %: 8.73%–9.82%)",
    }
