"""Registry of measures: numbers recorded inside a model while it trains.

A study's Python files add entries to `MEASURES` when they are imported. studies/measures.py has
those of Pellucid; every study imports it.
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
    """One forward and backward pass on the probe batch, without dropout.

    The parameters of the model hold the gradients of the mean loss per token. maps: the attention
    of each layer, by the layer's name.
    """

    model: Seq2Seq
    batch: Batch
    maps: Mapping[str, AttentionMap]


@dataclass(frozen=True)
class Measure:
    """An entry of `MEASURES`: how to record some numbers, and how to show them."""

    name: str
    title: str
    """Heading of the section in the report."""
    record: Callable[[Pass], dict[str, Any]] | None = None
    """Function that returns the numbers to keep of a pass, by name."""
    show: Callable[[Findings], Sequence[Block]] | None = None
    """Function that returns the section of the report; empty if no run recorded the measure."""


MEASURES: dict[str, Measure] = {}
"""All measures, by name."""
