"""Read study files: find them, parse them strictly, check them before any run.

Variants are named one by one, or made from lists of values: every combination, or random ones. Or
they are the data sets of a folder, all with one recipe.

    [grid]                                        [random]
    training.schedule.lr = [1e-3, 2e-3, 4e-3]     count = 8
    model.d_model = [64, 128]                     training.schedule.lr = [5e-4, 1e-3, 2e-3, 4e-3]
                                                  model.dropout = [0.0, 0.1, 0.2, 0.3]

    [files]                                       # NAME_train.tsv and so on, here or one down
    train = "_train.tsv"
    valid = "_dev.tsv"
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from pellucid.apps.lab.study import FORMAT, Change, Plan, Study
from pellucid.apps.lab.study_checks import check_name, check_study
from pellucid.apps.lab.trial import file_tokenizers
from pellucid.core.errors import UsageError, UserError, optional, pip_install, raised_as
from pellucid.core.parts import read
from pellucid.core.settings import check_known, flat, from_mapping
from pellucid.data.tokenizers import read_json_text
from pellucid.system.files import read_toml
from pellucid.training.config import RunConfig, load_recipe

PACKAGE = Path(__file__).parents[2]
SHIPPED = next(p for p in (PACKAGE / "studies", PACKAGE.parents[1] / "studies") if p.exists())
"""Folder of the studies that come with Pellucid: in the installed package, or in the checkout."""


Named = tuple[str, dict[str, Any]]
"""A variant's name, and its settings as nested tables."""


def study_names() -> list[str]:
    """Return the names of the studies that come with Pellucid."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_study(name: str) -> Study:
    """Read and check a study, given its name or a TOML file.

    Raises `UsageError` if there is none, suggesting the nearest name of a study, and for the first
    error in the file.
    """
    path = Path(name)
    if path.suffix != ".toml":
        check_known("study or TOML file", name, study_names())
        path = SHIPPED / f"{name}.toml"
    return replace(read_study(path), typed=name)


def read_study(path: Path) -> Study:
    """Read and check a study file, and import the Python files that it names.

    Raises `UsageError` for the first error in it.
    """
    values = read_toml(path)
    settings = values.pop("settings", {})
    tables = values.pop("changes", {})
    grid, random = values.pop("grid", {}), values.pop("random", {})
    sets = _data_sets(values.pop("files", {}), str(path))
    if values.get("format") != FORMAT:
        raise UsageError(
            f"{path}: study format {values.get('format')!r}, this Pellucid reads format = {FORMAT}"
        )
    beside = ("settings", "changes", "grid", "random", "files")
    values = {"base": "recipe" if sets is None else "", **values}
    plan = from_mapping(Plan, values, str(path), beside=beside)
    own = (str(_beside(path, file).absolute()) for file in plan.imports)
    plan = replace(plan, imports=(str(SHIPPED / "measures.py"), *own))
    for file in plan.imports:
        read(file)
    if sets is None:
        check_name(plan.base, f"{path}, base")
    elif plan.base or tables or grid or random:
        raise UsageError(f"{path}: with [files] the files are the variants; leave out all others")
    _check_table(
        tables, f"{path}, changes", '[changes.NAME] with set.model.attention_scale = "d_k"'
    )
    recipe = str(path.parent / plan.recipe) if plan.recipe.endswith(".toml") else plan.recipe
    base = _set(settings, f"{path}, settings", load_recipe(recipe))
    changes = {plan.base: Change(plan.about_base)} if sets is None else {}
    variants = {plan.base: base} if sets is None else {}
    for name, values in sets or ():
        check_name(name, f"{path}, files")
        if name in variants:
            raise UsageError(f"{path}: {name} is the name of two sets of files; move one away")
        plan = replace(plan, base=plan.base or name)  # the report prints its settings in full
        changes[name], variants[name] = Change(against=name), _set(values, str(path), base)
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
    for name, values in points_of(grid, random, str(path)):
        check_name(name, f"{path}, grid or random")
        config = _set(values, f"{path}, {name}", base)
        if config not in variants.values():  # the base may be a point of the grid
            if name in variants:
                raise UsageError(
                    f"{path}: {name} is the name of two variants; rename one, or put one of the "
                    "settings into another study"
                )
            changes[name], variants[name] = Change(), config
    named = frozenset(variants) - ({plan.base, *tables} if sets is None else set())
    with raised_as(UsageError, UsageError, where=str(path)):
        tokenizer = _read_tokenizer(path.parent / plan.tokenizer, plan) if plan.tokenizer else ""
        source = path.read_text("utf-8")
        study = Study(path.stem, plan, changes, variants, named, tokenizer, source, str(path))
        check_study(study)
    return study


def _data_sets(endings: Any, where: str) -> list[Named] | None:
    """Find the data sets of a study with [files]; return their names and files.

    endings: the table [files], the endings of each part's files. They are searched in the current
    folder and one folder down; a file may be gzipped. Returns None without [files].
    """
    if endings == {}:
        return None
    parts = isinstance(endings, Mapping) and {"train"} <= set(endings) <= {"train", "valid", "test"}
    if not parts or not all(isinstance(end, str) and end for end in endings.values()):
        raise UsageError(f'{where}, files: expected train = "_train.tsv", also valid and test')
    found = []
    ending = endings["train"]
    for first in chain(Path().glob(f"*{ending}*"), Path().glob(f"*/*{ending}*")):
        name, _, rest = first.name.partition(ending)
        if name != first.name and rest in ("", ".gz"):
            files = {p: [f"{first.with_name(name + end)}{rest}"] for p, end in endings.items()}
            found.append((name, {"data": files}))
    return sorted(found, key=lambda named: named[0])


def _set(values: Any, where: str, base: RunConfig) -> RunConfig:
    """Apply settings to a base.

    Raises `UsageError` for a seed, which each run sets itself.
    """
    _check_table(values, where, "[settings.training] with epochs = 10")
    for name, table in (("seed", values), ("training.seed", values.get("training"))):
        if isinstance(table, Mapping) and "seed" in table:
            raise UsageError(
                f"{where}: {name}: seeds are the study's, the same for every variant; set them at "
                "the top of the file: seeds = [0, 1, 2]"
            )
    return from_mapping(RunConfig, values, where, base)


def _beside(study: Path, file: str) -> Path:
    """Return the path of a file next to a study, or else among the shipped studies."""
    here = study.parent / file
    return here if here.exists() else SHIPPED / file


def _check_table(values: Any, where: str, example: str) -> None:
    """Raise `UsageError`, with an example, if a value is not a table."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: expected a table, as {example}; got {values!r}")


