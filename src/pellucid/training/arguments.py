"""Check the arguments of `pellucid.train`; suggest the right name for a wrong one."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from difflib import get_close_matches
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.core.settings import flat

PEERS = {
    "callbacks": "listeners",
    "learning_rate": "lr",
    "max_epochs": "epochs",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "test_size": "held_out",
}
"""Names of settings in other libraries, and Pellucid's names of them."""


def refuse_unknown(given: Iterable[str], settings: Any, *own: str) -> None:
    """Raise `UsageError` for a name that is not a field of `settings`.

    The message suggests the nearest setting, if one is near. own: names of further arguments, which
    the message lists; `given` must not contain them.
    """
    tables = [field.name for field in fields(settings)]
    dotted = sorted(flat(asdict(settings)), key=lambda name: -name.count("."))
    last = {name.rpartition(".")[2]: name for name in [*dotted, *tables, *own]}
    for name in given:
        if name not in tables:
            ours = PEERS.get(name, name)
            close = [ours] if ours in last else get_close_matches(ours, last, n=1)
            hint = f" (did you mean {argument(last[close[0]])}?)" if close else ""
            known = ", ".join(dict.fromkeys([*own, *tables]))
            raise UsageError(f"train: unknown setting {name}{hint}; there are: {known}")


def argument(dotted: str) -> str:
    """Return the Python argument that sets the setting with this dotted name.

    >>> argument("training.schedule.lr")
    'training={"schedule": {"lr": …}}'
    """
    first, *rest = dotted.split(".")
    value = "…"
    for name in reversed(rest):
        value = f'{{"{name}": {value}}}'
    return f"{first}={value}"
