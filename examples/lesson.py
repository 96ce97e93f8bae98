"""What the scripts in examples/ share: options, pictures, a small trained chatbot."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pellucid
from pellucid import nn
from pellucid.apps.cli.language import in_korean
from pellucid.apps.cli.main import main
from pellucid.apps.teach import pictures
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim import schedules
from pellucid.optim.model import ModelOptimizer
from pellucid.system.language import Language, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECIPE = "chat-ko-small"
"""The demo's chatbot: 696 Korean pairs, 1.4 million parameters, about a minute."""

EPOCH = 10
"""Its steps in one epoch; the loss is measured once an epoch."""


class Lesson:
    """The options of an example script, read from its command line; defaults in a notebook.

    `language` is what it is written in, and its pictures are labelled in.
    """

    suffix = ".png"

    def __init__(self, about: str, language: Language = "en") -> None:
        self.language = language
        parser = argparse.ArgumentParser(description=about.strip().splitlines()[0])
        parser.add_argument(
            "--output", type=Path, default=Path("runs/examples"), help="folder for pictures, models"
        )
        parser.add_argument("--model", type=Path, help="trained chatbot; unset: trains a small one")
        parser.add_argument(
            "--steps", type=int, default=400, help=f"training steps of {RECIPE} (default 400)"
        )
        given = parser.parse_args([] if in_notebook() else None)
        if given.steps < EPOCH:
            parser.error(f"--steps must be at least {EPOCH}, one epoch; got {given.steps}")
        self.output: Path = given.output
        self.model: Path | None = given.model
        self.steps: int = given.steps

    def show(self, name: str, draw: Callable[..., Figure], *arguments: Any) -> None:
        """Draw a picture, save it as NAME.png and display it in a notebook.

        In the site's workbench it is an SVG file, whose text the browser writes.

        `draw` gets the arguments, or else the language. Without matplotlib it prints a note and
        continues.
        """
        try:
            figure = draw(*(arguments or (self.language,)))
        except UserError as error:
            why = Text(f"no picture: {error}", f"그림 없음: {in_korean(str(error))}")
            print(why.to(self.language))
            return
        self.output.mkdir(parents=True, exist_ok=True)
        path = self.output / f"{name}{self.suffix}"
        pictures.save(figure, path)
        print(f"{Text('picture', '그림').to(self.language)}: {path}")
        if in_notebook():
            ipython = importlib.import_module("IPython.display")
            ipython.display(ipython.Image(str(path)))

    def chatbot(self, name: str = "chatbot", *settings: str) -> Any:
        """Return a trained chatbot: `--model` if given, else the small one, trained once.

        `settings` are options of `pellucid train`, as in "--model.attention-scale=d_k"; a run with
        settings is always trained here, under its own name.
        """
        if self.model is not None and not settings:
            try:
                return pellucid.load(self.model)
            except UserError as error:
                raise SystemExit(f"--model: {error}") from error
        return pellucid.load(self.train(name, *settings))

    def train(self, name: str, *settings: str, share: float = 1.0) -> Path:
        """Train the small chatbot, unless its run folder is there already; return the folder.

        `share` of the steps, where many short runs are compared.
        """
        steps = max(EPOCH, round(self.steps * share))
        folder = self.output / f"{name}-{steps}-steps"
        if not (folder / "model").is_dir():
            # steps alone end it: a run that the clock ends cannot be compared with another
            budget = [f"--training.steps={steps}", "--training.minutes=10000"]
            said = Text(f"training {name}: {steps} steps", f"{name} 학습: {steps}스텝")
            print(said.to(self.language))
            with redirect_stdout(io.StringIO()):
                code = main(["train", RECIPE, "--run", str(folder), *budget, *settings])
            if code:
                raise SystemExit(code)
        return folder


def final_loss(folder: Path) -> float:
    """Return the training loss of a run's last epoch, in nats a token."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    epochs = [event for line in lines if (event := json.loads(line))["event"] == "epoch_ended"]
    return float(epochs[-1]["loss"])


def stored_runs(study: str) -> list[dict[str, Any]]:
    """Return the runs of a study of the lab that are stored; none of a study that is not.

    `study` ends the study's name, as "003" or "exponent" do. They come from results/studies, here
    and in the folders above, or else from runs.json beside this file, which has the figures that
    the articles use.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        for path in sorted((folder / "results" / "studies").glob(f"*{study}.jsonl")):
            lines = path.read_text(encoding="utf-8").splitlines()
            return [run for line in lines if (run := json.loads(line))["status"] == "done"]
    kept = json.loads(Path(__file__).with_name("runs.json").read_text(encoding="utf-8"))
    for name, runs in kept.items():
        if name.endswith(study):
            return list(runs)
    print(f"neither results/studies/*{study}.jsonl nor runs.json has these runs")
    return []


