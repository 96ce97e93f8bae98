"""Pictures of a model's attention: `attention(model, source, target)` and what it draws."""

from pellucid.apps.view.picture import Picture
from pellucid.apps.view.record import Record
from pellucid.apps.view.trace import attention

__all__ = ["Picture", "Record", "attention"]
