"""`pellucid demo`: train two small Transformers on real data and show what they learnt.

First a chatbot that memorises, then a model that has to generalise: it is scored on words that it
has never seen.
"""

import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from pellucid.apps.cli.console import Output, clock, table
from pellucid.apps.cli.language import tr
from pellucid.apps.cli.train import INTERRUPTED, show_run
from pellucid.apps.view.terminal import attention_map
from pellucid.data.pairs import TextPair
from pellucid.training.config import RunConfig, load_recipe
from pellucid.training.experiment import read_data

CHAT, PRONUNCIATION = "chat-ko-small", "g2p-demo"
QUESTIONS = 5
MEMORISED = 40
WORDS = 12

T = TypeVar("T")


def demo(
    *,
    folder: Path = Path("runs"),
    chat_minutes: float | None = None,
    g2p_minutes: float | None = None,
) -> int:
    """Train two small Transformers from nothing on real data, and show what they learnt.

    Args:
        folder: Where the two run folders go.
        chat_minutes: Training time of the chatbot; unset: that of its recipe.
        g2p_minutes: Training time of the pronunciation model; unset: that of its recipe.
    """
    console, began = Output(), time.monotonic()
    chat_folder, g2p_folder = _free(folder / "chat"), _free(folder / "g2p")
    chat_config, g2p_config = _config(CHAT, chat_minutes), _config(PRONUNCIATION, g2p_minutes)
    read_data(g2p_config)  # a download that fails ends it here, not after the first model

    console.rule("[bold]" + tr("1  Memorising: a chatbot of Korean conversations"))
    if (chat := show_run(chat_config, chat_folder)).interrupted:
        return INTERRUPTED.get(chat.interrupted, 1)
    _show_chat(chat.trained, chat.pairs.train, console)

    console.rule("[bold]" + tr("2  Generalising: the pronunciation of English words"))
    if (g2p := show_run(g2p_config, g2p_folder)).interrupted:
        return INTERRUPTED.get(g2p.interrupted, 1)
    assert g2p.scores is not None
    _show_words(g2p.trained, g2p.pairs.test, g2p.scores.as_json(), console)

    console.rule("[bold]" + tr("Next steps"))
    pellucid = program()
    chat_named, g2p_named = (shlex.quote(str(path)) for path in (chat_folder, g2p_folder))
    time_taken = clock(time.monotonic() - began)
    console.print(tr("Finished in {}. Both models are saved:").format(time_taken) + "\n")
    for command, what in (
        (f"generate {chat_named}", tr("chat in Korean at a prompt")),
        (f"generate {g2p_named} transformer attention", tr("pronounce your own words")),
        (f"evaluate {g2p_named}", tr("score it again on the held-out words")),
        ("train g2p-en", tr("a larger model, trained longer")),
        ("check", tr("verify every derivative")),
        ("recipes", tr("list all recipes")),
    ):
        console.print(f"  {pellucid} {command:<44} [dim]# {what}", soft_wrap=True)
    return 0


def program() -> str:
    """Return how the user can type `pellucid`: as a name, or by its path from here."""
    started = Path(sys.argv[0])
    own = started.name == "pellucid"
    path, here = started if own else Path(sys.executable), Path.cwd()
    found = shutil.which(path.name)
    # Not resolved: an environment's python is a link to one outside the environment.
    if found is not None and Path(found).absolute() == path.absolute():
        path = Path(path.name)
    typed = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return typed if own else f"{typed} -m pellucid"


def _free(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that does not exist yet."""
    candidates = (
        folder if n == 1 else folder.with_name(f"{folder.name}-{n}") for n in range(1, 10**6)
    )
    return next(candidate for candidate in candidates if not candidate.exists())


def _config(recipe: str, minutes: float | None) -> RunConfig:
    """Return the settings of a recipe, with another time limit if it is given."""
    config: RunConfig = load_recipe(recipe)
    if minutes is None:
        return config
    return replace(config, training=replace(config.training, minutes=minutes))


def _spread(items: Sequence[T], count: int) -> list[T]:
    """Choose at most `count` items, at even steps."""
    return list(items[:: max(1, len(items) // count)][:count])


def _answered(
    trained: Any, pairs: Sequence[TextPair], count: int
) -> list[tuple[str, str, Sequence[str]]]:
    """Answer some of the texts; return (text, answer, right answers) of each."""
    sample = _spread(pairs, count)
    answers = trained.generate([pair.source for pair in sample])
    return [
        (pair.source, answer, trained.right_answers(pair))
        for pair, answer in zip(sample, answers, strict=True)
    ]


def _show_chat(trained: Any, learnt: Sequence[TextPair], console: Console) -> None:
    """Print some answers of the chatbot, and how much of its training it memorised."""
    answered = _answered(trained, learnt, MEMORISED)
    console.print()
    for text, answer, _ in _spread(answered, QUESTIONS):
        console.print(f"  [bold]{escape(text)}[/]\n    {escape(answer)}")
    right = sum(answer in known for _, answer, known in answered)
    count = tr("It answers {right} of {asked} training questions as in the training data.")
    memory = tr(
        "This is memory, not understanding: with {learnt} questions it cannot generalise."
    ).format(learnt=len(learnt))
    slow = tr(
        "The time limit ended its training too early on this machine: --chat-minutes gives it more."
    )
    count = count.format(right=right, asked=len(answered))
    console.print(f"\n{count} {memory if 2 * right > len(answered) else slow}\n")


def _show_words(
    trained: Any, held_out: Sequence[TextPair], scores: Mapping[str, Any], console: Console
) -> None:
    """Print scores, some pronunciations, and an attention map of one word."""
    verdict = tr(
        "On {words:,} words never seen in training: [bold]PER {per:.1%}[/] (sounds wrong), "
        "WER {wer:.1%} (words wrong)\n(stress marks count; inflected forms of one word may be in "
        "both training and test data)"
    )
    console.print(f"\n{verdict.format(**scores)}\n")
    rows = table(tr("new word"), tr("model"), tr("lexicon"), "")
    answered = _answered(trained, held_out, WORDS)
    for text, answer, lexicon in answered:
        mark = "[green]✓" if answer in lexicon else ""
        rows.add_row(text, answer, tr(" or ").join(lexicon), mark)
    console.print(rows)
    right = [text for text, answer, lexicon in answered if answer in lexicon]
    word = max(right or [answered[0][0]], key=len)
    drawn = tr("Attention while it pronounces [bold]{}[/]: a row for each sound").format(word)
    console.print(f"\n{drawn}\n")
    seen = list(trained.attention(word).values())[-1]  # of the last decoder layer to the source
    outputs = [*seen.queries[1:], "end"]
    console.print(attention_map(seen.weights.mean(axis=0), outputs, seen.keys), markup=False)
    console.print()
