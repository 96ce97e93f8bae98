"""The rows of the table for `nn`. Every layer needs one; a test finds layers without."""

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.check.cases import LayerCase
from pellucid.check.gradient import Array
from pellucid.check.op_cases import normal, off_the_kink
from pellucid.core.rng import Rng
from pellucid.core.vjp import Pair

N, L, S, V = 2, 5, 7, 19
H, E, F = 3, 6, 17  # the width must be a multiple of the heads
P = 0.3  # dropout


def _on_rows(
    layer: Any, x: Array, memory: Array | None = None, *, context: nn.Context, cu_k: Any = None
) -> Any:
    """Call a layer's `run` on packed rows, or `run_cross` of attention if there is a memory."""
    if memory is not None:
        context = replace(context, memory=nn.Memory(memory, cu_k))
    cross = memory is not None and isinstance(layer, nn.MultiheadAttention)
    return (layer.run_cross if cross else layer.run)(x, context)


def layer_cases() -> list[LayerCase]:
    """Return the rows of the table for layers."""
    return [*_small(), *_attention(), *_encoder(), *_decoder(), *_transformer()]


def _small() -> list[LayerCase]:
    x, bent = normal(N, L, E), off_the_kink(N, L, E)
    tokens, classes = np.array([[1, 4, 1], [0, 2, 4]]), np.arange(N * L).reshape(N, L) * 3 % V
    logits = normal(N, V, L)
    return [
        LayerCase("Linear", "", lambda t: nn.Linear(E, F, dtype=t), (x,), {}),
        LayerCase("Linear", "no bias", lambda t: nn.Linear(E, F, False, dtype=t), (x[0, 0],), {}),
        LayerCase("LayerNorm", "", lambda t: nn.LayerNorm(E, dtype=t), (x,), {}),
        LayerCase("LayerNorm", "two axes", lambda t: nn.LayerNorm((L, E), 0.1, dtype=t), (x,), {}),
        LayerCase("Dropout", "", lambda t: nn.Dropout(P), (x,), {"rng": Rng(5)}),
        LayerCase("ReLU", "", lambda t: nn.ReLU(), (bent,), {}),
        LayerCase("LeakyReLU", "", lambda t: nn.LeakyReLU(0.1), (bent,), {}),
        LayerCase("SiLU", "", lambda t: nn.SiLU(), (x,), {}),
        LayerCase("GELU", "", lambda t: nn.GELU(), (x,), {}),
        LayerCase("GELU", "tanh", lambda t: nn.GELU("tanh"), (x,), {}),
        LayerCase(
            "Embedding", "", lambda t: nn.Embedding(V, E, 3, dtype=t), (), {"input": tokens}
        ),
        LayerCase(
            "CrossEntropyLoss", "", lambda t: nn.CrossEntropyLoss(label_smoothing=0.1), (logits,),
            {"target": classes},
        ),
    ]  # fmt: skip


def _attention() -> list[LayerCase]:
    x, memory, wide = normal(N, L, E), normal(N, S, E), normal(N, S, F)
    padding = np.arange(S) >= np.array([[S - 2], [0]])  # the second has nothing to attend to
    masks = {"attn_mask": 0.5 * np.round(normal(L, S)), "key_padding_mask": padding}

    def attend(note: str, call: dict[str, Any], *arrays: np.ndarray, **options: Any) -> LayerCase:
        def build(dtype: Any) -> nn.MultiheadAttention:
            return nn.MultiheadAttention(E, H, batch_first=True, dtype=dtype, **options)

        how = {"call": _on_rows} if "context" in call else {}
        return LayerCase("MultiheadAttention", note, build, arrays, call, **how)

    all_heads = {"average_attn_weights": False, "rng": Rng(5)}
    packed = nn.Context(cu_seqlens=np.array([0, 2, 5]), rng=Rng(5))
    causal = {"context": replace(packed, causal=True)}
    three = (x, memory, memory[::-1])
    return [
        attend("", {}, *three),
        attend("dropout, every head's weights", all_heads, *three, dropout=P),
        attend("masks, no weights", {"need_weights": False, **masks}, *three),
        attend("causal, extra keys", {"is_causal": True}, *three,
               add_bias_kv=True, add_zero_attn=True),
        attend("learned scale", {"need_weights": False, **masks}, *three, scale="learned"),
        attend("kdim, vdim", {}, x, wide, memory, kdim=F, vdim=E),
        attend("packed, causal", causal, x[0], dropout=P),
        attend("packed, memory", {"context": packed, "cu_k": np.array([0, 4, 7])}, x[0], memory[0],
               dropout=P),
        attend("packed, learned scale", causal, x[0], dropout=P, scale="learned"),
        attend("packed, causal, extra keys", causal, x[0], dropout=P,
               add_bias_kv=True, add_zero_attn=True),
    ]  # fmt: skip


