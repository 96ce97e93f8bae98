"""`pellucid evaluate RUN`: scores on pairs that the model was not trained on."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import tyro

from pellucid.cli.options import refuse_repeated
from pellucid.core.errors import UsageError, UserError
from pellucid.core.files import SavingError, write_atomically
from pellucid.data.pairs import Pairs
from pellucid.evaluation.bleu import check_installed
from pellucid.evaluation.evaluate import Scores
from pellucid.families.folder import CARD, find_model, load_model
from pellucid.pipelines import Pipeline
from pellucid.training.card import with_scores
from pellucid.training.config import DataConfig, Metric, RunConfig, TokenizerConfig, load_recipe
from pellucid.training.experiment import card, encode, read_material, score

_log = logging.getLogger(__name__)


def evaluate(
    model: tyro.conf.Positional[Path],
    /,
    *,
    data: tuple[Path, ...] = (),
    columns: tuple[str, str] | None = None,
    metric: Metric | None = None,
    as_json: bool = False,
) -> int:
    """Score a trained model: loss and, where they mean something, error rates or BLEU.

    A decoder alone is scored by its loss, an encoder alone also by how many of the hidden tokens it
    guesses.

    Without --data, a run is scored on the pairs that were put aside when it was trained, and its
    model card says the result; whatever else stands in the card stays as it is.

    Args:
        model: A run folder, or a model folder together with --data.
        data: One file of pairs (.tsv, .csv, .jsonl), or two parallel text files; for a decoder or
            an encoder alone also one .txt, a text a line.
        columns: Names of the source's and the target's column; unset: the run's, if its settings
            name them, or else source and target.
        metric: Decode every pair; error_rates: edits per code point (PER) and outputs with any edit
            (WER); bleu: BLEU and chrF by sacreBLEU. Unset: as the run's settings say.
        as_json: Print the scores as one line of JSON.
    """
    trained = load_model(model)
    run = (model / "config.toml").is_file()
    if not run and not data:
        raise UsageError(
            f"{model}: is a model without its run, so the pairs put aside are not known; "
            "give pairs with --data"
        )
    config = load_recipe(str(model)) if run else _settings_for(trained)
    if metric is not None:
        config = replace(config, evaluation=replace(config.evaluation, metric=metric))
    if config.evaluation.metric == "bleu":
        check_installed()
    if data:
        own = config.data
        columns = columns or own.columns
        given = replace(own, train=data, valid=(), test=(), columns=columns, held_out=0.0)
        pairs = read_material(replace(config, data=given)).train
    else:
        everything = read_material(config)
        _check_split(trained, everything, config, model)
        pairs = everything.test or everything.valid
        if not pairs:
            raise UsageError(f"{model}: no pairs were put aside in this run; give some with --data")
    scores = score(trained, pairs, config)
    if as_json:
        print(json.dumps(scores.as_json()))
    else:
        width = max(map(len, scores.written()))
        for name, value in scores.written().items():
            print(f"{name:<{width}} {value}")
    if not data:
        _say_in_card(find_model(model) / CARD, card(model, config, None), scores)
    return 0


def _say_in_card(path: Path, fresh: str, scores: Scores) -> None:
    """Write scores into a model card, or into a fresh one where there is none.

    A card that cannot be read or written is left, with a warning.
    """
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else fresh
        write_atomically(path, with_scores(old, scores.written()).encode())
    except UnicodeDecodeError:
        _log.warning("%s: not UTF-8, so the scores were not written into it", path)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        _log.warning("%s: %s; the scores were not written into it", path, reason)
    except SavingError as error:
        _log.warning("the scores were not written into the card: %s", error)


def _check_split(trained: Pipeline, pairs: Pairs, config: RunConfig, run: Path) -> None:
    """Refuse pairs put aside of files that changed: the model may have learnt some of them."""
    own = config.data
    if not own.train or own.valid or own.test or not own.sha256:
        return
    if encode(trained, pairs.train, config, pairs.first_target_only).digest != own.sha256:
        raise UserError(
            f"{', '.join(map(str, own.train))}: not what {run} was trained on (data.sha256 "
            "differs), so some of the pairs put aside may have been learnt; put the file back, or "
            "give pairs with --data"
        )


def _settings_for(trained: Pipeline) -> RunConfig:
    """Return settings that score a model without its run on all that it can read."""
    longest = trained.model.config.max_position_embeddings - 2
    return RunConfig(
        data=DataConfig(max_tokens=longest, batch_tokens=max(4096, 2 * longest + 2)),
        tokenizer=TokenizerConfig(shared=True),
        model=trained.model.config,
    )


def run(arguments: list[str]) -> int:
    """Run the verb."""
    refuse_repeated(arguments, "--data")
    return tyro.cli(evaluate, prog="pellucid evaluate", args=arguments)
