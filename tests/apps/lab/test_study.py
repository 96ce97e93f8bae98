"""A study file: what is planned from it, and every error in it named."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.apps.lab.small import STUDY, write_study

from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.study import flat_settings, select_trials
from pellucid.apps.lab.study_file import load_study, read_study, study_names
from pellucid.core.errors import UsageError
from pellucid.optim.config import OptimizerConfig
from pellucid.training.config import RunConfig, TrainingConfig

PROBES = "probe_steps = [0, 3]"
TABLES = STUDY[STUDY.index(PROBES) :]


def test_runs_are_seeds_before_variants_and_differ_in_the_change_alone(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    trials = study.trials()
    assert [(t.change, t.seed) for t in trials] == [
        *[("sqrt", 0), ("linear", 0), ("none", 0)],
        *[("sqrt", 1), ("linear", 1), ("none", 1)],
        *[("sqrt", 2), ("linear", 2)],
    ]
    assert len({t.id for t in trials}) == len(trials)
    base, linear = trials[0].config, trials[1].config
    assert (base.model.attention_scale, linear.model.attention_scale) == ("sqrt_d_k", "d_k")
    assert base.data == linear.data
    assert base.training == linear.training
    assert {(t.seed, t.config.seed, t.config.training.seed) for t in trials} == {
        (s, s, s) for s in range(3)
    }


def test_a_study_that_names_no_measures_has_those_of_the_lab(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    load_study("exponent")  # brings a measure of its own, which is no other study's
    again = read_study(write_study(tmp_path))
    assert "exponents" in MEASURES
    shipped = ("attention", "memory", "embeddings", "gradients", "dead_units")
    for read in (study, again):
        assert read.plan.measures == read.trials()[0].plan.measures == shipped
    none = STUDY.replace(PROBES, "measures = []")
    assert read_study(write_study(tmp_path, none)).plan.measures == ()


def test_any_prefix_of_a_shipped_study_is_balanced() -> None:
    for name in study_names():
        study = load_study(name)
        seen: Counter[str] = Counter()
        for trial in study.trials():
            seen[trial.change] += 1
            waiting = [v for v in study.variants if seen[v] < len(study.seeds_of(v))]
            assert max(seen.values()) - min((seen[v] for v in waiting), default=9) <= 1, name


def test_the_study_of_article_003_has_its_variants() -> None:
    study = load_study("article-003")
    assert len(study.seeds_of("sqrt_d_k")) == len(study.seeds_of("d_k")) == 5
    model = study.variants["positions_and_d_k"].model
    assert (model.embedding_scale, model.position_scale) == (1.0, "1/sqrt_d_model")
    assert study.variants["sqrt_d_k"].training.epochs == 50
    assert '"WordPiece"' in study.tokenizer


def test_a_name_stays_when_the_description_changes_and_not_when_a_setting_does(
    tmp_path: Path,
) -> None:
    first = read_study(write_study(tmp_path)).trials()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('description = "other words"\n' + recipe.read_text())
    assert [t.id for t in read_study(tmp_path / "scale.toml").trials()] == [t.id for t in first]
    recipe.write_text(recipe.read_text().replace("ffn_dim = 17", "ffn_dim = 19"))
    again = read_study(tmp_path / "scale.toml").trials()
    assert not {t.id for t in again} & {t.id for t in first}


def test_a_base_without_a_name_is_called_recipe(tmp_path: Path) -> None:
    file = write_study(tmp_path)
    text = re.sub(r"(?m)^base = .*$", "", file.read_text())
    file.write_text(text)
    assert next(iter(read_study(file).variants)) == "recipe"


@pytest.mark.parametrize(
    "before, after, reported",
    [
        (
            'set.model.attention_scale = "d_k"',
            "set.model.atention_scale = 1.0",
            "unknown setting model.atention_scale (did you mean attention_scale?)",
        ),
        (
            'set.model.attention_scale = "none"',
            'set.model.attention_scale = "d_k"',
            "linear and none train the same model: they have the same settings",
        ),
        (
            'set.model.attention_scale = "none"',
            "set.model.dropout = 0.1",
            "sqrt and none train the same model: they have the same settings",
        ),
        (
            '"valid_loss"]',
            '"valid_los"]',
            "no metric 'valid_los' (did you mean valid_",
        ),
        ('"valid_loss"]', '"bleu"]', 'do not write bleu; it needs evaluation.metric = "bleu"'),
        (
            'metrics = ["train_loss", "valid_loss"]',
            'metrics = ["valid_loss"]',
            "train_loss is used but not among metrics",
        ),
        ('change = "linear"', 'change = "liner"', "change 'liner' (did you mean linear?)"),
        ('change = "linear"', 'change = ""', "no variant for primary.change given"),
        ("seeds = 2", "seeds = 4", "changes.none.seeds: expected 1 to 3"),
        ("seeds = [0, 1, 2]", "seeds = [0, 1, 1]", "expected different numbers"),
        ("seeds = [0, 1, 2]", "seeds = [0, 1, 4294967296]", "numbers from 0 to 4294967295, got"),
        (
            "[changes.linear]",
            '[[bounds]]\nchange = "linear"\nmetric = "train_loss"\nclaim = "low"\n[changes.linear]',
            "bounds: 'low' bounds nothing; set at_least or at_most",
        ),
        ("format = 1", "format = 2", "study format 2, this Pellucid reads format = 1"),
        ("[changes.none]", "[changes.sqrt]", "this is the name of the base"),
        ("minutes_per_run = 0.1", "", "scale.toml: minutes_per_run is missing; expected a number"),
        ("minutes_per_run = 0.1", "minutes_per_run = 0", "minutes_per_run must be above 0"),
        ('set.model.attention_scale = "none"', "", "changes.none: say what it sets"),
        ("probe_steps", "probe_step", "unknown setting probe_step (did you mean probe_steps?)"),
        (
            '["train_loss", "valid',
            '["train_loss", "train',
            "each once; got ['train_loss', 'train_lo",
        ),
        ('set.model.attention_scale = "none"', "set.seed = 7", "changes.none: seed: seeds are the"),
        (
            'set.model.attention_scale = "none"',
            "set.training.seed = 9",
            "changes.none: training.seed: seeds are the study's",
        ),
        (PROBES, "settings.training.seed = 9", "settings: training.seed: seeds are the study's"),
        # the clock
        (
            'set.model.attention_scale = "none"',
            "set.training.minutes = 0.5",
            "none: training.minutes = 0.5 may end its runs, and then machine load "
            "would affect the comparison; set epochs or steps, and minutes = 10000 in [settings.",
        ),
        (
            '"recipe.toml"',
            '"chatbot-ko"',
            "only the clock ends its runs; set epochs or steps, and minutes = 10000 in",
        ),
        (
            'set.model.attention_scale = "none"',
            'set.start.folder = "model"',
            "none: a study's runs begin with new models; leave out [start]",
        ),
        ('"recipe.toml"', '"gpt-ko"', "the lab trains encoder-decoders, not model_type"),
        (
            'set.model.attention_scale = "none"',
            "set.model.eos_token_id = 3",
            "none: model.pad_token_id, bos_token_id and eos_token_id must be 0, 1 and 2, as in",
        ),
        # names
        ('"sqrt"', '""', "base: a name begins with a letter or a digit"),
        ('"sqrt"', '"a/b"', "base: a name begins"),
        ('"sqrt"', '"a<b"', "base: a name begins"),
        ('"sqrt"', "'p_0.5 $x_{$'", "base: a name begins"),
        ('"sqrt"', '"a\\n"', r"digits and . ^ + - _; got 'a\n'"),
        ("[changes.none]", "[changes._none]", "changes: a name begins with a letter"),
        ("[changes.none]", '[changes."-x"]', "^ + - _; got '-x'"),
        ("[changes.none]", "[chagnes.none]", "unknown setting chagnes (did you mean changes?)"),
        (PROBES, "setings.data.held_out = 0.1", "unknown setting setings (did you mean settings?)"),
        ("claim =", 'expect = "less"\nclaim =', 'expected one of "", lower, higher, got'),
        # what is no table
        (PROBES, "settings = 3", "settings: expected a table, as [settings.training] with epochs"),
        (PROBES, "settings = [1]", "settings: expected a table, as [settings.training]"),
        (TABLES, "changes = 3", "changes: expected a table, as [changes.NAME] with set.model."),
        # measures
        (
            PROBES,
            'measures = ["atention"]',
            "no measure 'atention' (did you mean attention?); there are: ",
        ),
        (
            '"valid_loss"]',
            '"dead_units"]\nmeasures = ["attention"]',
            "dead_units needs the measure 'dead_units'; add it to measures",
        ),
        # comparisons
        ('change = "linear"', 'change = "sqrt"', "primary: sqrt is compared with itself"),
        (
            'change = "linear"',
            'change = "linear"\nagainst = "linear"',
            "primary: linear is compared with itself",
        ),
        (
            'about = "scores / d_k"',
            'against = "linear"',
            "changes.linear.against: linear is compared with itself",
        ),
        (
            "[changes.linear]",
            '[[primary]]\nchange = "sqrt"\nagainst = "linear"\nmetric = "train_loss"\n'
            "[changes.linear]",
            "primary: sqrt and linear are compared twice by train_loss",
        ),
        # metrics that no run can write
        (PROBES, "settings.data.held_out = 0.0", "runs of sqrt do not write valid_loss, because"),
        (
            '"valid_loss"]',
            '"test_loss"]',
            "write test_loss, because they have no test pairs",
        ),
        (
            '"valid_loss"]',
            '"per"]\nsettings.evaluation.metric = "error_rates"\nsettings.data.held_out = 0.0',
            "because they have no validation pairs or test pairs; set data.held_out or",
        ),
        # tokenizers
        (PROBES, "frame_source = true", "frame_source needs a tokenizer"),
        (PROBES, 'tokenizer = "no.json"', "no.json: cannot be read: No such file"),
        (PROBES, 'tokenizer = "pairs.tsv"', "pairs.tsv: the study's tokenizer is damaged"),
        (PROBES, 'tokenizer = "latin.json"', "latin.json: is damaged (not UTF-8)"),
    ],
)
def test_errors_in_a_study_are_named(
    tmp_path: Path, before: str, after: str, reported: str
) -> None:
    assert before in STUDY
    (tmp_path / "latin.json").write_bytes(b"{\xff}")
    path = write_study(tmp_path, STUDY.replace(before, after))
    with pytest.raises(UsageError) as error:
        read_study(path)
    assert reported in str(error.value)
    assert "scale.toml" in str(error.value)


def test_two_variants_compared_with_each_other_are_refused(tmp_path: Path) -> None:
    text = STUDY.replace('about = "scores / d_k"', 'against = "none"')
    with pytest.raises(UsageError, match="linear and none are each compared with the other"):
        read_study(write_study(tmp_path, text.replace("seeds = 2", 'against = "linear"')))


def test_every_contrast_of_a_shipped_study_appears_once_and_every_run_has_its_own_id() -> None:
    for name in study_names():
        study = load_study(name)
        asked = [(frozenset((c.change, c.against)), c.metric) for c, _ in study.contrasts()]
        assert len(set(asked)) == len(asked), name
        trials = study.trials()
        assert len({t.id for t in trials}) == len(trials), name


def test_a_contrast_turned_round_in_primary_is_not_made_again(tmp_path: Path) -> None:
    text = STUDY.replace('change = "linear"', 'change = "sqrt"\nagainst = "linear"')
    made = list(read_study(write_study(tmp_path, text)).contrasts())
    assert [(c.change, c.against) for c, _ in made if c.metric == "train_loss"] == [
        ("sqrt", "linear"),
        ("none", "sqrt"),
    ]


def test_unknown_study_change_and_seed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no study.*did you mean article-003"):
        load_study("article-03")
    trials = read_study(write_study(tmp_path)).trials()
    assert [t.seed for t in select_trials(trials, ["none"], [])] == [0, 1]
    with pytest.raises(UsageError, match=r"no change 'linaer'.*did you mean linear"):
        select_trials(trials, ["linaer"], [])
    with pytest.raises(UsageError, match="no seed 7"):
        select_trials(trials, [], [7])
    with pytest.raises(UsageError, match=r"no run of none has seed 2; they have seeds 0, 1$"):
        select_trials(trials, ["none"], [2])


def test_the_example_of_the_docs_is_a_study_whose_names_are_true(tmp_path: Path) -> None:
    docs = Path(__file__).parents[3] / "docs" / "lab.md"
    example = re.findall(r"^```toml\n(.*?)^```", docs.read_text("utf-8"), re.S | re.M)[0]
    path = tmp_path / "dropout.toml"
    path.write_text(example, encoding="utf-8")
    study = read_study(path)
    assert {float(name): c.model.dropout for name, c in study.variants.items()} == {
        0.4: 0.4,
        0.2: 0.2,
    }
    assert study.plan.question == "Is half the dropout enough?"
    assert {c.training.epochs for c in study.variants.values()} == {10}


def test_a_setting_without_limit_can_be_written_as_json() -> None:
    settings = RunConfig(training=TrainingConfig(steps=1, optimizer=OptimizerConfig(clip=math.inf)))
    flat = flat_settings(settings)
    assert json.loads(json.dumps(flat, allow_nan=False))["training.optimizer.clip"] == "inf"


GRID = """
[grid]
model.d_model = [12, 24]
training.schedule.lr = [5e-3, 1e-2]
"""
RANDOM = """
[random]
count = 4
training.schedule.lr = [1e-4, 3e-4, 1e-3, 3e-3]
model.dropout = [0.0, 0.1, 0.2, 0.3, 0.4]
model.encoder_layers = [1, 2]
"""


def test_a_grid_has_every_combination_but_the_base_itself(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, STUDY + GRID))
    assert set(study.variants) - {"sqrt", "linear", "none"} == study.points
    assert study.points == {
        "d_model-12+lr-0.01",
        "d_model-24+lr-0.005",
        "d_model-24+lr-0.01",
    }
    both = study.variants["d_model-24+lr-0.01"]
    assert (both.model.d_model, both.training.schedule.lr) == (24, 0.01)
    assert both.data == study.variants["sqrt"].data


def test_random_points_are_of_their_lists_and_more_of_them_keep_the_first(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    few = read_study(write_study(tmp_path, STUDY + RANDOM))
    more = read_study(write_study(tmp_path, STUDY + RANDOM.replace("count = 4", "count = 20")))
    assert len(few.points) == 4
    assert few.points < more.points
    drawn = [more.variants[name] for name in more.points]
    rates = Counter(config.training.schedule.lr for config in drawn)
    assert set(rates) == {1e-4, 3e-4, 1e-3, 3e-3}
    assert max(rates.values()) - min(rates.values()) <= 2  # evenly
    assert {config.model.encoder_layers for config in drawn} == {1, 2}
    assert {config.model.dropout for config in drawn} == {0.0, 0.1, 0.2, 0.3, 0.4}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("[grid]\nmodel.d_model = 12", "grid: model.d_model: expected a list of values, got 12"),
        ("[grid]\nmodel.d_modl = [12]", "unknown setting model.d_modl .did you mean d_model"),
        ("[grid]\ntraining.seed = [1]", "seeds are the study's"),
        ("[random]\ncount = 2", "expected count, at least 1, and lists"),
        ("[random]\ncount = 2\nlog.model.d_model = [1, 2]", "unknown setting log"),
        ("[random]\ncount = 2\nmodel.norm = []", "expected a list of values"),
        (
            '[grid]\ntraining.epochs = [5, 7]\n[changes."epochs-7"]\nset.model.dropout = 0.5',
            "epochs-7 is the name of two variants",
        ),
    ],
)
def test_a_wrong_grid_or_range_is_named(tables: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read_study(write_study(tmp_path, f"{STUDY}\n{tables}\n"))


FILES = """
format = 1
question = "Which language is hard?"
recipe = "g2p-small"
seeds = [0, 1]
metrics = ["per"]
minutes_per_run = 0.1

