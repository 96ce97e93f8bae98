"""Llama and similar decoders: whatever their TOML files cannot express."""

from pellucid.interop.families.family import Family, Foreign, Settings


class Llama(Family):
    """Reads Llama and Mistral checkpoints."""

    def given(self, theirs: Foreign) -> Settings:
        """Return the number of key and value heads; by default that of query heads."""
        heads = theirs.whole("num_attention_heads")
        return {"num_key_value_heads": theirs.whole("num_key_value_heads", heads)}

    def read(self, theirs: Foreign) -> Settings:
        """Return the gated activation and the settings of rotary positions.

        Raises `UserError` if only one of attention and feed-forward network has biases, for an
        activation without a gated form, and for rotary positions that are not supported.
        """
        if theirs.flag("mlp_bias", False) != theirs.flag("attention_bias", False):
            raise theirs.fault("attention_bias and mlp_bias differ; a model here has one setting")
        return {"activation_function": theirs.gated("hidden_act", "silu"), **_rotation(theirs)}


def _rotation(theirs: Foreign) -> Settings:
    """Return the settings of rotary positions, from older and newer config.json files."""
    values = {"rope_theta": theirs.values.get("rope_theta", 10000.0)}
    for name in ("rope_scaling", "rope_parameters"):
        given = theirs.values.get(name)
        values |= given if isinstance(given, dict) else {}
    rope = Foreign(values, theirs.path)
    rope.only("partial_rotary_factor", 1.0)
    kind = rope.text("rope_type", rope.text("type", "default"))
    settings: Settings = {"rope_theta": rope.number("rope_theta", 10000.0)}
    if kind in ("linear", "llama3"):
        settings["rope_factor"] = rope.number("factor", 1.0)
    if kind == "llama3":
        settings |= {
            "rope_low_freq_factor": rope.number("low_freq_factor", 1.0),
            "rope_high_freq_factor": rope.number("high_freq_factor", 4.0),
            "rope_original_positions": rope.whole("original_max_position_embeddings"),
        }
    if kind not in ("default", "linear", "llama3"):
        raise rope.fault(f"rope_type = {kind!r}; expected default, linear or llama3")
    return settings


class Qwen(Llama):
    """Reads checkpoints of Qwen 2 and 3."""

    def read(self, theirs: Foreign) -> Settings:
        """Return Llama's settings, and the sliding window that all layers share (or None).

        Raises `UserError` as `Llama.read`, and if only some layers have a window.
        """
        return super().read(theirs) | {"sliding_window": self._window(theirs)}

    def _window(self, theirs: Foreign) -> int | None:
        """Return the size of the sliding window, or None.

        Raises `UserError` if only some layers have one, or if a layer is of another kind.
        """
        if not theirs.flag("use_sliding_window", False):
            return None
        layers = theirs.whole("num_hidden_layers")
        full = min(theirs.whole("max_window_layers", 28), layers)
        kinds = theirs.values.get("layer_types") or [
            "full_attention" if i < full else "sliding_attention" for i in range(layers)
        ]
        if len(set(kinds)) > 1 or not {*kinds} <= {"full_attention", "sliding_attention"}:
            raise theirs.fault("only some layers have a sliding window; here all have it or none")
        return theirs.maybe_whole("sliding_window") if "sliding_attention" in kinds else None


class Gemma(Llama):
    """Reads Gemma checkpoints, of its first version."""

    def given(self, theirs: Foreign) -> Settings:
        """Return Llama's settings and the activation, which has two names in config.json.

        "gelu" in the first files means the tanh form, as in `transformers`. Raises `UserError` if
        the two names mean different functions.
        """
        tanh = "gelu_pytorch_tanh"
        given = [theirs.values.get(name) or tanh for name in ("hidden_act", "hidden_activation")]
        act, other = (tanh if name == "gelu" else name for name in given)
        if theirs.values.get("hidden_activation") and other != act:
            raise theirs.fault(
                f"hidden_activation = {given[1]!r} and hidden_act = {given[0]!r}, which "
                "transformers reads, name two functions; remove the wrong one or make them equal"
            )
        return super().given(theirs) | {"hidden_act": act}
