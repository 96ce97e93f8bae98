"""Encoder and decoder layers as a model's settings describe them, and their initialisation."""

from typing import Any

from pellucid import nn
from pellucid.models.config import StackConfig
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import Block, FeedForward, TransformerLayer, gates_of
from pellucid.nn.init import Init, normal, uniform, xavier_uniform
from pellucid.nn.layers import Norm
from pellucid.nn.transformer import Stack


def table_init(how: str | float, width: int) -> Init:
    """Return the initialiser of an embedding table for the setting `token_init` or the like.

    "xavier" is Xavier's uniform; a number is the standard deviation of a normal distribution, and
    any other name means 1/√width.
    """
    if how == "xavier":
        return xavier_uniform
    return normal(width**-0.5 if isinstance(how, str) else how)


def choose_inits(config: StackConfig, stack: nn.Module) -> None:
    """Set Xavier's initialisation for every matrix of a stack, as torch and article 003 do.

    With `attention_init = "separate"`, q, k and v are initialised as three matrices, and the biases
    of attention as those of `Linear`. Nothing is drawn yet (`Module.initialise`).
    """
    for parameter in stack.parameters():
        if len(parameter.shape) > 1:
            parameter.init = xavier_uniform
    if config.attention_init == "separate":
        for module in stack.modules():
            if isinstance(module, Attention):
                _separate(module)


def _separate(attention: Attention) -> None:
    """Initialise q, k and v by Xavier as three matrices, biases as in `Linear` (article 003)."""
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    assert weight is not None
    e = attention.config.embed_dim
    weight.init = uniform((6.0 / (2 * e)) ** 0.5)
    if bias is not None:
        bias.init = uniform(e**-0.5)
        assert attention.out_proj.bias is not None
        attention.out_proj.bias.init = uniform(e**-0.5)


class FurtherNetwork(nn.Module):
    """An additional feed-forward network with its norm and dropout; article 004's exercise."""

    def __init__(self, config: StackConfig, dtype: Any) -> None:
        e, f = config.d_model, config.ffn_dim
        self.activation = config.activation_function
        options: dict[str, Any] = {"bias": config.linear_bias, "dtype": dtype, "seed": None}
        gates = gates_of(self.activation)
        self.linear1 = nn.Linear(e, gates * f, **options)
        self.dropout = nn.Dropout(config.dropout_of("activation"))
        self.linear2 = nn.Linear(f, e, **options)
        self.norm = norm_of(config, dtype)
        self.dropout1 = nn.Dropout(config.dropout)

    def block(self) -> Block:
        """Return the residual step of this network."""
        network = FeedForward(self.linear1, self.activation, self.dropout, self.linear2)
        return Block("", network, self.norm, self.dropout1)


def norm_of(config: StackConfig, dtype: Any) -> Norm:
    """Return a new norm layer of the kind `config.norm_type`, d_model wide."""
    if config.norm_type == "layer_norm":  # the class that can be converted to torch's
        return nn.LayerNorm(config.d_model, config.layer_norm_eps, dtype=dtype)
    return Norm(config.norm_type, config.d_model, config.layer_norm_eps, dtype=dtype)


class VariedLayer(TransformerLayer):
    """Base class of a model's layers: torch's layer, changed by the settings of a `StackConfig`.

    The settings determine attention, norms and dropouts, and add `ffn_before` feed-forward networks
    before attention and `ffn_after` − 1 at the end.
    """

    def __init__(self, config: StackConfig, dtype: Any) -> None:
        super().__init__(
            config.d_model,
            1,  # heads; the attention is replaced below
            config.ffn_dim,
            config.dropout,
            config.activation_function,
            config.layer_norm_eps,
            batch_first=True,
            norm_first=config.norm == "pre",
            bias=config.linear_bias,
            dtype=dtype,
            seed=None,
        )
        self.self_attn = Attention(config.attention, dtype=dtype, seed=None)
        if self.attends_to_memory:
            memory = config.attention.of_memory()
            self.multihead_attn = Attention(memory, dtype=dtype, seed=None)
        self.dropout.p = config.dropout_of("activation")
        for i in range(1, 4 if self.attends_to_memory else 3):
            setattr(self, f"norm{i}", norm_of(config, dtype))
        before, after = range(config.ffn_before), range(config.ffn_after - 1)
        self.before = nn.ModuleList(FurtherNetwork(config, dtype) for _ in before)
        self.after = nn.ModuleList(FurtherNetwork(config, dtype) for _ in after)

    def blocks(self) -> list[Block]:
        """Return the layer's residual steps in the order in which they run."""
        before, after = ([each.block() for each in more] for more in (self.before, self.after))
        return [*before, *super().blocks(), *after]


class EncoderLayer(VariedLayer, nn.TransformerEncoderLayer):
    """An encoder layer as torch's, with the parts that a `StackConfig` selects."""


class DecoderLayer(VariedLayer, nn.TransformerDecoderLayer):
    """A decoder layer as torch's, with the parts that a `StackConfig` selects."""


def stack_of(config: StackConfig, layers: int, dtype: Any, memory: bool = False) -> Stack:
    """Build a stack of layers and set its initialisers; with `memory`, it has cross-attention.

    With relative positions all layers share one table, as in T5.
    """
    norm = norm_of(config, dtype) if config.final_norm else None
    stack: Stack
    if memory:
        stack = nn.TransformerDecoder(DecoderLayer(config, dtype), layers, norm)
    else:
        stack = nn.TransformerEncoder(EncoderLayer(config, dtype), layers, norm)
    attentions = [layer.self_attn for layer in stack.layers]
    for attention in attentions[1:]:
        attention.relative_bias = attentions[0].relative_bias
    choose_inits(config, stack)
    return stack
