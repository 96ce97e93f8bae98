"""Pictures of a model's attention: `attention(model, source, target)` makes one."""

from pellucid.apps.view.picture import Picture
from pellucid.apps.view.record import Record
from pellucid.apps.view.trace import attention

__all__ = ["Picture", "Record", "attention"]
