"""The estimator of scikit-learn: it fits, predicts, is cloned, searched over and pickled."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is the extra baseline")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
WORDS = [a + b + c for a in "abcde" for b in "abcde" for c in "abcde"]
LABELS = np.array(["has a" if "a" in word else "none" for word in WORDS])


@pytest.fixture
def estimator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    monkeypatch.delitem(sys.modules, "estimator", raising=False)
    from estimator import TextClassifier  # type: ignore[import-not-found]

    with pellucid.reference():
        yield TextClassifier(steps=60, lr=5e-3, d_model=16)


def test_it_fits_predicts_and_is_pickled(estimator: Any) -> None:
    from sklearn.base import clone

    fitted = clone(estimator).fit(WORDS, LABELS)
    p = fitted.predict_proba(WORDS)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    assert list(fitted.classes_) == ["has a", "none"]
    assert (fitted.predict(WORDS) == LABELS).mean() > 0.9
    assert fitted.score(WORDS, LABELS) > 0.9
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(WORDS), p)


def test_it_is_cross_validated_on_pairs_of_texts_with_numbers_as_labels(estimator: Any) -> None:
    from sklearn.model_selection import cross_val_score

    pairs = np.empty(len(WORDS), object)
    pairs[:] = [(word, word[::-1]) for word in WORDS]
    found = cross_val_score(estimator.set_params(steps=2), pairs, (LABELS == "none") * 7, cv=2)
    assert found.shape == (2,)
    assert not np.isnan(found).any()
