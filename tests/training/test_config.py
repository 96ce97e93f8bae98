from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import textwrap
from pathlib import Path

import pytest
import tomli_w

from pellucid.core.errors import UsageError
from pellucid.core.settings import from_mapping, to_mapping
from pellucid.generation import Constraints
from pellucid.models.config import CausalLMConfig, MaskedLMConfig, StackConfig
from pellucid.optim.config import OptimizerConfig, ScheduleConfig
from pellucid.system.files import read_toml
from pellucid.tasks import TASKS
from pellucid.training.config import (
    RunConfig,
    StartConfig,
    TokenizerConfig,
    TrainingConfig,
    load_recipe,
    recipe_names,
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"epochs": -1},
        {"minutes": 0.0},
        {"minutes": math.nan},
        {"accumulate": 0},
        {"log_every": 0},
        {"validate_every": 0},
        {"checkpoint_every": 0},
        {"patience": 0},
        {"keep": 0},
        {"average": 0},
        {"ema": 1.0},
        {"label_smoothing": 1.0},
        {"label_smoothing": -0.1},
        {"loss_normalisation": "tokens"},
        {"validate_unit": "hours"},
        {"use": "worst"},
    ],
)
def test_settings_out_of_range_are_named(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainingConfig(**wrong)


@pytest.mark.parametrize("size", [-1, 10**11])
def test_sizes_of_a_vocabulary_that_nothing_can_hold_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"vocab_size must be at least 1 and .* got {size}"):
        TokenizerConfig(vocab_size=size)


@pytest.mark.parametrize("model", [CausalLMConfig(), MaskedLMConfig()])
def test_a_model_of_one_text_has_no_tokenizer_of_the_target(model: StackConfig) -> None:
    with pytest.raises(UsageError, match=r"one tokenizer: leave tokenizer\.target_kind out"):
        RunConfig(model=model, tokenizer=TokenizerConfig(target_kind="char"))


@pytest.mark.parametrize(
    ("monitor", "higher"),
    [("loss", False), ("per", False), ("wer", False), ("bleu", True), ("bleu_lower", True),
     ("chrf", True), ("of my own", False)],
)  # fmt: skip
def test_which_way_is_better_follows_from_a_known_name(monitor: str, higher: bool) -> None:
    config = TrainingConfig(steps=1, monitor=monitor)
    config.check([monitor])
    assert config.higher_wins is higher


def test_another_score_says_itself_which_way_is_better() -> None:
    config = TrainingConfig(steps=1, monitor="of my own", higher_is_better=True)
    config.check(["of my own"])
    assert config.higher_wins


@pytest.mark.parametrize("monitor", ["loss", "per", "wer"])
def test_a_known_score_is_not_turned_round(monitor: str) -> None:
    config = TrainingConfig(steps=1, monitor=monitor, higher_is_better=True)
    with pytest.raises(UsageError, match=f"higher_is_better.*'{monitor}'.*lower.*leave it out"):
        config.check([monitor])


def test_settings_survive_toml(tmp_path: Path) -> None:
    config = TrainingConfig(
        minutes=1.5,
        patience=3,
        optimizer=OptimizerConfig("adamw", betas=(0.9, 0.98), clip=math.inf),
        schedule=ScheduleConfig("paper", warmup=4000),
    )
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(to_mapping(config)))
    assert from_mapping(TrainingConfig, read_toml(path), str(path)) == config
    assert to_mapping(from_mapping(TrainingConfig, read_toml(path), "x")) == to_mapping(config)


def test_enough_checkpoints_are_kept_to_average() -> None:
    assert TrainingConfig(keep=2, average=5).checkpoints_kept == 2
    assert TrainingConfig(keep=2, average=5, use="average").checkpoints_kept == 5


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_read_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe.data.corpus or name == "g2p-small"  # for a file of the user's own


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_survives_a_file(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(to_mapping(recipe)), encoding="utf-8")
    assert load_recipe(str(tmp_path / "config.toml")) == recipe
    assert load_recipe(str(tmp_path)) == recipe


def test_all_forms_of_a_word_go_to_one_side_of_a_split() -> None:
    group = TokenizerConfig(kind="features", normalise=("lowercase",)).group
    assert group("Walk\tV;PST") == group("walk\tV;PRS") != group("talk\tV;PST")
    assert TokenizerConfig(kind="char").group("a\tb") == "a b"
    assert TokenizerConfig(kind="features").target_kind == "char"


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
        ("[tokenizer]\ntarget_kind = 'features'", "features are the source's"),
        ("[evaluation]\nmetric = 'error_rate'", "did you mean error_rates"),
        ("[evaluation]\npairs = 0", "pairs must be at least 1"),
        ("[model]\nmax_position_embeddings = 64", "128 + 2 is more than 64"),
        ("[model]\ntie_embeddings = 'all'", "tokenizer.shared"),
    ],
)
def test_an_error_names_file_and_setting(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        from_mapping(RunConfig, read_toml(path), "mine.toml")
    assert "mine.toml" in str(caught.value)
    assert words in str(caught.value)


def test_every_setting_has_a_meaning() -> None:
    """The text under a field is its help; the field without one is found by reading the source."""

    def tables(kind: type) -> list[type]:
        inner = [f.default_factory for f in dataclasses.fields(kind)]
        return [kind, *(c for k in inner if dataclasses.is_dataclass(k) for c in tables(k))]

    read = [RunConfig, StartConfig, *(task.config_class for task in TASKS.values())]
    # The source of a class has the fields that it adds; what it inherits is in its bases.
    kinds = {base for kind in read for table in tables(kind) for base in table.__mro__}
    assert kinds >= {StackConfig, ScheduleConfig, Constraints}
    for kind in filter(dataclasses.is_dataclass, kinds):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for field, after in itertools.pairwise([*body, None]):
            if not isinstance(field, ast.AnnAssign) or "ClassVar" in ast.unparse(field.annotation):
                continue
            if not isinstance(field.value, ast.Call):
                assert isinstance(after, ast.Expr), f"{kind.__name__}: {ast.unparse(field)}"


@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.95, 0.99), (0.9, 1.0), (-0.1, 0.9)])
def test_betas_are_two_numbers_below_one(betas: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"betas must be two numbers in \[0, 1\)"):
        OptimizerConfig(betas=betas)  # type: ignore[arg-type]


def test_a_run_ends_at_the_first_limit_that_is_reached() -> None:
    config = TrainingConfig(steps=7, epochs=3, minutes=2.0)
    reached = {
        (6, 2.9, 119.0): None,
        (7, 2.9, 119.0): "7 steps",
        (8, 2.9, 119.0): "already past 7 steps",
        (6, 3.0, 119.0): "3 epochs",
        (6, 4.5, 119.0): "already past 3 epochs",
        (6, 2.9, 120.0): "2 minutes",
    }
    for (step, epochs, seconds), reason in reached.items():
        assert config.reason_to_stop(step=step, epochs=epochs, seconds=seconds) == reason
    assert TrainingConfig(epochs=1).reason_to_stop(step=99, epochs=0.5, seconds=9e9) is None
