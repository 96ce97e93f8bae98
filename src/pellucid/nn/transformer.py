"""Transformer, its encoder and decoder stacks and their layers, with torch.nn's arguments.

Each `forward` takes padded arrays and masks as in torch, converts them to rows and a context, calls
`run(x, context)`, and converts the result back.
"""

import copy
import operator
from functools import cache
from typing import Annotated, Any

from pellucid.core.array import Array, float32, host_dtype, namespace
from pellucid.core.rng import Rng
from pellucid.core.vjp import Backward, check_gradient, inside, joined, part
from pellucid.nn import functional, masks
from pellucid.nn.arrange import Arrangement, check_attention_inputs
from pellucid.nn.blocks import Block, TransformerLayer, unwind
from pellucid.nn.context import Context, Memory
from pellucid.nn.differences import rule
from pellucid.nn.init import xavier_uniform
from pellucid.nn.layers import Dropout, LayerNorm
from pellucid.nn.module import Forward, Module, ModuleList, single_use
from pellucid.ops.rule import EVERYTHING, Rule


class TransformerEncoderLayer(TransformerLayer):
    """An encoder layer: self-attention, then a feed-forward network.

    The arguments are those of torch.nn.TransformerEncoderLayer except `device`, and two more:
    `scale`, the factor of the attention scores (a number or "learned"; by default 1/sqrt(D), D the
    width of a head), and `seed` of the initialisation. src: (S, N, E), (N, S, E) with batch_first,
    or (S, E) for a single sequence; E is d_model.
    Source: Vaswani et al. 2017, 3.1; articles 001 and 002.

    >>> import numpy as np
    >>> layer = TransformerEncoderLayer(8, 2, 11, batch_first=True).eval()
    >>> layer(np.ones((3, 5, 8), np.float32)).shape
    (3, 5, 8)
    """

    def blocks(self) -> list[Block]:
        """Return the residual steps: self-attention, feed-forward network."""
        return [
            Block("self_attn", self.self_attn, self.norm1, self.dropout1),
            Block("", self.feed_forward(), self.norm2, self.dropout2),
        ]

    def forward(
        self,
        src: Annotated[Array, "… E"],
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Run the layer; return (y, backward). Masks are those of `MultiheadAttention.forward`.

        Raises `ValueError` in training with dropout and no `rng`.
        """
        own = src_mask, src_key_padding_mask, is_causal
        return _run_padded(self, src, own, rng)


class TransformerDecoderLayer(TransformerLayer):
    """A decoder layer: self-attention, attention to the encoder's memory, a feed-forward network.

    The arguments are those of torch.nn.TransformerDecoderLayer except `device`, and two more:
    `scale`, the factor of the attention scores (a number or "learned"; by default 1/sqrt(D), D the
    width of a head), and `seed` of the initialisation. tgt (L, N, E), memory (S, N, E); (N, L, E)
    and (N, S, E) with batch_first; or without N. `backward(dy)` returns (dtgt, dmemory).
    Source: Vaswani et al. 2017, 3.1; articles 001 and 002.

    >>> import numpy as np
    >>> layer = TransformerDecoderLayer(8, 2, 11, batch_first=True).eval()
    >>> layer(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
    (3, 5, 8)
    """

    attends_to_memory = True

    def blocks(self) -> list[Block]:
        """Return the residual steps: self-attention, cross-attention, feed-forward network."""
        return [
            Block("self_attn", self.self_attn, self.norm1, self.dropout1),
            Block("multihead_attn", self.multihead_attn, self.norm2, self.dropout2, memory=True),
            Block("", self.feed_forward(), self.norm3, self.dropout3),
        ]

    def forward(
        self,
        tgt: Annotated[Array, "… E"],
        memory: Annotated[Array, "* E"],
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Run the layer; return (y, backward). Masks are those of `MultiheadAttention.forward`.

        Raises `ValueError` in training with dropout and no `rng`.
        """
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        return _run_padded(self, tgt, own, rng, memory, other)


class Stack(Module):
    """`num_layers` copies of a layer, one after another, and an optional norm at the end.

    Raises `ValueError` if num_layers is negative.
    """

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        num_layers = operator.index(num_layers)
        if num_layers < 0:
            raise ValueError(f"num_layers must be at least 0, got {num_layers}")
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def run(
        self, x: Annotated[Array, "T E"], context: Context
    ) -> tuple[Annotated[Array, "T E"], Backward]:
        """Run the layers and the norm on rows x (T, E); return (y, backward).

        backward(dy) returns (dx, dmemory), dmemory None if no layer uses a memory.
        """
        backwards = []
        for i, layer in enumerate(self.layers):
            x, back = layer.run(x, context.child(f"layers.{i}", site=i))
            backwards.append(back)
        norm_backward = None
        if self.norm is not None:
            x, norm_backward = part(self.norm.forward, x, path=joined(context.path, "norm"))

        @single_use
        def backward(dy: Array) -> tuple[Array, Array | None]:
            if norm_backward is not None:
                dy = norm_backward(dy)
            return unwind(backwards, dy)

        return x, backward


class TransformerEncoder(Stack):
    """The encoder: `num_layers` copies of `encoder_layer`, then `norm` if given, as in torch.

    As in torch, all copies have the same initial weights. `enable_nested_tensor` and `mask_check`
    select torch's implementation; here they have no effect.

    >>> import numpy as np
    >>> layer = TransformerEncoderLayer(8, 2, 11, batch_first=True)
    >>> TransformerEncoder(layer, 2).eval()(np.ones((3, 5, 8), np.float32)).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Annotated[Array, "… E"],
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool | None = None,
        *,
        rng: Rng | None = None,
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Run the stack; return (memory, backward). `is_causal=None` means False.

        With None, torch looks whether the mask is causal; here the mask itself is enough.
        Raises `ValueError` in training with dropout and no `rng`.
        """
        own = mask, src_key_padding_mask, bool(is_causal)
        return _run_padded(self, src, own, rng)


class TransformerDecoder(Stack):
    """The decoder: `num_layers` copies of `decoder_layer`, then `norm` if given, as in torch.

    `backward(dy)` returns (dtgt, dmemory), where dmemory is the sum over all layers: zeros if there
    are none.

    >>> import numpy as np
    >>> layer = TransformerDecoderLayer(8, 2, 11)
    >>> x = np.ones((5, 3, 8), np.float32)
    >>> TransformerDecoder(layer, 2).eval()(x, x).shape
    (5, 3, 8)
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Annotated[Array, "… E"],
        memory: Annotated[Array, "* E"],
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Run the stack; return (y, backward). `tgt_is_causal=None` means False.

        With None, torch looks whether the mask is causal; here the mask itself is enough.
        Raises `ValueError` in training with dropout and no `rng`.
        """
        own = tgt_mask, tgt_key_padding_mask, bool(tgt_is_causal)
        other = memory_mask, memory_key_padding_mask, memory_is_causal
        return _run_padded(self, tgt, own, rng, memory, other)


Masks = tuple[Array | None, Array | None, bool]
"""The masks of one attention: attn_mask, key_padding_mask, is_causal."""


def _run_padded(
    module: TransformerLayer | Stack,
    x: Array,
    own: Masks,
    rng: Rng | None,
    memory: Array | None = None,
    other: Masks = (None, None, False),
) -> Forward:
    """Convert padded arrays to rows, run the module, and convert its output back.

    `own` are the masks of self-attention, `other` those of cross-attention. backward(dy) returns
    dx; with a memory (dx, dmemory), dmemory zeros if no layer uses the memory.
    """
    _check_parts(module)
    # the layer, or a stack's first layer, defines the expected widths and axes
    layer = next(iter(module.layers), None) if isinstance(module, Stack) else module
    batch_first = layer is not None and layer.batch_first
    if layer is not None:
        widths = (layer.self_attn.config.embed_dim,) * 3
        for key in (x,) if memory is None else (x, memory):
            check_attention_inputs(x, key, key, widths, batch_first)
    here = Arrangement.of(x, batch_first)
    there = here if memory is None else Arrangement.of(memory, batch_first)

    def arranged(given: Masks, keys: Arrangement) -> Rule:
        if layer is None:
            return EVERYTHING
        sizes = here.batch, layer.self_attn.config.num_heads, here.length, keys.length
        return masks.arranged(*given, sizes, host_dtype(x))

    seen = None
    if memory is not None:
        seen = Memory(there.rows(memory), there.cu_seqlens, arranged(other, there))
    context = Context(
        cu_seqlens=here.cu_seqlens, rule=arranged(own, here), memory=seen, rng=here.rng(rng)
    )
    y, run_backward = module.run(here.rows(x), context)

    @single_use
    def backward(dy: Array) -> Any:
        check_gradient(dy, x.shape)
        drows, dmemory = run_backward(here.rows(dy))
        dx = here.undo(drows)
        if memory is None:
            return dx
        if dmemory is None:
            return dx, namespace(memory).zeros_like(memory)
        return dx, there.undo(dmemory)

    return here.undo(y), backward


def _check_parts(module: Module) -> None:
    """Raise `TypeError` for a part that overrides `forward` alone, where only `run` is called."""
    for name, inner in module.named_modules():
        kind: Any = type(inner)  # a class has a hash, which mypy denies
        if not _only_forward(kind):
            continue
        path = name.split(".")
        if name and path[0] != "norm" and "activation" not in path:  # those are called
            raise TypeError(
                f"{name} is a {kind.__name__}, whose forward would not be called: "
                f"{rule('subclasses')}"
            )


@cache
def _only_forward(kind: type[Module]) -> bool:
    """Return whether a class overrides `forward` but not `run`, which is what stacks call.

    A `Dropout` has no `run`: layers read its p, so an overridden `forward` is ignored as well.
    """
    forward, run = (
        getattr(getattr(kind, name, None), "__module__", "").startswith("pellucid.")
        for name in ("forward", "run")
    )
    return not forward and (run or issubclass(kind, Dropout))


def _own_rng(site: int, rng: Rng | None) -> dict[str, Any]:
    """Return {"rng": the rng folded with `site`}, or {} without an rng.

    So a custom part that does not accept `rng` still works without one.
    """
    return {} if rng is None else {"rng": rng.fold(site)}


class Transformer(Module):
    """An encoder and a decoder stack, each followed by a norm, as torch.nn.Transformer.

    `backward(dy)` returns (dsrc, dtgt). A custom encoder is any Module whose
    `forward(src, mask, src_key_padding_mask, is_causal)` returns (memory, backward); `rng` is
    passed only if one is given. A custom decoder is called like `TransformerDecoder.forward`; its
    backward returns (dtgt, dmemory). With a seed, the matrices of custom parts are initialised anew
    too, as in torch. Source: Vaswani et al. 2017; article 002.

    >>> import numpy as np
    >>> model = Transformer(8, 2, 1, 1, 11, batch_first=True).eval()
    >>> model(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
    (3, 7, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = float32,
        seed: int | None = 0,
    ) -> None:
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                 norm_first, bias)  # fmt: skip
        custom = [each for each in (custom_encoder, custom_decoder) if each is not None]
        for each in custom:
            if not isinstance(each, Module):
                raise TypeError(f"{each!r} cannot be a part of Transformer. {rule('custom parts')}")
        encoder, decoder = custom_encoder, custom_decoder
        encoder_norm, decoder_norm = (
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)
        )
        if encoder is None:
            encoder_layer = TransformerEncoderLayer(*layer, dtype=dtype, seed=None)
            encoder = TransformerEncoder(encoder_layer, num_encoder_layers, encoder_norm)
        if decoder is None:
            decoder_layer = TransformerDecoderLayer(*layer, dtype=dtype, seed=None)
            decoder = TransformerDecoder(decoder_layer, num_decoder_layers, decoder_norm)
        self.encoder, self.decoder = encoder, decoder
        self._initialise_as_torch(seed, custom)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _initialise_as_torch(self, seed: int | None, custom: list[Module]) -> None:
        """Initialise all matrices by Xavier's method; custom parts keep their vectors.

        The other vectors are initialised too. With the seed None nothing is drawn.
        """
        vectors = [p for each in custom for p in each.parameters() if len(p.shape) < 2]
        kept = [p.data for p in vectors]
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                parameter.init = xavier_uniform
        self.initialise(seed)
        for parameter, data in zip(vectors, kept, strict=True):
            parameter.data = data

    generate_square_subsequent_mask = staticmethod(masks.generate_square_subsequent_mask)

    def forward(
        self,
        src: Annotated[Array, "* E"],
        tgt: Annotated[Array, "… E"],
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> tuple[Annotated[Array, "… E"], Backward]:
        """Run encoder and decoder; return (y, backward).

        src: (S, N, E), tgt: (L, N, E); (N, S, E) and (N, L, E) with batch_first; or both without N.
        y has the shape of tgt. The masks are those of `MultiheadAttention.forward`. Raises
        `ValueError` when src and tgt have different batch sizes or numbers of axes, when either has
        not the width E = d_model, and in training with dropout and no `rng`.
        """
        namespace(src, tgt)  # raises TypeError for anything but arrays
        self._check(src, tgt)
        with inside("encoder"):
            memory, encoder_backward = self.encoder.forward(
                src,
                mask=src_mask,
                src_key_padding_mask=src_key_padding_mask,
                is_causal=src_is_causal,
                **_own_rng(0, rng),
            )
        with inside("decoder"):
            y, decoder_backward = self.decoder.forward(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
                **_own_rng(1, rng),
            )

        @single_use
        def backward(dy: Array) -> tuple[Array, Array]:
            dtgt, dmemory = decoder_backward(dy)
            return encoder_backward(dmemory), dtgt

        return y, backward

    def _check(self, src: Array, tgt: Array) -> None:
        """Raise `ValueError` unless the shapes of src and tgt fit each other and d_model."""
        if src.ndim != tgt.ndim or src.ndim not in (2, 3):
            raise ValueError(
                f"src and tgt must both have 3 axes, or both 2 without a batch; got {src.shape} "
                f"and {tgt.shape}"
            )
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ValueError(
                f"src and tgt must have the same batch, axis {batch} "
                f"(batch_first={self.batch_first}); got {src.shape} and {tgt.shape}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(
                f"src and tgt must be d_model = {self.d_model} wide; got {src.shape} and "
                f"{tgt.shape}"
            )