[files]
train = "_train.tsv"
test = "_test.tsv"
"""


def test_data_sets_of_the_folder_are_variants_that_nothing_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "medium").mkdir()
    for name in ("hun_train.tsv", "medium/dut_train.tsv.gz", "hun_train.tsv.old", "kor_dev.tsv"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.toml"
    path.write_text(FILES, encoding="utf-8")
    study = read_study(path)
    assert {name: config.data.train for name, config in study.variants.items()} == {
        "dut": (Path("medium/dut_train.tsv.gz"),),
        "hun": (Path("hun_train.tsv"),),
    }
    assert study.variants["dut"].data.test == (Path("medium/dut_test.tsv.gz"),)
    assert [(t.change, t.seed) for t in study.trials()] == [
        ("dut", 0), ("hun", 0), ("dut", 1), ("hun", 1)
    ]  # fmt: skip
    assert list(study.contrasts()) == []


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ('train = "_train', 'tran = "_train', 'files: expected train = "_train.tsv", also valid'),
        ('"_test.tsv"', "3", 'files: expected train = "_train.tsv", also valid'),
        ("format", 'base = "hun"\nformat', "with [files] the files are the variants"),
        ("[files]", "[grid]\nmodel.d_model = [8]\n[files]", "with [files] the files are the"),
    ],
)
def test_errors_of_studies_of_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, reported: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.toml"
    path.write_text(FILES.replace(before, after), encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_study(path)
    assert reported in str(error.value)


def test_two_data_sets_of_one_name_are_refused_and_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.toml"
    path.write_text(FILES, encoding="utf-8")
    with pytest.raises(UsageError, match="go to where they are, LANG_train"):
        select_trials(read_study(path).trials(), [], [])
    for folder in ("high", "low"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "eng_train.tsv").write_bytes(b"")
    with pytest.raises(UsageError, match="eng is the name of two sets of files"):
        read_study(path)
