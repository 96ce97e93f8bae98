"""torch.nn's names and arguments over NumPy arrays; `layer.forward(x) -> (y, backward)`."""

from pellucid.nn.attention import MultiheadAttention
from pellucid.nn.layers import (
    GELU,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    LayerNorm,
    LeakyReLU,
    Linear,
    ReLU,
    SiLU,
)
from pellucid.nn.masks import generate_square_subsequent_mask, valid_lens_mask
from pellucid.nn.module import Module, ModuleList, Parameter, StateError, way_back
from pellucid.nn.recorder import AttentionMap, Recorder
from pellucid.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "GELU",
    "AttentionMap",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "ReLU",
    "Recorder",
    "SiLU",
    "StateError",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "generate_square_subsequent_mask",
    "valid_lens_mask",
    "way_back",
]