def _options(dtype: Any, **more: Any) -> dict[str, Any]:
    return {"dropout": P, "activation": "gelu", "batch_first": True, "dtype": dtype} | more


def _encoder_layer(dtype: Any, **more: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(E, H, F, **_options(dtype, **more))


def _decoder_layer(dtype: Any, **more: Any) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(E, H, F, **_options(dtype, **more))


def _square(dtype: Any) -> nn.TransformerEncoderLayer:
    activation = Pair(lambda x: (x * x, x), lambda dy, x: 2.0 * x * dy)
    return _encoder_layer(dtype, activation=activation, bias=False)


def _encoder(name: str = "TransformerEncoderLayer") -> list[LayerCase]:
    x, drawn = normal(N, S, E), {"rng": Rng(5)}
    padding = {"src_key_padding_mask": np.arange(S) >= np.array([[S - 2], [S]])}
    packed = {"context": nn.Context(cu_seqlens=np.array([0, 2, 7]), rng=Rng(5))}

    def stack(dtype: Any) -> nn.TransformerEncoder:
        norm = nn.LayerNorm(E, dtype=dtype)
        return nn.TransformerEncoder(_encoder_layer(dtype, norm_first=True), 2, norm)

    return [
        LayerCase(name, "", _encoder_layer, (x,), drawn | padding),
        LayerCase(name, "norm first", lambda t: _encoder_layer(t, norm_first=True), (x,), drawn),
        LayerCase(name, "own activation, no bias", _square, (x,), drawn),
        LayerCase(name, "packed", _encoder_layer, (x[0],), packed, _on_rows),
        LayerCase("TransformerEncoder", "", stack, (x,), drawn | padding),
        LayerCase("TransformerEncoder", "packed", stack, (x[0],), packed, _on_rows),
    ]


def _decoder(name: str = "TransformerDecoderLayer") -> list[LayerCase]:
    x, memory, drawn = normal(N, L, E), normal(N, S, E), {"rng": Rng(5)}
    causal = {"tgt_is_causal": True, **drawn}
    own = nn.Context(cu_seqlens=np.array([0, 2, 5]), causal=True, rng=Rng(5))
    packed = {"context": own, "cu_k": np.array([0, 4, 7])}
    rows = (x[0], memory[0])

    def stack(dtype: Any) -> nn.TransformerDecoder:
        return nn.TransformerDecoder(_decoder_layer(dtype), 2, nn.LayerNorm(E, dtype=dtype))

    return [
        LayerCase(name, "", _decoder_layer, (x, memory), causal),
        LayerCase(
            name, "norm first", lambda t: _decoder_layer(t, norm_first=True), (x, memory), causal
        ),
        LayerCase(name, "packed", _decoder_layer, rows, packed, _on_rows),
        LayerCase("TransformerDecoder", "", stack, (x, memory), causal),
        LayerCase("TransformerDecoder", "packed", stack, rows, packed, _on_rows),
    ]


def _transformer() -> list[LayerCase]:
    arrays, drawn = (normal(N, S, E), normal(N, L, E)), {"rng": Rng(5)}

    def whole(dtype: Any) -> nn.Transformer:
        return nn.Transformer(E, H, 2, 2, F, **_options(dtype))

    return [LayerCase("Transformer", "", whole, arrays, {"tgt_is_causal": True, **drawn})]
