"""T5, its version 1.1 and Flan: what their page cannot say."""

from dataclasses import replace
from typing import Any

from pellucid.interop.families.family import GATED, Family, Foreign, Row, Settings, Table
from pellucid.interop.families.family import their_activation as named
from pellucid.nn.blocks import gates_of


class T5(Family):
    """T5."""

    def given(self, theirs: Foreign) -> Settings:
        """Return the width of a head, which must be there, and the decoder's layers."""
        layers = theirs.whole("num_decoder_layers", theirs.whole("num_layers"))
        return {"d_kv": theirs.whole("d_kv"), "num_decoder_layers": layers}

    def read(self, theirs: Foreign) -> Settings:
        """Return its activation, whose name says whether it is gated."""
        written = theirs.text("feed_forward_proj", "relu")
        gated, name = written.startswith("gated-"), written.removeprefix("gated-")
        name = "gelu_new" if gated and name == "gelu" else name
        act = Foreign({"dense_act_fn": name}, theirs.path)
        return {"activation_function": (act.gated if gated else act.activation)("dense_act_fn", "")}

    def write(self, config: Any) -> Settings:
        """Return the name of its activation."""
        ours = config.activation_function
        plain = {gated: name for name, gated in GATED.items()}.get(ours)
        proj = f"gated-{named(plain)}" if plain else named(ours)
        return {"feed_forward_proj": proj, "tie_word_embeddings": True}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return its gates, and the norm that takes the division before the output layer.

        Older files say whether there is one by the tying.
        """
        found: dict[str, Row] = {}
        if gates_of(config.activation_function) > 1:
            for stack in ("encoder", "decoder"):
                name = f"{stack}.layers.#.linear1.weight"
                found[name] = self.page["names"][name].replace("wi", "{wi_0,wi_1}")
        if theirs.flag("scale_decoder_outputs", theirs.flag("tie_word_embeddings", True)):
            norm = self.page["names"]["decoder.norm.weight"]
            found["decoder.norm.weight"] = {"of": norm, "times": config.d_model**-0.5}
        return found

    def rewritten(self, config: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return a model that computes the same, its scales of scores and tokens in its weights.

        The output layer shares the table of the tokens; the norm before it takes the scale back.
        """
        queries, factor = config.num_attention_heads * config.head_width, config.token_factor
        config = replace(config, head_dim=config.head_width)
        if config.attention_scale != "learned":
            for name in state:
                if ".in_proj_" in name:
                    state[name] = state[name].copy()
                    state[name][:queries] *= config.score_factor
            config = replace(config, attention_scale="none")
        if config.tie_embeddings == "all" and config.final_norm:
            for name in ("source.tokens.weight", "target.tokens.weight", "output.weight"):
                state[name] = state[name] * factor
            state["decoder.norm.weight"] = state["decoder.norm.weight"] / factor
            config = replace(config, embedding_scale=1.0)
        return config, state
