"""Pictures of a model's attention: `attention(model, source, target)` and what it draws."""

from pellucid.view.picture import Picture
from pellucid.view.record import Record
from pellucid.view.trace import attention

__all__ = ["Picture", "Record", "attention"]
