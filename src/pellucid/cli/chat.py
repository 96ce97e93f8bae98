"""`pellucid chat`: train the Korean chatbot, or take the one trained before, and talk to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from pellucid.cli.console import Output
from pellucid.cli.progress import Progress
from pellucid.cli.prompt import converse
from pellucid.cli.train import run_folder
from pellucid.core.errors import UsageError
from pellucid.families import family_of
from pellucid.families.folder import CONFIG, load_model, save_model
from pellucid.training.config import TrainingConfig, load_recipe
from pellucid.training.experiment import Say, card, train_run

NOT_TO_TALK_TO = "{}: fills [MASK] and does not talk; use pellucid train and pellucid generate"


def chat(recipe: str = "chatbot-ko", run: Path | None = None, minutes: float | None = None) -> int:
    """Train a chatbot, then talk to it. Ctrl-C while it trains keeps what it has learnt so far.

    A chatbot that was trained before is not trained again.

    Args:
        recipe: What to train: chatbot-ko, or chatbot-ko-article at the full size of article 003.
        run: The run's folder. Unset: runs/RECIPE.
        minutes: Training time of a new run. Unset: as the recipe says.
    """
    folder = run or run_folder(recipe)
    trained_before = (folder / "model" / CONFIG).is_file()
    if minutes is not None and (trained_before or (folder / "config.toml").is_file()):
        raise UsageError(
            f"{folder}: was begun before, so --minutes would change nothing; leave it out, or give "
            "another --run"
        )
    if not trained_before:
        code = _train(recipe, folder, minutes)
        if code:
            return code
    trained: Any = load_model(folder)
    if not family_of(trained).generates:
        raise UsageError(NOT_TO_TALK_TO.format(folder))
    return converse(trained)


def _train(recipe: str, folder: Path, minutes: float | None) -> int:
    resume = (folder / "config.toml").is_file()
    config = load_recipe(str(folder) if resume else recipe)
    if not family_of(config.model).generates:
        raise UsageError(NOT_TO_TALK_TO.format(recipe))
    if not resume:
        # Nobody waits for BLEU here, and sacreBLEU need not be installed to chat.
        training = replace(config.training, monitor="loss")
        if minutes is not None:
            training = replace(training, minutes=minutes)
        evaluation = replace(config.evaluation, metric="none")
        config = replace(config, evaluation=evaluation, training=training)
    with Progress(Output(), folder.resolve().name) as progress:
        _announce(config.training, progress.say)
        outcome = train_run(config, folder, resume=resume, listeners=[progress], say=progress.say)
    if outcome.interrupted == "SIGTERM":
        return 143
    if outcome.interrupted is not None:
        outcome.trained.model.eval()
        save_model(folder / "model", outcome.trained, card(folder, config, None))
    return 0


def _announce(training: TrainingConfig, say: Say) -> None:
    if training.minutes is not None:
        budget = f"{training.minutes:g} minutes"
    else:
        work = f"{training.epochs} epochs" if training.epochs else f"{training.steps} steps"
        budget = f"{work}, with the time left shown once they run"
    say(f"Training takes {budget}. Ctrl-C ends it early, keeps what was learnt, and lets you talk.")


def run(arguments: list[str]) -> int:
    """Run the verb."""
    return tyro.cli(chat, prog="pellucid chat", args=arguments)
