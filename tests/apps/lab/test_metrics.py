"""Metrics of a finished run."""

import math

from pellucid.apps.lab.metrics import value_of


def test_an_epoch_without_a_loss_reaches_no_loss() -> None:
    curve = {"epoch": [1.0, 2.0, 3.0], "train": [None, None, 0.25]}
    line = {"metrics": {}, "curve": curve}
    assert value_of(line, "epochs_to_0.5") == 3.0
    assert value_of(line, "epochs_to_0.125") == math.inf
