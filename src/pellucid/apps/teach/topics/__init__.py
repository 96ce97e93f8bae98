"""The topics by name: one file each, one row here."""

from __future__ import annotations

from pellucid.apps.teach.topic import Topic
from pellucid.apps.teach.topics import (
    adam,
    attention,
    cross_entropy,
    dropout,
    embedding,
    gelu,
    layer_norm,
    linear,
    masks,
    multi_head,
    positions,
    relu,
    residual,
    scaling,
    softmax,
)

TOPICS: dict[str, Topic] = {
    "attention": attention.TOPIC,
    "multi_head": multi_head.TOPIC,
    "softmax": softmax.TOPIC,
    "scaling": scaling.TOPIC,
    "masks": masks.TOPIC,
    "layer_norm": layer_norm.TOPIC,
    "residual": residual.TOPIC,
    "gelu": gelu.TOPIC,
    "relu": relu.TOPIC,
    "linear": linear.TOPIC,
    "embedding": embedding.TOPIC,
    "positions": positions.TOPIC,
    "cross_entropy": cross_entropy.TOPIC,
    "dropout": dropout.TOPIC,
    "adam": adam.TOPIC,
}
