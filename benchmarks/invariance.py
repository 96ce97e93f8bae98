"""Measure whether answers depend on the batch or on the cache, with a trained model.

    python -m benchmarks.invariance MODEL SOURCES [--sentences 1000] [--plain 1000] [--keep]

Three implementations answer the same sentences, greedily and with beam 5, in batches of 1, 7 and
64, in another order, and all at once. The kernels are compared to the last bit of every score. The
reference ops, which use BLAS, are compared by tokens, with the number of sentences whose margin was
under the threshold, so that they were answered again alone. Without a cache, with every prefix
computed anew, tokens are compared with those of the kernels; each difference is listed with its
margin. Noise is the largest difference from the kernels in the log-probabilities of whole answers,
and of single tokens over the whole vocabulary, that batch and cache cause in the reference ops.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import machine, read_lines, report

from pellucid import ops, reference
from pellucid.compiled.engine import Engine
from pellucid.core.batch import Batch, Packed
from pellucid.generation import Hypothesis, SearchConfig
from pellucid.generation.search import MARGIN, search_once
from pellucid.models import Seq2Seq
from pellucid.tasks.folder import load_model

Rows = list[list[int]]
Answers = list[list[Hypothesis]]
BATCHES = (1, 7, 64)


@dataclass(frozen=True)
class _Read:
    """State of `Uncached`: sources and the tokens generated so far."""

    source: Rows
    said: Rows

    def select(self, rows: np.ndarray) -> _Read:
        return _Read([self.source[i] for i in rows], [self.said[i] for i in rows])


class Uncached:
    """A model that computes source and prefix anew for every token."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model, self.config, self.dtype = model, model.config, model.dtype
        self.room = model.room

    def start(self, source: Packed) -> _Read:
        rows = np.split(source.tokens, source.cu_seqlens[1:-1])
        return _Read([row.tolist() for row in rows], [[] for _ in rows])

    def step(self, state: _Read, tokens: np.ndarray) -> tuple[np.ndarray, _Read]:
        said = [[*row, int(token)] for row, token in zip(state.said, tokens, strict=True)]
        target = Packed.of([[*row, self.config.eos_token_id] for row in said])
        rows, _ = self.model.decode_rows(Batch(Packed.of(state.source), target))
        last = np.cumsum([len(row) for row in said]) - 1
        return ops.log_softmax(self.model.output(rows[last]))[0], _Read(state.source, said)


def in_batches(rows: Rows, batch: int, answer: Callable[[Packed], list[Any]]) -> list[Any]:
    """Answer rows in their order, in batches of `batch`."""
    parts = [rows[at : at + batch] for at in range(0, len(rows), batch)]
    return [one for part in parts for one in answer(Packed.of(part))]


def tokens_of(answers: Answers) -> list[list[tuple[int, ...]]]:
    """Return the tokens of all hypotheses."""
    return [[hypothesis.tokens for hypothesis in best] for best in answers]


def differing(one: list[Any], other: list[Any]) -> int:
    """Count the differing entries."""
    return sum(a != b for a, b in zip(one, other, strict=True))


def by_kernels(engine: Engine, rows: Rows, config: SearchConfig) -> tuple[Answers, dict[str, Any]]:
    """Compare whole answers of the kernels, scores included, bit for bit."""
    alone = in_batches(rows, 1, lambda source: engine.search(source, config))
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = in_batches([rows[i] for i in order], 64, lambda s: engine.search(s, config))
    ways = {str(b): in_batches(rows, b, lambda s: engine.search(s, config)) for b in BATCHES[1:]}
    ways["64, shuffled"] = [shuffled[i] for i in np.argsort(order)]
    ways["all at once"] = engine.search(Packed.of(rows), config)
    return alone, {name: differing(alone, found) for name, found in ways.items()}


