"""The model in PyTorch is the same model: our weights give it our loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.torch_model import TorchTrainer
from tests.oracles import oracle

from pellucid.core.batch import Batch, Packed
from pellucid.models import Seq2Seq, Seq2SeqConfig

pytestmark = pytest.mark.oracle("torch")
torch = oracle("torch")

ARTICLE = Seq2SeqConfig(
    17, 19, d_model=12, num_attention_heads=3, encoder_layers=2, decoder_layers=1, ffn_dim=11,
    positions="learned", max_position_embeddings=13, final_norm=False, dropout=0.0,
)  # fmt: skip
PAPER = replace(ARTICLE, norm="pre", final_norm=True, positions="sinusoidal")


def batch() -> Batch:
    draw = np.random.default_rng(0).integers
    return Batch(
        Packed.of([list(draw(3, 17, n)) for n in (7, 3, 5)]),
        Packed.of([[1, *draw(3, 19, n), 2] for n in (2, 8, 4)]),
    )


def theirs(name: str) -> str:
    """What torch's modules call one of our parameters."""
    side, _, rest = name.partition(".")
    if rest == "tokens.weight":
        return f"{side}.weight"
    if rest == "positions.weight":
        return f"{side}_positions.weight"
    return f"transformer.{name}" if side in ("encoder", "decoder") else name


@pytest.mark.parametrize("config", [ARTICLE, PAPER], ids=["article 003", "paper"])
def test_the_same_weights_give_the_same_loss(config: Seq2SeqConfig) -> None:
    model, trainer, some = Seq2Seq(config, seed=5), TorchTrainer(config, 1), batch()
    state = {theirs(n): torch.from_numpy(w.copy()) for n, w in model.state_dict().items()}
    missing, unexpected = trainer.parts.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"source_positions.weight", "target_positions.weight"}  # fixed tables
    assert bool(missing) == (config.positions == "sinusoidal")
    loss, _ = model.loss(some)
    padded = some.source.padded(0), some.target.padded(0)
    first = trainer.step(*padded)
    assert first == pytest.approx(loss.nats / loss.tokens, rel=1e-5)
    assert trainer.step(*padded) < first