EPOCHS_003 = (1, 2, 3, 48, 49, 50)
ARTICLE_003 = {
    "sqrt_d_k": (39.521, 32.778, 28.304, 0.349, 0.339, 0.325),
    "d_k": (39.297, 31.671, 26.675, 0.271, 0.266, 0.263),
    "no_embedding_scale": (41.257, 35.059, 33.479, 6.011, 5.898, 5.811),
    "positions": (40.652, 34.497, 31.683, 0.423, 0.418, 0.425),
    "positions_and_d_k": (40.595, 33.945, 29.974, 0.324, 0.291, 0.304),
}
"""The losses that article 003 prints, by variant, and the epochs after which it prints them."""

POWERS = {"unscaled": 0.0, "d_k": 1.0, "positions_and_d_k": 1.0, "d_k^2": 2.0}
"""The p of the scores / d_k^p in article 003's variants; the others have p = 0.5."""

STUDENT = {3: 4.303, 5: 2.776}
"""Student's t, two-sided 95 %, by the number of runs."""


def prediction_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the interval that holds a new run with probability 95 %, by Student's t.

    The range of n runs would leave out a new one with probability 2 / (n + 1).
    """
    n = len(values)
    half = STUDENT[n] * float(values.std(ddof=1)) * (1 + 1 / n) ** 0.5
    return float(values.mean()) - half, float(values.mean()) + half


def width_and_power(change: str) -> tuple[int, float]:
    """Return (d_k, p) of a variant of article-003, exponent or score-variance: scores / d_k^p.

    >>> width_and_power("d16_p0.75"), width_and_power("wide_p0.5"), width_and_power("d_k")
    ((16, 0.75), (32, 0.5), (32, 1.0))
    """
    if found := re.fullmatch(r"(?:d(\d+)|[a-z]+)_p([\d.]+)", change):
        return int(found[1] or 32), float(found[2])
    return 32, POWERS.get(change, 0.5)


def scaled_variance(run: Mapping[str, Any], probe: int, seen: str = "score_variance") -> float:
    """Return the variance of a stored run's scaled scores at a probe.

    The median of the heads of the decoder's self-attention. `seen` is "score_variance", of all
    queries and keys, or "row_variance", of the keys of one query.
    """
    width, power = width_and_power(run["change"])
    heads = [
        variance
        for name, layer in run["probes"][probe]["attention"].items()
        if name.startswith("decoder") and name.endswith("self_attn")
        for variance in layer[seen]
    ]
    return float(np.median(heads) / width ** (2 * power))


def trained_variances() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `draw_trained` draws, from the stored studies article-003 and exponent.

    The first: by variant of article 003 (steps, least, most) of the runs' scaled variance. The
    second: by head width (p, median variance at the end, median training loss at the end).
    """
    over_steps, at_the_end = {}, {}
    runs = stored_runs("-003")
    for change in ("unscaled", "sqrt_d_k", "d_k", "d_k^2"):
        chosen = [run for run in runs if run["change"] == change]
        steps = [probe["step"] for probe in chosen[0]["probes"]]
        curves = np.array([[scaled_variance(r, i) for i in range(len(steps))] for r in chosen])
        over_steps[change] = steps, curves.min(axis=0), curves.max(axis=0)
    runs = [run for run in stored_runs("exponent") if "_p" in run["change"]]
    for width in (16, 32, 64):
        points = []
        changes = {run["change"] for run in runs if width_and_power(run["change"])[0] == width}
        for change in sorted(changes, key=width_and_power):
            chosen = [run for run in runs if run["change"] == change]
            variance = np.median([scaled_variance(run, -1) for run in chosen])
            loss = np.median([run["metrics"]["train_loss"] for run in chosen])
            points.append((width_and_power(change)[1], float(variance), float(loss)))
        at_the_end[f"d_k = {width}"] = points
    return over_steps, at_the_end


TRAINED = {
    "heading": Text(
        "Article 003: the variance of the scaled scores, decoder self-attention (dotted: 1)",
        "글 003: 스케일된 점수의 분산, 디코더 셀프 어텐션 (점선: 1)",
    ),
    "during": Text(
        "Article 003's model, during training (bands: all runs)",
        "글 003의 모델, 학습하는 동안 (띠: 모든 실행)",
    ),
    "end": Text(
        "A smaller model, at the end (star: lowest training loss)",
        "더 작은 모델, 학습이 끝난 뒤 (별: 학습 손실이 가장 낮은 p)",
    ),
    "step": Text("step", "스텝"),
    "variance": Text("variance of q·k / d_k^p", "q·k / d_k^p의 분산"),
    "power": Text("p of the scores / d_k^p", "점수 / d_k^p의 p"),
    "unscaled": Text("not scaled", "스케일링 없음"),
    "sqrt_d_k": Text("/ √d_k", "/ √d_k"),
    "d_k": Text("/ d_k", "/ d_k"),
    "d_k^2": Text("/ d_k²", "/ d_k²"),
}
"""What is written in the picture of `draw_trained`."""


