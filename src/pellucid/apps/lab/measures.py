"""Measures: numbers recorded inside a model while it trains, and how they are shown.

A measure is a row of `MEASURES`. Files of Python that a study reads put them there; Pellucid's own
are in studies/measures.py, which every study reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.apps.lab.document import Block
from pellucid.core.batch import Batch
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import AttentionMap

if TYPE_CHECKING:
    from pellucid.apps.lab.findings import Findings


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass over the probe's batch, without dropout.

    The model's parameters hold the gradients of the mean loss per token.
    """

    model: Seq2Seq
    batch: Batch
    maps: Mapping[str, AttentionMap]


@dataclass(frozen=True)
class Measure:
    """A row of the registry `MEASURES`."""

    name: str
    title: str
    """The heading of its section in the report."""
    record: Callable[[Pass], dict[str, Any]] | None = None
    """Return what a probe keeps of a pass, by name."""
    show: Callable[[Findings], Sequence[Block]] | None = None
    """Return its section of the report; empty where no run recorded it."""


MEASURES: dict[str, Measure] = {}
"""Numbers that a study can record inside its models and show in its report, by name."""
