"""A text classifier for scikit-learn: fit, predict, predict_proba, in a pipeline or a search.

from estimator import TextClassifier
cross_val_score(TextClassifier(steps=300), texts, labels)

It is pickled with its weights: the model folder is inside as bytes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

import pellucid
from pellucid.tasks.folder import save_model


class TextClassifier(ClassifierMixin, BaseEstimator):
    """Pellucid's classifier with scikit-learn's methods; X are texts, or tuples of two texts."""

    def __init__(self, recipe="topics-ko", steps=300, lr=1e-3, d_model=64, seed=0):
        self.recipe, self.steps, self.lr = recipe, steps, lr
        self.d_model, self.seed = d_model, seed

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        texts = [text if isinstance(text, tuple) else (text,) for text in X]
        rows = [(*text, str(label)) for text, label in zip(texts, y, strict=True)]
        training = {"epochs": None, "schedule": {"lr": self.lr, "warmup": self.steps // 10}}
        sizes = {"d_model": self.d_model, "ffn_dim": 4 * self.d_model}
        with tempfile.TemporaryDirectory() as folder:
            self.model_ = pellucid.train(
                self.recipe, train=rows, run=f"{folder}/run", steps=self.steps, seed=self.seed,
                training=training, model=sizes,
            )  # fmt: skip
        return self

    def predict_proba(self, X):
        found = self.model_.labels(X, best=len(self.classes_))
        by_label = [{guess.token: guess.p for guess in guesses} for (guesses,) in found]
        return np.array([[row.get(str(label), 0.0) for label in self.classes_] for row in by_label])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __getstate__(self):
        state = {name: value for name, value in self.__dict__.items() if name != "model_"}
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder) / "model", self.model_, "")
            files = {each.name: each.read_bytes() for each in (Path(folder) / "model").iterdir()}
        return {**state, "files": files}

    def __setstate__(self, state):
        files = state.pop("files")
        self.__dict__.update(state)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            self.model_ = pellucid.load(folder)
