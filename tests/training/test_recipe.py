from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
import tomli_w

from pellucid.core.errors import UsageError
from pellucid.core.settings import from_mapping, read_toml, to_mapping
from pellucid.training.recipe import RunConfig, load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_read_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe.data.corpus


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_survives_a_file(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(to_mapping(recipe)), encoding="utf-8")
    assert load_recipe(str(tmp_path / "config.toml")) == recipe
    assert load_recipe(str(tmp_path)) == recipe


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean chat-ko-small"):
        load_recipe("chat-ko-smal")


@pytest.mark.parametrize(
    "text, words",
    [
        ("[modle]\nd_model = 8", "unknown setting modle (did you mean model?)"),
        ("[training.schedule]\nlearning_rate = 1", "training.schedule.learning_rate"),
        ("[model]\nd_model = 10\nnum_attention_heads = 3", "[model] num_attention_heads must"),
        ("[data]\ncorpus = 'g2p'", "did you mean g2p-en"),
        ("[data]\nheld_out = 1.0", "held_out must be"),
        ("[data]\nvalid = ['v.tsv']", "need train files"),
        ("[data]\nbatch_size = 0", "batch_size must be at least 1"),
        ("[tokenizer]\nnormalise = ['nfcc']", "did you mean nfc"),
        ("[evaluation]\nmetric = 'error_rate'", "did you mean error_rates"),
        ("[evaluation]\npairs = 0", "pairs must be at least 1"),
        ("[model]\nmax_position_embeddings = 64", "128 + 2 is more than 64"),
        ("[model]\ntie_embeddings = 'all'", "tokenizer.shared"),
    ],
)
def test_a_fault_names_file_and_setting(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        from_mapping(RunConfig, read_toml(path), "mine.toml")
    assert "mine.toml" in str(caught.value)
    assert words in str(caught.value)


def test_every_setting_has_a_meaning() -> None:
    """The text under a field is its help; the field without one is found by reading the source."""
    import ast
    import inspect
    import textwrap

    def classes(kind: type) -> list[type]:
        inner = [f.default_factory for f in dataclasses.fields(kind)]
        return [kind, *(c for k in inner if isinstance(k, type) for c in classes(k))]

    for kind in {k for k in classes(RunConfig) if dataclasses.is_dataclass(k)}:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for field, after in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and not isinstance(field.value, ast.Call):
                assert isinstance(after, ast.Expr), f"{kind.__name__}: {ast.unparse(field)}"