def draw_trained(
    over_steps: Mapping[str, tuple[Sequence[int], np.ndarray, np.ndarray]],
    at_the_end: Mapping[str, Sequence[tuple[float, float, float]]],
    language: Language = "en",
) -> Figure:
    """Draw the variance of scaled scores during training, and at its end against the exponent.

    The arguments are what `trained_variances` returns; a star marks the lowest loss.
    """
    drawn, colours = pictures.labels_in(language), pictures.COLOURS
    words = {name: text.to(drawn) for name, text in TRAINED.items()}
    with pictures.style("".join(words.values())):
        figure, axes = pictures.new_figure(12.0, 4.6, 2)
        for colour, (name, (steps, least, most)) in zip(colours, over_steps.items(), strict=False):
            label = words.get(name, name)
            axes[0].fill_between(steps, least, most, color=colour, alpha=0.25)
            axes[0].plot(steps, np.sqrt(least * most), "o-", color=colour, label=label)
        for colour, (name, points) in zip(colours, at_the_end.items(), strict=False):
            powers, variances, losses = np.array(points).T
            best = losses.argmin()
            axes[1].plot(powers, variances, "o-", color=colour, label=name)
            axes[1].plot(powers[best], variances[best], "*", color=colour, markersize=17, zorder=3)
        axes[0].set_xscale("symlog", linthresh=10)
        axes[0].set(title=words["during"], xlabel=words["step"], ylabel=words["variance"])
        axes[1].set(title=words["end"], xlabel=words["power"])
        for ax in axes:
            ax.set_yscale("log")
            ax.axhline(1.0, color=pictures.INK, linestyle=":", linewidth=1)
            ax.legend(fontsize=9)
        figure.suptitle(words["heading"])
    return figure


def score_map(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str
) -> Figure:
    """Draw an attention map (L, S) with its tokens: a row is a query, dark is a large weight."""
    with pictures.style("".join((title, *queries, *keys))):
        figure, (ax,) = pictures.new_figure(0.5 * len(keys) + 2.8, 0.4 * len(queries) + 1.9, 1)
        image = ax.imshow(weights, cmap="GnBu", vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(keys)), keys, rotation=60, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(queries)), queries)
        ax.set(xlabel="key", ylabel="query")
        figure.suptitle(title, fontsize=11)
        figure.colorbar(image, ax=ax, label="weight")
    return figure


def letters(order: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.random.Generator], Any]:
    """Return what draws 5 to 10 different letters, and the order in which they are written."""

    def draw(draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        source = draws.permutation(20)[: draws.integers(5, 11)]
        return source, order(source)

    return draw


def brackets(draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 3 to 5 letters as opening brackets, closed by token 19 in the right order.

    A B ) ) C ) is answered by B A C: for each closing bracket the letter that it closes.
    """
    names = list(draws.permutation(19)[: draws.integers(3, 6)])
    source: list[int] = []
    opened: list[int] = []
    order: list[int] = []
    while names or opened:
        if names and (not opened or draws.random() < 0.5):
            opened.append(len(source))
            source.append(names.pop())
        else:
            order.append(opened.pop())
            source.append(19)
    return np.array(source), np.array(order)


TASKS: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "copy": letters(lambda tokens: np.arange(len(tokens))),
    "reverse": letters(lambda tokens: np.arange(len(tokens))[::-1]),
    "sort": letters(np.argsort),
    "brackets": brackets,
}
"""Draws a source, and the source positions in the order in which their tokens are written."""


def known_answers(task: str, steps: int) -> tuple[float, list[float], float]:
    """Train a small model on a task of `TASKS`, and score its heads against the right positions.

    Returns the share of right tokens; for each head of cross-attention the mean weight on the
    source position whose token is to be written; and what equal weights would give.
    """
    draws, first = np.random.default_rng(0), 4  # 0 to 3 are padding, begin, end, unknown

    def batch(count: int) -> tuple[Batch, Sequence[np.ndarray]]:
        sources, orders = zip(*(TASKS[task](draws) for _ in range(count)), strict=True)
        targets = [[1, *(first + s[o]), 2] for s, o in zip(sources, orders, strict=True)]
        return Batch(Packed.of([first + s for s in sources]), Packed.of(targets)), orders

    config = Seq2SeqConfig(
        source_vocab_size=24, target_vocab_size=24, d_model=64, num_attention_heads=4,
        encoder_layers=2 if task == "brackets" else 1,  # it has to count before it can match
        decoder_layers=1, ffn_dim=128, dropout=0.0,
    )  # fmt: skip
    model = Seq2Seq(config)
    optimizer = ModelOptimizer(model.named_parameters())
    for step in range(1, steps + 1):
        some, _ = batch(64)
        _, backward = model.loss(some)
        model.zero_grad()
        backward(1 / len(some.target.tokens))
        optimizer.step(schedules.linear(step, lr=3e-3, warmup=min(50, steps // 2), total=steps))
    seen, orders = batch(200)
    model.eval()
    with nn.Recorder() as recorder:
        rows, _ = model.decode_rows(seen)
    right = model.output(rows).argmax(axis=-1) == seen.target.without_first().tokens
    weights = recorder.maps["decoder.layers.0.multihead_attn"].probabilities
    places = [(i, at, place) for i, o in enumerate(orders) for at, place in enumerate(o)]
    example, query, key = np.array(places).T
    scores = weights[example, :, query, key].mean(axis=0)
    return float(right.mean()), scores.tolist(), float((1 / seen.source.lengths[example]).mean())


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this."""
    return "ipykernel" in sys.modules
