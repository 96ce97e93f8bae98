"""torch.nn's names and arguments over NumPy arrays; `layer.forward(x) -> (y, backward)`."""

from pellucid.nn import functional
from pellucid.nn.attention import MultiheadAttention
from pellucid.nn.decoder import TransformerDecoder, TransformerDecoderLayer
from pellucid.nn.encoder import TransformerEncoder, TransformerEncoderLayer
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
from pellucid.nn.recorder import AttentionMap, Recorder
from pellucid.nn.transformer import Transformer

__all__ = [
    "GELU",
    "AttentionMap",
    "Buffer",
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
    "explain_mask",
    "functional",
    "generate_square_subsequent_mask",
    "single_use",
    "valid_lens_mask",
]
