"""T5, its version 1.1, and Flan-T5: whatever their TOML file cannot express."""

from typing import Any

from pellucid.interop.families.family import Family, Foreign, Row, Settings, Table
from pellucid.nn.blocks import gates_of


class T5(Family):
    """Reads checkpoints of T5, its version 1.1, and Flan-T5."""

    def given(self, theirs: Foreign) -> Settings:
        """Return the width of a head, which is required, and the number of decoder layers."""
        layers = theirs.whole("num_decoder_layers", theirs.whole("num_layers"))
        return {"d_kv": theirs.whole("d_kv"), "num_decoder_layers": layers}

    def read(self, theirs: Foreign) -> Settings:
        """Return the activation; it is gated if `feed_forward_proj` begins with "gated-".

        "gated-gelu" is the tanh form. Raises `UserError` for an unknown activation.
        """
        written = theirs.text("feed_forward_proj", "relu")
        gated, name = written.startswith("gated-"), written.removeprefix("gated-")
        name = "gelu_new" if gated and name == "gelu" else name
        act = Foreign({"dense_act_fn": name}, theirs.path)
        return {"activation_function": (act.gated if gated else act.activation)("dense_act_fn", "")}

    def renamed(self, config: Any, theirs: Foreign) -> Table:
        """Return the names of gated projections, and the scale before the output layer.

        With `scale_decoder_outputs`, T5 divides the decoder's output by √d_model; that becomes part
        of the final norm's weight. In older files, without this setting, tied embeddings imply it.
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
