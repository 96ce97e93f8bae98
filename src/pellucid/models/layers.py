"""Encoder and decoder layers with more feed-forward networks, before and after attention."""

from __future__ import annotations

from typing import Any

from pellucid import nn
from pellucid.models.config import StackConfig
from pellucid.models.positions import POSITIONS
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import Block, FeedForward, gates_of
from pellucid.nn.config import AttentionConfig, Relative
from pellucid.nn.layers import Norm


class FurtherNetwork(nn.Module):
    """One more position-wise network with its own norm; article 004's exercise."""

    def __init__(self, config: StackConfig, dtype: Any) -> None:
        e, f = config.d_model, config.ffn_dim
        self.activation = config.activation_function
        options: dict[str, Any] = {"bias": config.linear_bias, "dtype": dtype, "seed": None}
        gates = gates_of(self.activation)
        self.linear1 = nn.Linear(e, gates * f, **options)
        self.linear1.weight.packed = (f,) * gates
        self.dropout = nn.Dropout(_or(config.activation_dropout, config.dropout))
        self.linear2 = nn.Linear(f, e, **options)
        self.norm = norm_of(config, dtype)
        self.dropout1 = nn.Dropout(config.dropout)

    def block(self) -> Block:
        """Return the residual step."""
        network = FeedForward(self.linear1, self.activation, self.dropout, self.linear2)
        return Block("", network, self.norm, self.dropout1)


def norm_of(config: StackConfig, dtype: Any) -> Norm:
    """Return a norm of the kind that the settings name."""
    if config.norm_type == "layer_norm":  # torch's own class, so that it converts to torch
        return nn.LayerNorm(config.d_model, config.layer_norm_eps, dtype=dtype)
    return Norm(config.norm_type, config.d_model, config.layer_norm_eps, dtype=dtype)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _arguments(config: StackConfig, dtype: Any) -> dict[str, Any]:
    return {
        "d_model": config.d_model,
        "nhead": 1,  # its attention gives way to `attention_of`'s
        "dim_feedforward": config.ffn_dim,
        "dropout": config.dropout,
        "activation": config.activation_function,
        "layer_norm_eps": config.layer_norm_eps,
        "batch_first": True,
        "norm_first": config.norm == "pre",
        "bias": config.linear_bias,
        "dtype": dtype,
        "scale": _scale(config),
        "seed": None,
    }


def _scale(config: StackConfig) -> Any:
    return "learned" if config.attention_scale == "learned" else config.score_factor


def attention_of(config: StackConfig) -> AttentionConfig:
    """Return what the settings say of self-attention."""
    scheme = POSITIONS[config.positions]
    return AttentionConfig(
        embed_dim=config.d_model,
        num_heads=config.num_attention_heads,
        dropout=_or(config.attention_dropout, config.dropout),
        bias=config.linear_bias,
        scale=_scale(config),
        key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        qkv_bias=config.qkv_bias,
        qk_norm=config.layer_norm_eps if config.qk_norm else None,
        softcap=config.attention_softcap,
        window=config.sliding_window,
        distance_bias=scheme.distance_bias,
        relative=Relative(
            config.relative_attention_num_buckets, config.relative_attention_max_distance
        )
        if scheme.relative
        else None,
        rotate=scheme.rotate,
        angles=config.angles,
    )


def share_relative_bias(*stacks: nn.Module) -> None:
    """Let the layers of each stack use one table of distances, where they have one."""
    for stack in stacks:
        found = [
            module
            for _, module in stack.modules()
            if isinstance(module, Attention) and module.relative_bias is not None
        ]
        for attention in found[1:]:
            attention.relative_bias = found[0].relative_bias


def _extras(config: StackConfig, dtype: Any) -> tuple[nn.ModuleList, nn.ModuleList]:
    return (
        nn.ModuleList(FurtherNetwork(config, dtype) for _ in range(config.ffn_before)),
        nn.ModuleList(FurtherNetwork(config, dtype) for _ in range(config.ffn_after - 1)),
    )


class EncoderLayer(nn.TransformerEncoderLayer):
    """torch's encoder layer, with `ffn_before` and `ffn_after − 1` networks more."""

    def __init__(self, config: StackConfig, dtype: Any) -> None:
        super().__init__(**_arguments(config, dtype))
        self.self_attn = Attention(attention_of(config), dtype=dtype, seed=None)
        self.dropout.p = _or(config.activation_dropout, config.dropout)
        self.norm1, self.norm2 = (norm_of(config, dtype) for _ in range(2))
        self.before, self.after = _extras(config, dtype)

    def blocks(self) -> list[Block]:
        """Return the residual steps in order."""
        return [
            *(ffn.block() for ffn in self.before),
            *super().blocks(),
            *(ffn.block() for ffn in self.after),
        ]


class DecoderLayer(nn.TransformerDecoderLayer):
    """torch's decoder layer, with `ffn_before` and `ffn_after − 1` networks more."""

    def __init__(self, config: StackConfig, dtype: Any) -> None:
        super().__init__(**_arguments(config, dtype))
        attention = attention_of(config)
        self.self_attn = Attention(attention, dtype=dtype, seed=None)
        self.multihead_attn = Attention(attention.of_memory(), dtype=dtype, seed=None)
        self.dropout.p = _or(config.activation_dropout, config.dropout)
        self.norm1, self.norm2, self.norm3 = (norm_of(config, dtype) for _ in range(3))
        self.before, self.after = _extras(config, dtype)

    def blocks(self) -> list[Block]:
        """Return the residual steps in order."""
        return [
            *(ffn.block() for ffn in self.before),
            *super().blocks(),
            *(ffn.block() for ffn in self.after),
        ]
