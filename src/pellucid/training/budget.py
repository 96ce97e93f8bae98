"""How far a run is along: pure functions of its limits and of where it stands.

`epochs` counts passes over the data with their fraction, `seconds` training so far.
"""

from __future__ import annotations

from pellucid.training.config import TrainingConfig


def share_used(config: TrainingConfig, *, step: int, epochs: float, seconds: float) -> float:
    """Return the share of the budget that is used, 0 to 1: that of the limit which is nearest.

    >>> share_used(TrainingConfig(steps=100, epochs=4), step=10, epochs=2.0, seconds=0.0)
    0.5
    """
    used = [
        step / config.steps if config.steps else 0.0,
        epochs / config.epochs if config.epochs else 0.0,
        seconds / (60 * config.minutes) if config.minutes else 0.0,
    ]
    return min(max(used), 1.0)


def total_steps(config: TrainingConfig, *, step: int, epochs: float, seconds: float) -> float:
    """Return how many steps there will be: set, or projected from the share used so far.

    `epochs` and `seconds` are those at the end of `step`. A projection from seconds depends on the
    clock.

    >>> total_steps(TrainingConfig(epochs=4), step=10, epochs=0.5, seconds=0.0)
    80.0
    """
    totals = []
    if config.steps is not None:
        totals.append(float(config.steps))
    if config.epochs is not None:
        totals.append(step * config.epochs / epochs)
    if config.minutes is not None:
        totals.append(step * config.minutes * 60 / max(seconds, 1e-9))
    return min(totals)


def reason_to_stop(config: TrainingConfig, *, step: int, epoch: int, seconds: float) -> str | None:
    """Return which limit is reached, or None; `epoch` counts the passes completed.

    A run given an end that lies behind it is past that.

    >>> reason_to_stop(TrainingConfig(steps=100), step=100, epoch=0, seconds=0.0)
    '100 steps'
    >>> reason_to_stop(TrainingConfig(steps=100), step=101, epoch=0, seconds=0.0)
    'already past 100 steps'
    """
    for limit, at, unit in ((config.steps, step, "steps"), (config.epochs, epoch, "epochs")):
        if limit is not None and at >= limit:
            return f"{'already past ' if at > limit else ''}{limit} {unit}"
    if config.minutes is not None and seconds >= 60 * config.minutes:
        return f"{config.minutes:g} minutes"
    return None
