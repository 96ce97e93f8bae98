"""A model family is one record: what reads the records finds each, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid import nn
from pellucid.apps.view import attention
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.families import FAMILIES, ModelFamily, family_of
from pellucid.families.folder import load_model, save_model
from pellucid.generation import SearchConfig

each = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
SMALL = {"d_model": 6, "num_attention_heads": 3, "ffn_dim": 7, "max_position_embeddings": 17}


def test_families_are_found_by_their_config_s_model_type() -> None:
    assert {name: family.config.model_type for name, family in FAMILIES.items()} == {
        name: name for name in FAMILIES
    }


@each
def test_a_family_is_known_by_config_model_and_pipeline(family: ModelFamily) -> None:
    tokenizer = train_tokenizer(["abc"], "char")
    config = family.sized(family.config(**SMALL), [tokenizer])
    model = family.build(config, seed=1).eval()
    trained = family.assemble(model, [tokenizer], SearchConfig())
    assert isinstance(trained, family.pipeline)
    assert [family_of(x) for x in (config, model, trained)] == [family] * 3


@each
def test_a_model_of_every_family_is_saved_loaded_and_drawn(
    family: ModelFamily, tmp_path: Path
) -> None:
    tokenizers = [train_tokenizer(["abc"], "char"), train_tokenizer(["defgh"], "char")]
    config = family.sized(family.config(**SMALL), tokenizers[-len(family.vocabularies) :])
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers[-len(family.vocabularies) :]]
    assert family.tokens(config) == sizes
    model = family.build(config, seed=1).eval()
    made = family.assemble(model, tokenizers[-len(family.vocabularies) :], SearchConfig())
    save_model(tmp_path / "model", made, "")
    trained = load_model(tmp_path / "model")
    assert type(trained) is family.pipeline
    assert trained.model.config == config
    assert attention(trained, "abc" if len(sizes) == 2 else "def").record.maps


def test_what_is_of_no_family_is_refused_by_its_type() -> None:
    with pytest.raises(UserError, match="a Linear is of no model family"):
        family_of(nn.Linear(2, 3))
