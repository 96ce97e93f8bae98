"""The scores that compare answers with references, and which way each is better."""

from __future__ import annotations

SCORES = {
    "error_rates": {"per": False, "wer": False},
    "bleu": {"bleu": True, "bleu_lower": True, "chrf": True},
}
"""The held-out scores that each `evaluation.metric` gives, and whether a higher one is better."""

HIGHER_IS_BETTER = {"loss": False} | {
    name: higher for scores in SCORES.values() for name, higher in scores.items()
}
