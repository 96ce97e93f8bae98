"""torch.nn's names and arguments; `layer.forward(x) -> (y, backward)`."""

from pellucid.nn import functional
from pellucid.nn.context import Cache, Context, Memory
from pellucid.nn.explain import explain_mask
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
from pellucid.nn.module import Buffer, Module, ModuleList, Parameter, StateError, single_use
from pellucid.nn.multihead_attention import MultiheadAttention
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
    "Buffer",
    "Cache",
    "Context",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "Memory",
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
    "explain_mask",
    "functional",
    "generate_square_subsequent_mask",
    "single_use",
    "valid_lens_mask",
]
