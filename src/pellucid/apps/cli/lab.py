"""`pellucid lab run|report|list|guess`: change one thing, repeat over random seeds, compare."""

import sys
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pellucid.apps.cli.commands import listed
from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.kept import keep, read_kept
from pellucid.apps.cli.language import printed_language, tr, translated, wrapped
from pellucid.apps.cli.options import parse
from pellucid.apps.lab.findings import UNKNOWN, gather, unknown_lines
from pellucid.apps.lab.report import write_report
from pellucid.apps.lab.results import Line, read_results
from pellucid.apps.lab.runner import run_study
from pellucid.apps.lab.statistics import too_few_seeds, verdict
from pellucid.apps.lab.study import select_trials
from pellucid.apps.lab.study_checks import check_ready
from pellucid.apps.lab.study_file import load_study, study_names
from pellucid.apps.lab.wording import tr as report_text
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import check_known
from pellucid.system.command import command
from pellucid.system.language import chosen_language, speaking

HOME = Path("lab")
STORED = Path("results/studies")
"""The results that come with the repository, seen from its root."""
SURE = (34, 60, 80, 101)
"""Bounds of the groups in which `lab guess` counts, in percent; a third is chance among three
answers."""


def run_verb(
    study: str,
    /,
    *,
    only: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    folder: Path | None = None,
    results: Path | None = None,
    workers: int | None = None,
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
        executor: MODULE:FUNCTION of yours, called without arguments; the executor that it returns
            does the runs (any of concurrent.futures' kind). Its workers must see the folder.
        retry: Do failed runs again.
    """
    if workers is not None and executor is not None:
        raise UsageError("give --workers or --executor, not both")
    found = load_study(study)
    trials = select_trials(found.trials(), only, seeds)
    own = None if executor is None else _executor(executor)
    home = folder or HOME / found.name
    file = results or home / "results.jsonl"
    if own is None:  # another engine's workers read the data where they are
        check_ready(found, trials, file)

    def say(line: str) -> None:
        Output().say(translated(line))

    minutes = found.plan.minutes_per_run
    n, name = len(trials), found.name
    if n == 1:
        say(f"{name}: 1 run of about {minutes:g} min on one core")
    else:
        say(f"{name}: {n} runs of about {minutes:g} min on one core")
    few = too_few_seeds([len(found.pairs_of(contrast)) for contrast in found.plan.primary])
    if few:
        say(tr("note: {}").format(translated(few)))
    say(f"runs in {home / 'runs'}, results in {file}")
    if unknown := unknown_lines(read_results(file), {trial.id for trial in found.trials()}):
        say(tr("note: {}").format(translated(UNKNOWN.format(unknown))))
    ended = run_study(
        trials, file, (home / "runs").absolute(), executor=own, workers=workers,
        gigabytes=found.plan.gigabytes_per_run, retry=retry, say=say,
    )  # fmt: skip
    if ended.interrupted:
        say("stopped; the same command resumes from what is saved")
        return 130
    if ended.failed:
        say(f"runs failed: {ended.failed} of {ended.planned}; --retry does them again")
    given = {"folder": folder, "results": results}
    report = command("lab", "report", study, **{name: at for name, at in given.items() if at})
    say(f"write the report:  {report}")
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
    findings = gather(found, read_results(file))
    for path in write_report(findings, output or home, chosen_language()):
        Output().say(tr("wrote {}").format(path))
    return 0


def list_verb(*, folder: Path = HOME) -> int:
    """List the studies that come with Pellucid, and how much of each is done.

    A run is done here if its results are in the folder or, in Pellucid's repository, among those
    stored there; a dash means that there are none. Files that cannot be read are named at the end.

    Args:
        folder: The folder with each study's results.
    """
    rows = table(tr("study"), tr("runs"), tr("done here"), tr("hours"), tr("question"))
    errors = []
    for name in study_names():
        study = load_study(name)
        trials = study.trials()
        try:
            lines = _lines(name, folder)
            ended = {id for id, line in lines.items() if line["status"] == "done"}
            done = str(sum(trial.id in ended for trial in trials)) if lines else "–"
        except UserError as error:
            errors.append(str(error))
            done = tr("unreadable")
        with speaking(printed_language()):
            question = report_text(study.plan.question)
        hours = len(trials) * study.plan.minutes_per_run / 60
        rows.add_row(name, str(len(trials)), done, f"{hours:.1f}", question)
    Output().print(rows)
    if errors:
        raise UserError("\n".join(errors))
    return 0


def guess_verb(
    study: str,
    /,
    *,
    answer: Literal["lower", "higher", "mixed"] | None = None,
    sure: int = 50,
    folder: Path = HOME,
) -> int:
    """Commit to an answer before you see the stored runs; learn how often you are right.

    Without an answer it asks the next question of the study. Every question can be answered once.

    Args:
        study: A study by name, or a TOML file.
        answer: The metric of the change, compared: lower or higher; mixed: its interval has 0 in
            it.
        sure: How sure you are, in percent; 34 is chance.
        folder: The folder with guesses.json, and with each study's results.
    """
    if not SURE[0] <= sure < SURE[-1]:
        raise UsageError(f"--sure {sure}: expected {SURE[0]} to 100 percent; 34 is chance")
    found, path = load_study(study), folder / "guesses.json"
    findings = gather(found, _lines(found.name, folder))
    guesses = read_kept(path, answer=str, sure=int, came=str)
    asked = {f"{found.name}: {c.name}, {c.contrast.metric}": c for c in findings.comparisons}
    left = [key for key, c in asked.items() if c.primary and c.interval and key not in guesses]

    def say(line: str) -> None:
        Output().say(wrapped(line, Output().width))

    if answer and left:
        key = left.pop(0)
        low, high = asked[key].interval or (0.0, 0.0)
        came = "lower" if high < 0 else "higher" if low > 0 else "mixed"
        guesses[key] = {"answer": answer, "sure": sure, "came": came}
        keep(path, guesses)
        with speaking(printed_language()):
            shown = verdict(asked[key])
        say(f"{tr('right') if came == answer else tr('wrong')}: {shown}")
        for least, above in pairwise(SURE):
            of = [g["came"] == g["answer"] for g in guesses.values() if least <= g["sure"] < above]
            if of:
                counts = tr("{} to {} % sure: {} of {} right")
                say(counts.format(least, above - 1, sum(of), len(of)))
    if not left:
        say(tr("no question of this study is left; pellucid lab list names the others"))
        return 0
    c = asked[left[0]].contrast
    with speaking(printed_language()):
        change, against = (report_text(found.changes[name].about) for name in (c.change, c.against))
        say(report_text(found.plan.question))
        say(f"{tr('claim')}: {report_text(c.claim)}")
    ask = tr("{} of {} ({}), compared with {} ({}): lower, higher or mixed?")
    say(ask.format(c.metric, c.change, change, c.against, against))
    say(f"pellucid lab guess {study} --answer lower --sure 70")
    return 0


def _lines(name: str, folder: Path) -> dict[str, Line]:
    """Return the results of a study: those of the folder, and those of the repository."""
    files = (folder / name / "results.jsonl", STORED / f"{name}.jsonl")
    return {id: line for file in files for id, line in read_results(file).items()}


def _executor(named: str) -> Executor:
    """Call the user's function MODULE:FUNCTION; return the executor that it makes.

    Raises `UsageError` if there is no such function, or if it returns something else.
    """
    if (here := str(Path.cwd())) not in sys.path:  # a file next to the study
        sys.path.insert(0, here)
    try:
        factory = resolve_name(named)
    except (AttributeError, ImportError, ValueError) as error:
        raise UsageError(
            f"--executor {named}: {error}; expected MODULE:FUNCTION, as in cluster:executor"
        ) from None
    made: Any = factory() if callable(factory) else factory
    if not callable(getattr(made, "submit", None)):
        raise UsageError(
            f"--executor {named}: it gives {made!r}; expected MODULE:FUNCTION of a function that "
            "returns an executor, with submit()"
        )
    return made  # type: ignore[no-any-return]


VERBS: dict[str, Callable[..., int]] = {
    "run": run_verb,
    "report": report_verb,
    "list": list_verb,
    "guess": guess_verb,
}


def run(arguments: list[str]) -> int:
    """Run `pellucid lab VERB` with its arguments; return the exit code."""
    verb, *rest = arguments or [""]
    if verb in ("", "-h", "--help"):
        print(f"{tr('usage:')} pellucid lab {{{','.join(VERBS)}}} [OPTIONS]\n")
        print(listed({name: (do.__doc__ or "").split("\n")[0] for name, do in VERBS.items()}))
        return 0 if verb else 2
    check_known("command of lab", verb, VERBS)
    return parse(VERBS[verb], f"lab {verb}", rest)
