"""BART, and encoder-decoders like it: what their pages cannot say."""

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.interop.families.family import Family, Foreign, Settings, Table
from pellucid.models.positions import POSITIONS

AXES = {
    **dict.fromkeys(("tokens.weight", "in_proj_weight", "linear1.weight", "output.weight"), 1),
    **dict.fromkeys(("out_proj.weight", "out_proj.bias", "linear2.weight", "linear2.bias"), 0),
}
"""By the end of an array's name, its axis of the model's width; norms have no other."""


class Bart(Family):
    """BART; Marian has two vocabularies (`apart_vocabularies`)."""

    def read(self, theirs: Foreign) -> Settings:
        """Return its vocabularies and tables, and the factor of the tokens."""
        for name in ("attention_heads", "ffn_dim"):
            theirs.only(f"decoder_{name}", theirs.whole(f"encoder_{name}"))
        target, tie = theirs.whole("vocab_size"), "all"
        shares = "share_encoder_decoder_embeddings"
        if self.page["apart_vocabularies"] and not theirs.flag(shares, True):
            target = theirs.whole("decoder_vocab_size", target)
            tie = "output" if theirs.flag("tie_word_embeddings", True) else "none"
        else:
            for name in ("tie_word_embeddings", shares):
                theirs.only(name, True)
            theirs.only("decoder_vocab_size", target)
        scale = "sqrt_d_model" if theirs.flag("scale_embedding", False) else 1.0
        return {"target_vocab_size": target, "tie_embeddings": tie, "embedding_scale": scale}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the tables: one for both sides, or one each."""
        source, target = self.page["names"]["source.tokens.weight"], self.page["tied"]
        if config.ties_source:
            source = target = "shared.weight"
        output: Table = {"output.weight": target} if config.ties_output else {}
        return {"source.tokens.weight": source, "target.tokens.weight": target, **output}


class Pegasus(Bart):
    """Pegasus."""

    def write(self, config: Any) -> Settings:
        """Return what it says of both stacks, and of its tokens and tables."""
        return {
            "decoder_attention_heads": config.num_attention_heads,
            "decoder_ffn_dim": config.ffn_dim,
            "scale_embedding": config.embedding_scale == "sqrt_d_model",
            "bos_token_id": config.bos_token_id,
            "forced_eos_token_id": None,
            "tie_word_embeddings": True,
        }

    def rewritten(self, config: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return a model that computes the same with all sines of its positions before all cosines.

        Nothing depends on the order of the features that the layers pass on: all that reads or
        writes them gets the other order. A model without such a table is returned as it is.
        """
        if config.positions != "sinusoidal":
            return config, state
        width = config.d_model
        order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
        moved = {}
        for name, array in state.items():
            ends = [axis for end, axis in AXES.items() if name.endswith(end)]
            owner = name.rpartition(".")[0].rpartition(".")[2]
            # a norm of heads' width, or of one number, is refused by its setting's name
            norm = "norm" in owner and array.shape == (width,)
            axis = ends[0] if ends else 0 if norm else None
            moved[name] = array if axis is None else np.take(array, order, axis)
        return replace(config, positions="sinusoidal_halves"), moved

    def further(self, config: Any) -> dict[str, Any]:
        """Return the tables that transformers misses aloud, and then makes itself."""
        table = POSITIONS["sinusoidal_halves"].table
        assert table is not None
        sines = table(config.max_position_embeddings, config.d_model).astype(np.float32)
        return {f"{stack}.embed_positions.weight": sines.copy() for stack in ("encoder", "decoder")}
