"""`pellucid evaluate RUN`: score a model on data that it was not trained on."""

import json as json_format
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.cells import cell_len, set_cell_size

from pellucid.apps.cli.language import printed_language
from pellucid.apps.cli.options import Flat, ModelOptions, named_model, parse
from pellucid.apps.cli.plot import picture_file
from pellucid.apps.teach.pictures import confused, save
from pellucid.core.errors import UsageError, UserError
from pellucid.data.files import is_file_of_pairs
from pellucid.data.pairs import Splits, TextPair
from pellucid.generation import SearchConfig
from pellucid.system.files import SavingError, write_atomically
from pellucid.system.language import chosen_language
from pellucid.tasks import Task
from pellucid.tasks.folder import CARD, find_model
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.scores import Scores
from pellucid.training.card import card, with_scores
from pellucid.training.config import (
    DataConfig,
    EvaluationConfig,
    MetricName,
    RunConfig,
    TokenizerConfig,
    load_recipe,
)
from pellucid.training.experiment import digest_of, encode, read_material, score
from pellucid.training.run import Remembered
from pellucid.training.start import warn_of_other_data

_log = logging.getLogger(__name__)


def run(arguments: list[str]) -> int:
    """Run `pellucid evaluate` with its arguments; return the exit code.

    The model, its first argument, gives the defaults of the search.
    """
    name, rest, trained = named_model(
        arguments, "which model? Use `pellucid evaluate RUN [OPTIONS]`, the run first"
    )
    path = Path(name or "")
    saved = getattr(trained, "search", SearchConfig())

    def evaluate(
        *,
        data: tuple[Path, ...] = (),
        columns: tuple[str, ...] | None = None,
        metric: MetricName | None = None,
        json: bool = False,
        confusion: Path | None = None,
        model: Flat[ModelOptions] = ModelOptions(),  # noqa: B008
        search: Flat[SearchConfig] = saved,
    ) -> int:
        """Score a trained model: loss and, if a metric is set, error rates or BLEU.

        A decoder alone is scored by its loss, an encoder alone also by how many of the masked
        tokens it predicts.

        Without --data, a run is scored on its held-out data, and the scores are written into its
        model card if the search is the one saved with it, and no other model answers with it. The
        rest of the card is kept. A model folder without its run needs --data.

        Args:
            data: One file of pairs (.tsv, .csv, .jsonl), or two parallel text files; for a decoder
                or an encoder alone also one .txt, a text a line.
            columns: Names of the source and target columns, or of two texts and a target; unset:
                those of the run, else source and target.
            metric: Decode every source and score the answers; error_rates: edits per phoneme (PER)
                and outputs with any edit (WER); letter_error_rates: the same of letters (CER);
                bleu: BLEU and chrF by sacreBLEU; unset: the metric of the run.
            json: Print the scores as one line of JSON.
            confusion: Draw which labels are taken for which: a .svg, .png or .pdf. Needs
                matplotlib.
        """
        assert trained is not None
        together = model.placed(trained)
        config = _settings_of(trained, path, data, metric)
        decodes = trained.kind == "answer" and config.evaluation.metric != "none"
        if search != saved and not decodes:
            raise UsageError("nothing is decoded for these scores: leave out the search's options")
        pairs = _given(config, data, columns) if data else _held_out(trained, config, path)
        if not data:
            warn_of_other_data(config.data, model.ensemble)
        searching = replace(together, search=search) if decodes else together
        scores = score(searching, pairs, config)
        if json:
            print(json_format.dumps(scores.as_json()))
        else:
            print_scores(scores.written(printed_language()))
        if confusion is not None:
            _draw(scores, confusion)
        if not data and search == saved and not model.ensemble:
            _write_into_card(find_model(path) / CARD, card(path, config, None), scores)
        return 0

    return parse(evaluate, f"evaluate {name or 'RUN'}", rest)


