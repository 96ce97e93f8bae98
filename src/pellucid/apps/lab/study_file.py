"""Study files: found by name or path, read strictly, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.points import variants as points
from pellucid.apps.lab.study import FORMAT, Change, Plan, Study
from pellucid.apps.lab.study_checks import check_name, check_study
from pellucid.apps.lab.trial import file_tokenizers
from pellucid.core.errors import UsageError, UserError
from pellucid.core.files import MOST_BYTES, check_file
from pellucid.core.settings import from_mapping, nearest, read_toml
from pellucid.training.config import RunConfig, load_recipe


def study_names() -> list[str]:
    """Return the names of the studies that come with Pellucid."""
    names = [entry.name for entry in (files("pellucid") / "studies").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_study(name: str) -> Study:
    """Return a study by name, or from a TOML file.

    Raises `UsageError` when there is none (suggesting the nearest), and for the first error in it.
    """
    path = Path(name)
    if path.suffix != ".toml":
        if name not in study_names():
            raise UsageError(
                f"no study or TOML file {name!r}{nearest(name, study_names())}; studies: "
                f"{', '.join(study_names())}"
            )
        # Studies are files of the package, which is never zipped: tokenizers are next to them.
        path = Path(str(files("pellucid") / "studies" / f"{name}.toml"))
    return replace(read_study(path), typed=name)


def read_study(path: Path) -> Study:
    """Read a study file. Raises `UsageError` as `load_study` does."""
    values = read_toml(path)
    settings = values.pop("settings", {})
    tables = values.pop("changes", {})
    grid, random = values.pop("grid", {}), values.pop("random", {})
    if values.get("format") != FORMAT:
        raise UsageError(
            f"{path}: study format {values.get('format')!r}, this Pellucid reads format = {FORMAT}"
        )
    values.setdefault("measures", list(MEASURES))
    plan = from_mapping(Plan, values, str(path), beside=("settings", "changes", "grid", "random"))
    check_name(plan.base, f"{path}, base")
    _check_table(
        tables, f"{path}, changes", '[changes.NAME] with set.model.attention_scale = "d_k"'
    )
    recipe = str(path.parent / plan.recipe) if plan.recipe.endswith(".toml") else plan.recipe
    base = _set(settings, f"{path}, settings", load_recipe(recipe))
    changes = {plan.base: Change(plan.about_base)}
    variants = {plan.base: base}
    for change, table in tables.items():
        where = f"{path}, changes.{change}"
        check_name(change, f"{path}, changes")
        if change in variants:
            raise UsageError(f"{where}: this is the name of the base; choose another")
        if not isinstance(table, Mapping) or not isinstance(table.get("set"), Mapping):
            raise UsageError(f"{where}: say what it sets: set.model.attention_scale = …")
        rest = {key: value for key, value in table.items() if key != "set"}
        changes[change] = from_mapping(Change, rest, where)
        variants[change] = _set(table["set"], where, base)
    for name, values in points(grid, random, str(path)):
        check_name(name, f"{path}, grid or random")
        config = _set(values, f"{path}, {name}", base)
        if config not in variants.values():  # the base may be a point of the grid
            if name in variants:
                raise UsageError(
                    f"{path}: {name} is the name of two variants; rename one, or put one of the "
                    "settings into another study"
                )
            changes[name], variants[name] = Change(), config
    named = frozenset(variants) - {plan.base, *tables}
    try:
        tokenizer = _read_tokenizer(path.parent / plan.tokenizer, plan) if plan.tokenizer else ""
        source = path.read_text("utf-8")
        study = Study(path.stem, plan, changes, variants, named, tokenizer, source, str(path))
        check_study(study)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return study


def _set(values: Any, where: str, base: RunConfig) -> RunConfig:
    """Change settings; a seed is refused, since each run's own would replace it."""
    _check_table(values, where, "[settings.training] with epochs = 10")
    for name, table in (("seed", values), ("training.seed", values.get("training"))):
        if isinstance(table, Mapping) and "seed" in table:
            raise UsageError(
                f"{where}: {name}: seeds are the study's, the same for every variant; set them at "
                "the top of the file: seeds = [0, 1, 2]"
            )
    return from_mapping(RunConfig, values, where, base)


def _check_table(values: Any, where: str, example: str) -> None:
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: expected a table, as {example}; got {values!r}")


def _read_tokenizer(file: Path, plan: Plan) -> str:
    try:
        check_file(file, MOST_BYTES)
        text = file.read_text(encoding="utf-8")
        file_tokenizers(text, plan.frame_source)
        return text
    except OSError as error:
        wrong = str(error.strerror)
    except UnicodeDecodeError as error:
        wrong = f"not UTF-8 text (byte {error.start}); expected a tokenizer.json of Hugging Face's"
    except UserError as error:
        wrong = str(error)
    raise UsageError(f"tokenizer: {file}: {wrong}")
