"""torch.nn.Transformer: an encoder stack, a decoder stack, the same names and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.core.rng import Rng
from pellucid.nn import functional, masks
from pellucid.nn.decoder import TransformerDecoder, TransformerDecoderLayer
from pellucid.nn.differences import rule
from pellucid.nn.encoder import TransformerEncoder, TransformerEncoderLayer
from pellucid.nn.layers import LayerNorm
from pellucid.nn.module import Array, Forward, Module, single_use, xavier_uniform
from pellucid.nn.recorder import Recorder


def _handed_down(
    part: str, site: int, rng: Rng | None, recorder: Recorder | None
) -> dict[str, Any]:
    """Return a part's own rng and recorder, if there are any: a custom part may know neither."""
    given: dict[str, Any] = {} if rng is None else {"rng": rng.fold(site)}
    return given if recorder is None else given | {"recorder": recorder.inside(part)}


class Transformer(Module):
    """Encoder and decoder stacks with a norm after each. torch.nn.Transformer's arguments.

    `backward(dy)` returns (dsrc, dtgt). A custom encoder is any Module whose
    `forward(src, mask, src_key_padding_mask, is_causal)` returns (memory, backward); a custom
    decoder one whose backward returns (dtgt, dmemory). Source: Vaswani et al. 2017; seed 002.

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
        dtype: Any = np.float32,
        seed: int | None = 0,
    ) -> None:
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                 norm_first, bias)  # fmt: skip
        for part in (custom_encoder, custom_decoder):
            if part is not None and not isinstance(part, Module):
                raise TypeError(f"{part!r} cannot be a part of Transformer. {rule('custom parts')}")
        self.encoder: Module
        self.decoder: Module
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, dtype=dtype, seed=None),
                num_encoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, dtype=dtype, seed=None),
                num_decoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype),
            )
        self._initialise_as_torch(seed, [custom_encoder, custom_decoder])
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _initialise_as_torch(self, seed: int | None, custom: list[Module | None]) -> None:
        """Draw every matrix anew, Xavier; a custom part keeps its vectors (biases, norms)."""
        parts = [part for part in custom if part is not None]
        vectors = [p for part in parts for p in part.parameters() if len(p.shape) < 2]
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
        src: Array,
        tgt: Array,
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
        recorder: Recorder | None = None,
    ) -> Forward:
        """Return (y, backward); masks as in `MultiheadAttention.forward`.

        Raises `ValueError` when src and tgt differ in batch, or either is not d_model wide.
        """
        self._check(src, tgt)
        memory, encoder_backward = self.encoder.forward(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
            **_handed_down("encoder", 0, rng, recorder),
        )
        y, decoder_backward = self.decoder.forward(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
            **_handed_down("decoder", 1, rng, recorder),
        )

        @single_use
        def backward(dy: Array) -> tuple[Array, Array]:
            dtgt, dmemory = decoder_backward(dy)
            if dmemory is None:  # a decoder without layers never looks at memory
                dmemory = np.zeros_like(memory)
            return encoder_backward(dmemory), dtgt

        return y, backward

    def _check(self, src: Array, tgt: Array) -> None:
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
