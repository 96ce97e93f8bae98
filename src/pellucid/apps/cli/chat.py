"""`pellucid chat`: train the Korean chatbot, or load the one trained before, and talk to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pellucid.apps.cli.answers import converse
from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import tr, warn
from pellucid.apps.cli.options import Flat, SamplingOptions, accepts_changes, parse, value_of
from pellucid.apps.cli.train import run_folder, show_run
from pellucid.core.errors import UsageError
from pellucid.generation import SearchConfig
from pellucid.tasks import task_of
from pellucid.tasks.folder import CONFIG, load_model, save_model
from pellucid.training.card import card
from pellucid.training.config import RunConfig, load_recipe

RECIPE = "chatbot-ko"
CANNOT_TALK = "{}: generates no text, so it cannot talk; use pellucid train and pellucid generate"


def run(arguments: list[str]) -> int:
    """Run the command. The search settings of the recipe or the run are the defaults."""
    named = value_of(arguments, "--recipe") or RECIPE
    folder = run_folder(named, arguments)
    begun = (folder / "config.toml").is_file()
    both = None not in (value_of(arguments, "--recipe"), value_of(arguments, "--run"))
    config = load_recipe(str(folder) if begun else named)
    made = (folder / "model" / CONFIG).is_file()
    trained: Any = load_model(folder, accepts_changes(arguments)) if made else None
    if not task_of(trained or config.model).generates:
        raise UsageError(CANNOT_TALK.format(folder if begun else named))
    saved = trained.search if trained else config.search

    def chat(
        *,
        recipe: str = RECIPE,
        run: Path = folder,
        minutes: float | None = None,
        accept_changes: bool = False,  # was read above, with the model
        search: Flat[SearchConfig] = saved,
        sampling: Flat[SamplingOptions] = SamplingOptions(),  # noqa: B008
    ) -> int:
        """Train a chatbot, then talk to it. Ctrl-C during training keeps what it has learnt.

        A chatbot that was trained before is loaded. Any of --temperature, --top-k, --top-p, --min-p
        and --seed samples the answers instead of searching for the likeliest.

        Args:
            recipe: What to train: chatbot-ko, or chatbot-ko-article, the full size of article 003.
            run: The run folder.
            minutes: Training time of a new run; unset: that of the recipe.
            accept_changes: Take a model whose files were changed after it was saved.
        """
        how = sampling.config(search)  # an error in it is reported before minutes of training
        if minutes is not None and (trained or begun):
            raise UsageError(
                f"{folder}: this run exists, so --minutes has no effect; leave it out, or give "
                "another --run"
            )
        if begun and both:
            load_recipe(named)  # a name that no recipe has is a mistake all the same
            warn(f"{folder}: this run exists, so --recipe has no effect")
        if trained is None and (code := _train(config, folder, begun, minutes)):
            return code
        model: Any = trained or load_model(folder)
        return converse(replace(model, search=search, sampling=how))

    return parse(chat, "chat", arguments)


def _train(config: RunConfig, folder: Path, resume: bool, minutes: float | None) -> int:
    if not resume:
        # BLEU is not shown here, and sacreBLEU need not be installed to chat.
        training = replace(config.training, monitor="loss")
        if minutes is not None:
            training = replace(training, minutes=minutes)
        evaluation = replace(config.evaluation, metric="none")
        config = replace(config, evaluation=evaluation, training=training)
    Output().say(tr("Ctrl-C ends training early and keeps the model, so you can talk to it."))
    outcome = show_run(config, folder, resume=resume)
    if outcome.interrupted == "SIGTERM":
        return 143
    if outcome.interrupted is not None:
        outcome.trained.model.eval()
        save_model(folder / "model", outcome.trained, card(folder, config, None))
    return 0