def by_pages(
    model: Seq2Seq, rows: Rows, config: SearchConfig
) -> tuple[Answers, dict[str, Any], dict[str, int], float]:
    """Compare tokens of the reference ops.

    Return answers, differences, repeats and noise.
    """
    margin = MARGIN[model.dtype]
    found: dict[str, Answers] = {}
    again: dict[str, int] = {}
    order = np.random.default_rng(0).permutation(len(rows))
    alone = in_batches(rows, 1, lambda s: search_once(model, s, config))
    for name, batch, places in (
        *((str(batch), batch, np.arange(len(rows))) for batch in BATCHES[1:]),
        ("64, shuffled", 64, order),
    ):
        searches = in_batches([rows[i] for i in places], batch,
                              lambda s: search_once(model, s, config))  # fmt: skip
        searches = [searches[i] for i in np.argsort(places)]
        again[name] = sum(one.margin < margin for one in searches)
        found[name] = [
            _best((alone[i] if one.margin < margin else one).done, config)
            for i, one in enumerate(searches)
        ]
    answers = [_best(one.done, config) for one in alone]
    wanted = tokens_of(answers)
    noise = max(
        abs(a[0].log_p - b[0].log_p)
        for other in found.values()
        for a, b in zip(answers, other, strict=True)
        if a[0].tokens == b[0].tokens
    )
    differ = {name: differing(wanted, tokens_of(other)) for name, other in found.items()}
    return answers, differ, again, noise


def _best(done: list[Hypothesis], config: SearchConfig) -> list[Hypothesis]:
    return sorted(done, key=lambda h: -h.score)[: config.best]


def token_noise(implementations: dict[str, Any], rows: Rows, said: Rows) -> dict[str, float]:
    """Return the largest |log p − log p of the kernels| over all tokens, by implementation."""
    worst = dict.fromkeys(implementations, 0.0)
    for at in range(0, len(rows), 64):
        source = Packed.of(rows[at : at + 64])
        answers = said[at : at + 64]
        states = {name: model.start(source) for name, model in implementations.items()}
        for step in range(max(map(len, answers)) + 1):
            padded = [([1, *answer] + [2] * step)[step] for answer in answers]
            log_ps = {}
            for name, model in implementations.items():
                log_ps[name], states[name] = model.step(states[name], np.array(padded))
            first = log_ps["kernels"]
            for name, log_p in log_ps.items():
                worst[name] = max(worst[name], float(np.abs(log_p - first).max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument(
        "--plain", type=int, default=1000, help="sentences for the slow implementations"
    )
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    trained = load_model(options.model)
    model: Any = trained.model
    engine, uncached = Engine(model), Uncached(model)
    rows = [ids for ids in trained.source.encode_all(read_lines(options.sources)) if ids]
    rows = rows[: options.sentences]
    few = rows[: options.plain]
    for beam in options.beams:
        config = SearchConfig(beam=beam, max_length=trained.search.max_length)
        answers, differ = by_kernels(engine, rows, config)
        result: dict[str, Any] = {
            "benchmark": "invariance",
            "beam": beam,
            "sentences": len(rows),
            "kernels": {"differ_in_any_bit_from_batch_1": differ},
        }
        wanted = tokens_of(answers[: len(few)])
        with reference():
            paged, differ, again, noise = by_pages(model, few, config)
        read_anew = in_batches(few, 64, lambda s, c=config: search_once(uncached, s, c))
        uncached_answers = [_best(one.done, config) for one in read_anew]
        changed = [i for i, a in enumerate(tokens_of(uncached_answers)) if a != wanted[i]]
        result["plain_pages"] = {
            "sentences": len(few),
            "differ_from_batch_1": differ,
            "answered_again": again,
            "noise_of_answers": noise,
            "differ_from_kernels": differing(tokens_of(paged), wanted),
        }
        result["uncached"] = {
            "sentences": len(few),
            "answered_again": sum(one.margin < MARGIN[model.dtype] for one in read_anew),
            "differ_from_kernels": len(changed),
            "largest_margin_of_those": max((read_anew[i].margin for i in changed), default=0.0),
            "noise_of_answers": max(
                abs(a[0].log_p - b[0].log_p)
                for a, b in zip(uncached_answers, answers, strict=False)
                if a[0].tokens == b[0].tokens
            ),
        }
        said = [list(best[0].tokens) for best in answers[: len(few)]]
        implementations = {"kernels": engine, "plain_pages": _Plain(model), "uncached": uncached}
        result["noise_of_tokens"] = token_noise(implementations, few[:128], said[:128])
        report(result | {"margin": MARGIN[model.dtype]} | machine(), options.keep)


class _Plain:
    """A model that runs with the reference ops."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model

    def start(self, source: Packed) -> Any:
        with reference():
            return self.model.start(source)

    def step(self, state: Any, tokens: np.ndarray) -> Any:
        with reference():
            return self.model.step(state, tokens)


if __name__ == "__main__":
    main()