def print_scores(rows: Mapping[str, str]) -> None:
    """Print scores by name, one per line."""
    width = max(map(cell_len, rows))
    print("\n".join(f"{set_cell_size(name, width)} {value}" for name, value in rows.items()))


def _draw(scores: Scores, path: Path) -> None:
    """Draw the confusion matrix to a file."""
    record = scores.as_json()
    if "confusion" not in record:
        raise UsageError("--confusion is for a model of labels, scored by the metric labels")
    file = picture_file(path, "--confusion")
    save(confused(list(record["labels"]), np.array(record["confusion"]), chosen_language()), file)


def _settings_of(
    trained: Task, path: Path, data: tuple[Path, ...], metric: MetricName | None
) -> RunConfig:
    """Return the settings to score with: those of the run, if there is one.

    Raises `UsageError` if neither a run nor data is given.
    """
    is_run = (path / "config.toml").is_file()
    if not is_run and not data:
        raise UsageError(
            f"{path}: a model without its run, so its held-out data is not known; give --data"
        )
    config = load_recipe(str(path)) if is_run else _settings_for(trained)
    if metric is not None:
        config = replace(config, evaluation=replace(config.evaluation, metric=metric))
    elif not is_run and trained.kind == "answer" and config.evaluation.metric == "none":
        _log.warning(
            f"the loss alone: {path} was trained without a metric; give --metric "
            f"{'|'.join(METRICS)}"
        )
    if config.evaluation.metric != "none":
        METRICS[config.evaluation.metric].check()
    return config


def _given(
    config: RunConfig, data: tuple[Path, ...], columns: tuple[str, ...] | None
) -> Sequence[TextPair]:
    """Read the data that the user gives."""
    own = config.data
    if columns is None and any(map(is_file_of_pairs, data)):
        columns = own.columns
    given = replace(own, train=data, more=(), valid=(), test=(), columns=columns, held_out=0.0)
    return read_material(replace(config, data=given)).train


def _held_out(trained: Task, config: RunConfig, path: Path) -> Sequence[TextPair]:
    """Read the held-out data of the run."""
    everything = read_material(config)
    if not everything.scored:
        raise UsageError(f"{path}: this run held out no data; give some with --data")
    _check_split(trained, everything, config, path)
    return everything.scored


def _write_into_card(path: Path, fresh: str, scores: Scores) -> None:
    """Write scores into a model card, or into a fresh one if there is none.

    A card that cannot be read or written is left unchanged, with a warning.
    """
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else fresh
        write_atomically(path, with_scores(old, scores.written()).encode())
    except (UnicodeDecodeError, OSError, SavingError) as error:
        _log.warning("%s: the scores were not written into it: %s", path, error)


def _check_split(trained: Task, pairs: Splits, config: RunConfig, run: Path) -> None:
    """Compare the held-out data with that of the training.

    Raises `UserError` if the model may have been trained on some of it; logs a warning if it only
    differs.
    """
    own, known = config.data, Remembered.of(run).held_out
    if not own.train or known == digest_of(pairs.scored):
        return
    if (
        own.sha256
        and encode(trained, pairs.train, config, pairs.first_target_only).digest != own.sha256
    ):
        raise UserError(
            f"{', '.join(map(str, own.train))}: not what {run} was trained on (data.sha256 "
            "differs), so the model may have seen some of the held-out data; restore the file, or "
            "give other data with --data"
        )
    if known:
        _log.warning(
            f"{run}: not scored on what it held out when it was trained, since its data files have "
            "changed: do not compare the scores with earlier ones"
        )


def _settings_for(trained: Task) -> RunConfig:
    """Return settings that score a model without a run on all texts that fit it."""
    longest = trained.model.config.max_position_embeddings - 2
    return RunConfig(
        data=DataConfig(max_tokens=longest, batch_tokens=max(4096, 2 * longest + 2)),
        tokenizer=TokenizerConfig(shared=True),
        model=trained.model.config,
        evaluation=EvaluationConfig(trained.metric),
    )
