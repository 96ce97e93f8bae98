"""The encoder with labels, of texts and of tokens."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from tests.models.whole_model import check_every_gradient, shake

from pellucid.core.batch import Batch, Packed
from pellucid.models import Classifier, ClassifierConfig

SOURCE = Packed.of([[5, 6, 7], [8, 9]])
BATCHES = {
    "text": Batch(SOURCE, Packed.of([[1, 6, 2], [1, 4, 2]])),
    "token": Batch(SOURCE, Packed.of([[1, 6, 4, 5, 2], [1, 5, 5, 2]])),
}


def classifier(labels: Any, dtype: Any = np.float64, **more: Any) -> Classifier:
    config = ClassifierConfig(
        vocab_size=11, label_vocab_size=7, d_model=12, num_attention_heads=3, ffn_dim=17,
        num_hidden_layers=2, dropout=0.2, labels=labels, **more,
    )  # fmt: skip
    model = Classifier(config, dtype=dtype)
    shake(model)
    return model


@pytest.mark.parametrize("labels", BATCHES)
def test_every_gradient(labels: Literal["text", "token"]) -> None:
    check_every_gradient(classifier(labels), BATCHES[labels])


def test_every_gradient_through_the_first_rows_and_segments() -> None:
    model = classifier("text", pooling="pooler", type_vocab_size=2)
    check_every_gradient(model, BATCHES["text"])


def test_the_pooler_is_a_tanh_of_the_first_row() -> None:
    model = classifier("text", pooling="pooler").eval()
    assert model.pooler is not None
    rows, _ = model.stacks()["encoder"].run(SOURCE)
    h = rows[[0, 3]] @ model.pooler.weight.data.T + model.pooler.bias.data
    np.testing.assert_allclose(model(SOURCE), model.output(np.tanh(h)), rtol=1e-12)


@pytest.mark.parametrize("labels", BATCHES)
def test_a_text_is_labelled_alike_alone_and_in_a_batch(labels: Literal["text", "token"]) -> None:
    model = classifier(labels).eval()
    together = model(SOURCE)
    alone = np.concatenate([model(SOURCE.select(np.array([i]))) for i in range(2)])
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert together.shape == ((2, 7) if labels == "text" else (5, 7))


def test_a_text_without_tokens_has_no_label() -> None:
    for pooling in ("mean", "pooler"):
        with pytest.raises(ValueError, match="text 1 has no tokens"):
            classifier("text", pooling=pooling).eval()(Packed.of([[5], []]))
