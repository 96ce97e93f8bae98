"""Looking at what a model does: `attention(model, source, target)` and what it draws."""

from pellucid.view.attend import attention
from pellucid.view.picture import Picture
from pellucid.view.record import Record

__all__ = ["Picture", "Record", "attention"]
