"""The sizes that a model's arrays show are those of the config that it was made with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.models import test_causal_lm, test_masked_lm, test_seq2seq

from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.sizes import size_faults

EVERY: list[Any] = [
    pytest.param(kind, replace(module.BASE, **variant), id=f"{kind.__name__}: {name}")
    for kind, module in (
        (Seq2Seq, test_seq2seq),
        (CausalLM, test_causal_lm),
        (MaskedLM, test_masked_lm),
    )
    for name, variant in module.VARIANTS.items()
]
DEEP = ("encoder_layers", "decoder_layers", "num_hidden_layers")
WIDE = ("ffn_dim", "ffn_before", "ffn_after", "type_vocab_size", "d_model")
VOCABULARIES = ("source_vocab_size", "target_vocab_size", "vocab_size")


@pytest.mark.parametrize(("kind", "config"), EVERY)
def test_a_models_own_config_fits_and_one_of_other_sizes_does_not(kind: Any, config: Any) -> None:
    state = kind(config).state_dict()
    assert size_faults(config, state) == []
    sizes = [name for name in (*DEEP, *WIDE, *VOCABULARIES) if hasattr(config, name)]
    if config.positions == "learned":
        sizes.append("max_position_embeddings")
    for name in sizes:
        found = getattr(config, name)
        other = replace(config, **{name: found * 3 + 3}, **tied(config, name, found * 3 + 3))
        if name == "type_vocab_size" and not found:
            continue  # no table of segments: `load_state_dict` says that it is missing
        fault = f"{name} is {found * 3 + 3}, the weights have {found}"
        assert fault in size_faults(other, state)


def tied(config: Any, name: str, entries: int) -> dict[str, int]:
    """The other side's vocabulary, where one table is for both."""
    both = {"source_vocab_size": "target_vocab_size", "target_vocab_size": "source_vocab_size"}
    if name in both and config.ties_source:
        return {both[name]: entries}
    return {}


def test_arrays_of_no_model_are_left_to_the_model_to_tell() -> None:
    config = replace(test_seq2seq.BASE, encoder_layers=0, decoder_layers=0)
    assert size_faults(config, {}) == []
