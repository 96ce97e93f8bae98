"""`pellucid demo`: train two small Transformers on real data and show what they learnt.

First a chatbot that memorises, then a model that has to generalise: it is scored on words that it
has never seen.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pellucid.apps.cli.console import Output, Progress, clock
from pellucid.apps.cli.language import tr
from pellucid.apps.view.terminal import attention_map
from pellucid.tasks import Seq2SeqTask
from pellucid.training.config import RunConfig, load_recipe
from pellucid.training.experiment import Outcome, read_data, train_run

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
    read_data(g2p_config.data)  # a download that fails ends it here, not after the first model

    console.rule("[bold]" + tr("1  Memorising: a chatbot of Korean conversations"))
    chat = _run(chat_config, chat_folder, console)
    if chat.interrupted:
        return 130
    _show_chat(chat, console)

    console.rule("[bold]" + tr("2  Generalising: the pronunciation of English words"))
    g2p = _run(g2p_config, g2p_folder, console)
    if g2p.interrupted:
        return 130
    _show_words(g2p, console)

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
    """Return what to type for `pellucid` in the user's shell."""
    started = Path(sys.argv[0])
    if started.name == "pellucid":
        return _typed(started)
    return f"{_typed(Path(sys.executable))} -m pellucid"


def _typed(program: Path) -> str:
    """Return a program's name if the shell finds it by that, else its path from here."""
    found = shutil.which(program.name)
    # Not resolved: an environment's python is a link to one outside the environment.
    if found is not None and Path(found).absolute() == program.absolute():
        return program.name
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _free(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3 … that does not exist yet."""
    candidates = (
        folder if n == 1 else folder.with_name(f"{folder.name}-{n}") for n in range(1, 10**6)
    )
    return next(candidate for candidate in candidates if not candidate.exists())


def _config(recipe: str, minutes: float | None) -> RunConfig:
    config: RunConfig = load_recipe(recipe)
    if minutes is None:
        return config
    return replace(config, training=replace(config.training, minutes=minutes))


def _run(config: RunConfig, folder: Path, console: Console) -> Outcome:
    with Progress(console, folder.resolve().name) as progress:
        return train_run(config, folder, listeners=[progress], say=progress.say)


def _spread(items: Sequence[T], count: int) -> list[T]:
    """Take items at even steps through a sequence."""
    return list(items[:: max(1, len(items) // count)][:count])


def _trained(outcome: Outcome) -> Seq2SeqTask:
    assert isinstance(outcome.trained, Seq2SeqTask)  # both recipes are for encoder-decoders
    return outcome.trained


def _show_chat(chat: Outcome, console: Console) -> None:
    learnt = chat.pairs.train
    sample = _spread(learnt, MEMORISED)
    answers = _trained(chat).generate([pair.source for pair in sample])
    right = sum(
        answer in _trained(chat).right_answers(pair)
        for pair, answer in zip(sample, answers, strict=True)
    )
    console.print()
    for pair, answer in _spread(list(zip(sample, answers, strict=True)), QUESTIONS):
        console.print(f"  [bold]{escape(pair.source)}[/]\n    {escape(answer)}")
    verdict = tr(
        "It answers {right} of {asked} training questions as in the training data. "
        "This is memory, not understanding: with {learnt} questions it cannot generalise."
    ).format(right=right, asked=len(sample), learnt=len(learnt))
    console.print(f"\n{verdict}\n")


def _show_words(g2p: Outcome, console: Console) -> None:
    held_out = g2p.pairs.test
    assert g2p.scores is not None
    scores = g2p.scores.as_json()
    per, wer, words = scores["per"], scores["wer"], scores["words"]
    verdict = tr(
        "On {words:,} words never seen in training: [bold]PER {per:.1%}[/] (sounds wrong), "
        "WER {wer:.1%} (words wrong)\n(stress marks count; inflected forms of one word may be in "
        "both training and test data)"
    ).format(words=words, per=per, wer=wer)
    console.print(f"\n{verdict}\n")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (tr("new word"), tr("model"), tr("lexicon"), ""):
        table.add_column(head)
    sample = _spread(held_out, WORDS)
    answers = _trained(g2p).generate([pair.source for pair in sample])
    right = []
    for pair, answer in zip(sample, answers, strict=True):
        lexicon = _trained(g2p).right_answers(pair)
        if answer in lexicon:
            right.append(pair.source)
        mark = "[green]✓" if answer in lexicon else ""
        table.add_row(pair.source, answer, tr(" or ").join(lexicon), mark)
    console.print(table)
    word = max(right or [sample[0].source], key=len)
    drawn = tr("Attention while it pronounces [bold]{}[/]: a row for each sound").format(word)
    console.print(f"\n{drawn}\n")
    console.print(draw_attention(_trained(g2p), word), markup=False)
    console.print()


def draw_attention(trained: Seq2SeqTask, text: str) -> str:
    """Draw the cross-attention of a text and its best answer: last decoder layer, mean of heads."""
    source = trained.source.encode(text)
    answer = trained.target.encode(trained.generate([text])[0])
    outputs = [*trained.target.tokens(answer), "end"]
    (scores,) = trained.token_scores([(source, answer)])
    return attention_map(scores.weights, outputs, trained.source.tokens(source))