def _read_tokenizer(file: Path, plan: Plan) -> str:
    """Return the text of a tokenizer.json after checking it. Raises `UsageError`."""
    with raised_as(UsageError, UserError, where="tokenizer"):
        text = read_json_text(file)
    with raised_as(UsageError, UserError, where=f"tokenizer: {file}"):
        file_tokenizers(text, plan.frame_source)
    return text


Point = Mapping[str, Any]
"""Values of settings by dotted name."""


def grid_points(table: Mapping[str, Any], where: str) -> list[Point]:
    """Return all combinations of lists of values.

    table: a list of values for each setting, in nested tables. where: the place that an error
    names. Raises `UsageError` if a value is no list, or an empty one.

    >>> grid_points({"model": {"d_model": [64, 128], "norm": ["pre", "post"]}}, "grid")[1]
    {'model.d_model': 64, 'model.norm': 'post'}
    """
    axes = _lists(table, where)
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def random_points(table: Mapping[str, Any], where: str) -> list[Point]:
    """Return `count` combinations of lists of values, spread by a Halton sequence.

    The sequence needs no random seed, and a larger count keeps the earlier points, so that their
    runs are not repeated. table: `count`, and lists as for `grid_points`. where: the place that an
    error names. Short lists may give the same point twice. Raises `UsageError` for a wrong `count`,
    no lists, a value that is no list or an empty one, and if SciPy is not installed. Source:
    Bergstra & Bengio 2012, 4.3; Halton 1964.

    >>> random_points({"count": 2, "lr": [1e-4, 1e-3, 1e-2], "d": [64, 128]}, "random")
    [{'lr': 0.001, 'd': 64}, {'lr': 0.0001, 'd': 128}]
    """
    axes = _lists({name: values for name, values in table.items() if name != "count"}, where)
    count = table.get("count")
    if type(count) is not int or count < 1 or not axes:
        raise UsageError(f"{where}: expected count, at least 1, and lists; got count = {count!r}")
    needed = f"[random] needs SciPy: {pip_install('pellucid[lab]')}"
    sequence = optional("scipy.stats.qmc", needed, UsageError).Halton(len(axes), scramble=False)
    sequence.fast_forward(1)  # past the corner where every list begins
    drawn = sequence.random(count)
    return [
        {
            name: values[int(u * len(values))]
            for (name, values), u in zip(axes.items(), row, strict=True)
        }
        for row in drawn
    ]


def _lists(table: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """Return the lists of values in a table, by dotted name.

    Raises `UsageError` if a value is not a list, or if a list is empty.
    """
    axes = flat(table)
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{where}: {name}: expected a list of values, got {values!r}")
    return axes


def point_name(point: Point) -> str:
    """Return a variant's name: the last part of each setting's name, with its value.

    >>> point_name({"training.schedule.lr": 0.004, "model.d_model": 64})
    'lr-0.004+d_model-64'
    """
    return "+".join(f"{name.rpartition('.')[2]}-{value}" for name, value in point.items())


def nested(point: Point) -> dict[str, Any]:
    """Convert settings with dotted names to nested tables; the inverse of `flat`.

    >>> nested({"seed": 3, "model.width": 64})
    {'seed': 3, 'model': {'width': 64}}
    """
    found: dict[str, Any] = {}
    for name, value in point.items():
        *tables, last = name.split(".")
        inner = found
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return found


def points_of(grid: Any, random: Any, where: str) -> Iterator[Named]:
    """Yield (name, settings as nested tables) for all points of both tables."""
    for name, table, points in (("grid", grid, grid_points), ("random", random, random_points)):
        if not isinstance(table, Mapping):
            raise UsageError(f"{where}, {name}: expected a table, got {table!r}")
        for point in points(table, f"{where}, {name}") if table else ():
            yield point_name(point), nested(point)
