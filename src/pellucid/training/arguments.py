"""Arguments of `pellucid.train`: which of them is meant by a name that is none."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from pellucid.core.errors import UsageError

PEERS = {
    "learning_rate": "lr",
    "max_epochs": "epochs",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
}
"""Names of settings in other libraries."""


def refuse_unknown(given: Iterable[str], settings: Any, *own: str) -> None:
    """Raise `UsageError` for an argument that is none of a call, naming the one that is meant.

    settings: the dataclass whose tables are arguments. own: the other arguments.
    """
    tables = [field.name for field in fields(settings)]
    dotted = sorted(_dotted(settings), key=lambda name: -name.count("."))
    last = {name.rpartition(".")[2]: name for name in [*dotted, *tables, *own]}
    for name in given:
        if name not in tables:
            ours = PEERS.get(name, name)
            close = [ours] if ours in last else get_close_matches(ours, last, n=1)
            hint = f" (did you mean {argument(last[close[0]])}?)" if close else ""
            known = ", ".join([*own, *tables])
            raise UsageError(f"train: unknown setting {name}{hint}; there are: {known}")


def argument(dotted: str) -> str:
    """Return how a setting is given to a call in Python.

    >>> argument("training.schedule.lr")
    'training={"schedule": {"lr": …}}'
    """
    first, *rest = dotted.split(".")
    value = "…"
    for name in reversed(rest):
        value = f'{{"{name}": {value}}}'
    return f"{first}={value}"


def _dotted(settings: Any, table: str = "") -> Iterator[str]:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            yield from _dotted(value, f"{table}{field.name}.")
        else:
            yield f"{table}{field.name}"
