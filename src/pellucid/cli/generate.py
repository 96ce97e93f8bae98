"""`pellucid generate MODEL`: text in, text out: arguments, a file, a pipe, or a prompt."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import tyro

from pellucid.cli.answers import answer_window
from pellucid.cli.fill import fill_verb
from pellucid.cli.lines import given, standard_input, windows
from pellucid.cli.prompt import converse
from pellucid.core.errors import UsageError, UserError
from pellucid.families import family_of
from pellucid.families.folder import load_model
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.pipelines.base import GenerationPipeline


def run(arguments: list[str]) -> int:
    """Run the verb: the model named first says which options there are, and their defaults."""
    named = bool(arguments) and not arguments[0].startswith("-")
    if not named and not {"-h", "--help"} & set(arguments):
        raise UsageError("which model? Say `pellucid generate MODEL [TEXT ...]`")
    trained: Any = load_model(Path(arguments[0])) if named else None
    if trained is not None and not family_of(trained).generates:
        return fill_verb(trained, arguments)
    saved = trained.search if trained else SearchConfig()

    def generate(
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        /,
        *,
        search: Annotated[SearchConfig, tyro.conf.arg(name="")] = saved,
        file: Path | None = None,
        prefix: str = "",
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        scores: bool = False,
        json: bool = False,
    ) -> int:
        """Give a trained model (its folder, or its run's) text and print its answers.

        An encoder-decoder answers, a decoder alone continues the text, an encoder alone fills
        [MASK] in it (its own options show when the model is named). One line for each text, in
        order; several answers to one are separated by tabs. Without TEXT, lines are read from
        standard input; at a terminal a prompt opens. The defaults are those saved with the model.
        Any of --temperature, --top-k, --top-p, --min-p and --seed draws an answer instead of
        searching for the likeliest.

        Args:
            text: What to answer; quote a text that holds spaces.
            file: Answer the lines of this file.
            prefix: What every answer must begin with; an empty text still has an empty answer.
            temperature: Draw; log-probabilities are divided by it: below 1 surer, above 1 wilder.
            top_k: Draw among this many likeliest tokens; 0 among all.
            top_p: Draw among the fewest likeliest tokens that hold this share of the probability.
            min_p: Draw, without tokens less likely than this share of the likeliest one's
                probability.
            seed: Draw with this seed.
            scores: Put each answer's log-probability before it.
            json: Print one JSON object a line: tokens, scores and alignment.
        """
        assert trained is not None
        draws = {
            name: value
            for name, value in (
                ("temperature", temperature),
                ("top_k", top_k),
                ("top_p", top_p),
                ("min_p", min_p),
                ("seed", seed),
            )
            if value is not None
        }
        sampling = _sampling(search, draws) if draws else None
        asked = replace(trained, search=search, sampling=sampling, prefix=prefix)
        return _generate(asked, text, file, scores=scores, as_json=json)

    name = arguments[0] if named else "MODEL"
    return tyro.cli(generate, prog=f"pellucid generate {name}", args=arguments[1 if named else 0 :])


def _sampling(search: SearchConfig, draws: dict[str, float | int]) -> SampleConfig:
    if search.best > 1:
        raise UsageError(
            f"drawing gives one answer, --best {search.best} asks for more: leave out one of them"
        )
    plain = SampleConfig(max_length=search.max_length, constraints=search.constraints)
    return replace(plain, **draws)  # type: ignore[arg-type]


def _generate(
    trained: GenerationPipeline,
    texts: tuple[str, ...],
    file: Path | None,
    *,
    scores: bool,
    as_json: bool,
) -> int:
    if texts and file is not None:
        raise UsageError("give texts or --file, not both")
    if texts:
        return int(not answer_window(trained, given(texts), "text", scores=scores, as_json=as_json))
    if file is None and sys.stdin.isatty() and not as_json:
        return converse(trained, scores)
    if file is None:
        return _answer_lines(trained, standard_input(), scores, as_json)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    return _answer_lines(trained, stream, scores, as_json)


def _answer_lines(
    trained: GenerationPipeline, stream: BinaryIO, scores: bool, as_json: bool
) -> int:
    failed = False
    speaker = functools.cache(trained.speaker)
    for window in windows(stream):
        whole = answer_window(
            trained, window, "line", scores=scores, as_json=as_json, speaker=speaker
        )
        failed = failed or not whole
    return int(failed)
