"""`pellucid lab run|report|list`: change one thing, repeat over random seeds, compare."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from rich.table import Table

from pellucid.apps.cli.commands import listed
from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.options import parse
from pellucid.apps.lab.findings import UNKNOWN, gather, unknown_lines
from pellucid.apps.lab.report import write_report
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.statistics import too_few_seeds
from pellucid.apps.lab.study import select_trials
from pellucid.apps.lab.study_checks import check_ready
from pellucid.apps.lab.study_file import load_study, study_names
from pellucid.core.errors import UsageError, UserError, optional, pip_install
from pellucid.core.settings import nearest

HOME = Path("lab")
PATIENCE = 5.0
"""Seconds in which a Dask scheduler has to answer."""


def run_verb(
    study: str,
    /,
    *,
    only: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    folder: Path | None = None,
    results: Path | None = None,
    workers: int | None = None,
    dask: str | None = None,
    executor: str | None = None,
    retry: bool = False,
) -> int:
    """Do the runs of a study that are missing; called again, it resumes.

    Args:
        study: A study by name (`pellucid lab list`), or a TOML file.
        only: Only these variants, the base by its own name.
        seeds: Only these random seeds.
        folder: Where results and run folders go; unset: lab/STUDY.
        results: The results file; unset: results.jsonl in the folder.
        workers: How many runs at a time, one thread each; unset: as processors and memory allow.
        dask: Address of a Dask scheduler whose workers do the runs; they must see the folder.
        executor: MODULE:FUNCTION of yours, called without arguments; the executor that it returns
            does the runs (any of concurrent.futures' kind). Its workers must see the folder.
        retry: Do failed runs again.
    """
    if sum(given is not None for given in (workers, dask, executor)) > 1:
        raise UsageError("give one of --workers, --dask and --executor")
    found = load_study(study)
    trials = select_trials(found.trials(), only, seeds)
    own = _executor(executor) if executor is not None else None if dask is None else _dask(dask)
    home = folder or HOME / found.name
    file = results or home / "results.jsonl"
    if own is None:  # another engine's workers read the data where they are
        check_ready(found, trials, file)
    console = Output()

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    minutes = found.plan.minutes_per_run
    say(f"{found.name}: {len(trials)} runs of about {minutes:g} minutes on one core")
    few = too_few_seeds([len(found.pairs_of(contrast)) for contrast in found.plan.primary])
    if few:
        say(f"note: {few}")
    say(f"runs in {home / 'runs'}, results in {file}")
    if unknown := unknown_lines(read_results(file), {trial.id for trial in found.trials()}):
        say(f"note: {unknown} {UNKNOWN}")
    ended = run_study(
        trials,
        file,
        (home / "runs").absolute(),
        executor=own,
        workers=workers,
        gigabytes=found.plan.gigabytes_per_run,
        retry=retry,
        say=say,
    )
    if ended.interrupted:
        say("stopped; the same command resumes from what is saved")
        return 130
    if ended.failed:
        say(f"{ended.failed} of {ended.planned} runs failed; --retry does them again")
    command = ["pellucid", "lab", "report", study]
    for option, given in (("--folder", folder), ("--results", results)):
        command += [option, str(given)] if given else []
    say(f"write the report:  {shlex.join(command)}")
    return 1 if ended.failed else 0


def report_verb(
    study: str,
    /,
    *,
    folder: Path | None = None,
    results: Path | None = None,
    output: Path | None = None,
) -> int:
    """Write the report: report.html, one file; report.md with its pictures next to it.

    Args:
        study: A study by name, or a TOML file.
        folder: The folder of the study's runs; unset: lab/STUDY.
        results: The results file; unset: results.jsonl in the folder.
        output: The folder to write to; unset: the folder of the runs.
    """
    found = load_study(study)
    home = folder or HOME / found.name
    file = results or home / "results.jsonl"
    if not file.exists():
        raise UserError(
            f"{file}: there are no results yet; run pellucid lab run first, with the same --folder "
            "and --results, if any"
        )
    for path in write_report(gather(found, read_results(file)), output or home):
        Output().print(f"wrote {path}", markup=False, soft_wrap=True)
    return 0


def list_verb(*, folder: Path = HOME) -> int:
    """List the studies that come with Pellucid, and how much of each is done.

    A results file that cannot be read is named below the table.

    Args:
        folder: The folder with each study's results.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (tr("study"), tr("runs"), tr("done"), tr("hours"), tr("question")):
        table.add_column(head, overflow="fold")
    errors = []
    for name in study_names():
        study = load_study(name)
        trials = study.trials()
        try:
            lines = read_results(folder / name / "results.jsonl")
            done = str(sum(t.id in lines and lines[t.id]["status"] == "done" for t in trials))
        except UserError as error:
            errors.append(str(error))
            done = "unreadable"
        hours = len(trials) * study.plan.minutes_per_run / 60
        table.add_row(name, str(len(trials)), done, f"{hours:.1f}", tr(study.plan.question))
    Output().print(table)
    if errors:
        raise UserError("\n".join(errors))
    return 0


def _dask(address: str) -> Executor:
    message = f"--dask needs Dask: {pip_install('distributed')}"
    distributed = optional("distributed", message, UsageError)
    try:
        executor: Executor = distributed.Client(address, timeout=PATIENCE).get_executor()
    except ValueError as error:
        raise UsageError(
            f"--dask {address}: expected a scheduler's address like tcp://localhost:8786 ({error})"
        ) from None
    except OSError:
        raise UserError(
            f"--dask {address}: no scheduler answers there within {PATIENCE:g} seconds; start one "
            "(dask scheduler), or give the address that it prints"
        ) from None
    return executor


def _executor(named: str) -> Executor:
    """Return what a function of the user's own returns, named as MODULE:FUNCTION."""
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--executor {named}: expected MODULE:FUNCTION, as in cluster:executor")
    here = str(Path.cwd())
    if here not in sys.path:  # a file next to the study, as `python -m` finds it
        sys.path.insert(0, here)
    imported = optional(module, f"--executor {named}: {module} cannot be imported", UsageError)
    factory = getattr(imported, name, None)
    if not callable(factory):
        raise UsageError(f"--executor {named}: {module} has no function {name}")
    made = factory()
    if not callable(getattr(made, "submit", None)):
        raise UsageError(
            f"--executor {named}: {name}() returned {made!r}; expected an executor, with submit()"
        )
    executor: Executor = made
    return executor


def run(arguments: list[str]) -> int:
    """Run the command."""
    verbs: dict[str, Callable[..., int]] = {
        "run": run_verb,
        "report": report_verb,
        "list": list_verb,
    }
    verb, *rest = arguments or [""]
    if verb in ("", "-h", "--help"):
        print(f"{tr('usage:')} pellucid lab {{run,report,list}} [OPTIONS]\n")
        print(listed({name: (do.__doc__ or "").split("\n")[0] for name, do in verbs.items()}))
        return 0 if verb else 2
    if verb not in verbs:
        raise UsageError(
            f"no command 'lab {verb}'{nearest(verb, verbs)}; there are: {', '.join(verbs)}"
        )
    return parse(verbs[verb], f"lab {verb}", rest, lists=["--only", "--seeds"])
