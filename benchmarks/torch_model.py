"""A `Seq2Seq` in PyTorch, fused where possible, for comparison in training benchmarks.

PyTorch is imported when such a model is made: the scripts without a comparison do not need it.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.models import Seq2SeqConfig


def torch_seq2seq(config: Seq2SeqConfig) -> tuple[Any, Callable[[Any, Any, Any], Any]]:
    """Return torch's modules, and a function that computes logits (N, L, V).

    It is `forward(source (N, S), target (N, L), padding (N, S) or None)`. The layers are torch's,
    with its fused attention. Of the settings it uses the sizes, activation, dropout (one for all),
    the place of the norms, the final norms and the positions.
    """
    torch = importlib.import_module("torch")
    nn, e, longest = torch.nn, config.d_model, config.max_position_embeddings

    def positions() -> Any:
        if config.positions == "learned":
            return nn.Embedding(longest, e)
        table = np.asarray(ops.sinusoidal(longest, e), np.float32)
        return nn.Embedding.from_pretrained(torch.from_numpy(table), freeze=True)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor")  # a matter of inference only
        transformer = nn.Transformer(
            e,
            config.num_attention_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.ffn_dim,
            config.dropout,
            config.activation_function,
            norm_first=config.norm == "pre",
            batch_first=True,
        )
    if not config.final_norm:
        transformer.encoder.norm = transformer.decoder.norm = None
    parts = nn.ModuleDict(
        {
            "source": nn.Embedding(config.source_vocab_size, e),
            "target": nn.Embedding(config.target_vocab_size, e),
            "source_positions": positions(),
            "target_positions": positions(),
            "transformer": transformer,
            "output": nn.Linear(e, config.target_vocab_size),
            "dropout": nn.Dropout(config.dropout),
        }
    )
    for parameter in parts.parameters():
        if parameter.dim() > 1 and parameter.requires_grad:
            nn.init.xavier_uniform_(parameter)

    def rows(side: str, ids: Any) -> Any:
        at = torch.arange(ids.shape[1], device=ids.device)
        return parts["dropout"](parts[side](ids) * e**0.5 + parts[f"{side}_positions"](at))

    def forward(source: Any, target: Any, padding: Any) -> Any:
        y = parts["transformer"](
            rows("source", source),
            rows("target", target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], device=target.device
            ),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return parts["output"](y)

    return parts, forward


class TorchTrainer:
    """One training step in PyTorch: cross-entropy, backward, clipping at 1, fused Adam.

    compiled: run forward and backward through torch.compile. pad: token of padding. narrow: compute
    under torch's autocast to bfloat16.
    """

    def __init__(
        self,
        config: Seq2SeqConfig,
        threads: int,
        compiled: bool = False,
        pad: int = 0,
        device: str = "cpu",
        narrow: bool = False,
    ) -> None:
        self._torch = torch = importlib.import_module("torch")
        torch.set_num_threads(threads)
        self.parts, forward = torch_seq2seq(config)
        self.parts.train().to(device)
        self._device, self._narrow = torch.device(device), narrow
        self._call = torch.compile(forward) if compiled else forward
        self._pad = pad
        self._parameters = [p for p in self.parts.parameters() if p.requires_grad]
        self._optimizer = torch.optim.Adam(self._parameters, lr=5e-4, fused=True)

    def step(self, source: np.ndarray, target: np.ndarray) -> float:
        """Train on padded ids, (N, S) and (N, L + 1); return the mean loss."""
        torch = self._torch
        x, y = (torch.from_numpy(ids).to(self._device) for ids in (source, target))
        padding = x == self._pad if (source == self._pad).any() else None
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._narrow):
            logits = self._call(x, y[:, :-1], padding)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=self._pad
            )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0, foreach=True)
        self._optimizer.step()
        return float(loss.detach())
