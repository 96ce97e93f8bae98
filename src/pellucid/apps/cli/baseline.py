"""`pellucid baseline RECIPE`: a linear model of character n-grams on the same split."""

import json as json_format
import time
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.apps.cli.evaluate import print_scores
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.options import named, parse
from pellucid.core.errors import UsageError, optional
from pellucid.data.pairs import Splits
from pellucid.tasks.labels import LABELS, calibration_error
from pellucid.tasks.metric import Measured
from pellucid.training.config import DataConfig, RunConfig, load_recipe
from pellucid.training.experiment import read_material
from pellucid.training.start import changed

NEEDED = "the linear model needs scikit-learn, which is not installed"


def run(arguments: list[str]) -> int:
    """Run `pellucid baseline` with its arguments; return the exit code.

    The recipe, its first argument, gives the defaults of the data.
    """
    name, rest = named(
        arguments, "which recipe or run? Use `pellucid baseline NAME`, one of labels of texts"
    )
    base = RunConfig() if name is None else load_recipe(name)

    def baseline(*, data: DataConfig = base.data, json: bool = False) -> int:
        """Score a linear model on the split of a recipe or a run that labels texts.

        Logistic regression on TF-IDF of character n-grams, 1 to 4 long: ten lines, seconds. A
        Transformer should do better than that on the same texts. Needs scikit-learn.

        Args:
            json: Print the scores as one line of JSON.
        """
        config = changed(replace(base, data=data), base)
        if getattr(config.model, "labels", None) != "text":
            raise UsageError(f"{name}: gives texts no labels; a recipe that does is topics-ko")
        pairs = read_material(config)
        if not pairs.scored:
            raise UsageError("no data is held out to score on: give data.valid or data.held_out")
        began = time.process_time()
        measured = linear_scores(pairs)
        if json:
            print(json_format.dumps(measured.record))
            return 0
        print_scores(
            {"accuracy": f"{measured.values['accuracy']:.2%}", **measured.rows, **measured.details}
        )
        print(tr("{:.0f} s of processor time").format(time.process_time() - began))
        return 0

    return parse(baseline, f"baseline {name or 'RECIPE'}", rest)


def linear_scores(pairs: Splits) -> Measured:
    """Train a linear model and score it on the test pairs, or else on validation pairs."""
    text: Any = optional("sklearn.feature_extraction.text", NEEDED, extra="baseline")
    linear: Any = optional("sklearn.linear_model", NEEDED, extra="baseline")
    vectors = text.TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4))
    model = linear.LogisticRegression(max_iter=1000)
    model.fit(
        vectors.fit_transform([pair.source for pair in pairs.train]),
        [pair.target for pair in pairs.train],
    )
    p = model.predict_proba(vectors.transform([pair.source for pair in pairs.scored]))
    found = model.classes_[p.argmax(axis=1)]
    right = [pair.target for pair in pairs.scored]
    measured = LABELS.compute(found.tolist(), [[label] for label in right], True)
    error = calibration_error(p.max(axis=1), found == np.array(right))
    record = {**measured.record, "calibration_error": error}
    rows = {**measured.rows, "calibration": f"{error:.1%} off"}
    return measured._replace(record=record, rows=rows)
