"""BART and similar encoder-decoders: whatever their TOML files cannot express."""

from typing import Any

from pellucid.interop.families.family import Family, Foreign, Settings, Table


class Bart(Family):
    """BART, Marian and Pegasus; Marian models may have two vocabularies.

    `apart_vocabularies` in the TOML file allows it.
    """

    def read(self, theirs: Foreign) -> Settings:
        """Return the settings of the vocabularies, of tied tables, and the embedding scale.

        Raises `UserError` if encoder and decoder differ in heads or ffn_dim and, with one shared
        vocabulary, for untied tables or another decoder_vocab_size.
        """
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
        """Return the names of the embedding tables, and of an output layer tied to one.

        The tables are one for both sides, or one for each.
        """
        source, target = self.page["names"]["source.tokens.weight"], self.page["tied"]
        if config.ties_source:
            source = target = "shared.weight"
        output: Table = {"output.weight": target} if config.ties_output else {}
        return {"source.tokens.weight": source, "target.tokens.weight": target, **output}
