"""Seed 003's model in PyTorch, at PyTorch's best: the peer that every training benchmark runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn


class TorchSeq2Seq(nn.Module):
    """Learned positions, torch's own layers (its fused attention), no final norms."""

    def __init__(
        self, vocab: int, e: int, heads: int, layers: int, ffn: int, longest: int, dropout: float
    ) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, e), nn.Embedding(vocab, e)
        self.source_positions = nn.Embedding(longest, e)
        self.target_positions = nn.Embedding(longest, e)
        options: dict[str, Any] = {"dropout": dropout, "batch_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(e, heads, ffn, **options), layers
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(e, heads, ffn, **options), layers
        )
        self.output = nn.Linear(e, vocab)
        self.dropout, self.scale = nn.Dropout(dropout), e**0.5
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, padding: torch.Tensor | None
    ) -> torch.Tensor:
        at = torch.arange(max(source.shape[1], target.shape[1]))
        x = self.source(source) * self.scale + self.source_positions(at[: source.shape[1]])
        y = self.target(target) * self.scale + self.target_positions(at[: target.shape[1]])
        memory = self.encoder(self.dropout(x), src_key_padding_mask=padding)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        rows = self.decoder(
            self.dropout(y),
            memory,
            tgt_mask=causal,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits: torch.Tensor = self.output(rows)
        return logits


class TorchTrainer:
    """One training step: cross-entropy, backward, clipping at 1, Adam (fused)."""

    def __init__(self, model: TorchSeq2Seq, compiled: bool = False, pad: int = 0) -> None:
        self.model, self.pad = model.train(), pad
        self.call = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
        self.parameters = list(model.parameters())

    def step(self, source: np.ndarray, target: np.ndarray) -> float:
        """Train on padded ids (N, S) and (N, L + 1); return the mean loss."""
        x, y = torch.from_numpy(source), torch.from_numpy(target)
        padding = x == self.pad
        logits = self.call(x, y[:, :-1], padding if bool(padding.any()) else None)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=self.pad
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        return float(loss.detach())
