"""GPT-2: whatever its TOML file cannot express."""

from pellucid.interop.families.family import Family, Foreign, Settings


class Gpt2(Family):
    """Reads GPT-2 checkpoints."""

    def given(self, theirs: Foreign) -> Settings:
        """Return the feed-forward width and the number of positions.

        The width is 4 · n_embd by default; older files call the positions n_ctx.
        """
        return {
            "n_inner": theirs.whole("n_inner", 4 * theirs.whole("n_embd")),
            "n_positions": theirs.whole("n_positions", theirs.whole("n_ctx", 1024)),
        }

    def read(self, theirs: Foreign) -> Settings:
        """Return the divisor of attention scores: √d_k or none."""
        scaled = theirs.flag("scale_attn_weights", True)
        return {"attention_scale": "sqrt_d_k" if scaled else "none"}
