"""Decoding speed: Pellucid beside CTranslate2 and Hugging Face's generate, on the same weights.

    python -m benchmarks.decoding MODEL SOURCES [--rounds 5] [--sentences 1000] [--keep]
                                  [--references REFERENCES]

MODEL is a model folder (pre-norm, one vocabulary), SOURCES a text file, or one in gzip. Greedy and
beam 5, with batches of 1 and of 64 sentences of like length; every engine gets token ids and gives
token ids, on two threads: CTranslate2 at its better of 1 worker with 2 threads and 2 workers with
1. All take turns in every round. The figure is answer tokens a second, the end token counted
(quartiles over the rounds), and the ratio within a round: of Pellucid in float32 to all peers, and
in int8 to CTranslate2's int8. Hugging Face's generate, which is slow, gets the first 1/20 of the
sentences at batch 1. With REFERENCES, also the BLEU of Pellucid's answers in float32 and int8.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import transformers
from benchmarks.decoding_peers import (
    Decode,
    Rows,
    ctranslate2_engine,
    pellucid_engine,
    transformers_engine,
)
from benchmarks.machine import machine, quartiles, read_lines, report

from pellucid.data.tokenizers import Tokenizer
from pellucid.tasks.bleu import bleu
from pellucid.tasks.folder import load_model

WAYS = ((1, 2), (2, 1))  # CTranslate2's workers, and threads of each


def timed(decode: Decode, rows: Rows, batch: int, beam: int) -> tuple[float, list[list[int]]]:
    """Return tokens a second, and the answers."""
    began = time.perf_counter()
    answers = decode(rows, batch, beam)
    seconds = time.perf_counter() - began
    return sum(len(answer) + 1 for answer in answers) / seconds, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 1])
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--references", type=Path)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    where = machine()
    trained = load_model(options.model)
    model, tokens = trained.model, trained.source
    every = tokens.encode_all(read_lines(options.sources))
    numbers = [i for i, ids in enumerate(every) if ids][: options.sentences]
    rows = [every[i] for i in numbers]
    wanted = read_lines(options.references) if options.references else []
    references = [wanted[i] for i in numbers] if wanted else []
    engines: dict[str, Decode] = {
        "pellucid": pellucid_engine(model, "float32"),
        "pellucid_int8": pellucid_engine(model, "int8"),
    }
    for kind in ("float32", "int8"):
        for workers, threads in WAYS:
            name = f"ctranslate2_{kind} {workers}x{threads}"
            engines[name] = ctranslate2_engine(model, tokens, kind, workers, threads)
    engines["transformers"] = transformers_engine(model)
    for beam in options.beams:
        for batch in options.batches:
            result, answers = measure(engines, rows, batch, beam, options.rounds)
            if references:
                result["bleu"] = {
                    name: bleu_of(tokens, answers[name], references)
                    for name in ("pellucid", "pellucid_int8")
                }
            report(result | VERSIONS | where, options.keep)


def bleu_of(tokens: Tokenizer, answers: list[list[int]], references: list[str]) -> float:
    """Compute the cased BLEU of answers."""
    cased, _, _ = bleu([tokens.decode(a) for a in answers], [[r] for r in references], False)
    return round(cased.value, 2)


VERSIONS = {"ctranslate2": ctranslate2.__version__, "transformers": transformers.__version__}


def measure(
    engines: dict[str, Decode], rows: Rows, batch: int, beam: int, rounds: int
) -> tuple[dict[str, object], dict[str, list[list[int]]]]:
    """Measure all engines in turn; return a line of results, and their answers."""
    shares = dict.fromkeys(engines, rows)
    if batch == 1:
        shares["transformers"] = rows[: max(1, len(rows) // 20)]
    for name, decode in engines.items():  # compile, and fill the caches
        decode(shares[name][: 2 * batch], batch, beam)
    rates: dict[str, list[float]] = {name: [] for name in engines}
    answers: dict[str, list[list[int]]] = {}
    for _ in range(rounds):
        for name, decode in engines.items():
            rate, answers[name] = timed(decode, shares[name], batch, beam)
            rates[name].append(rate)
    best = {name: name for name in ("pellucid", "pellucid_int8", "transformers")}
    for kind in ("ctranslate2_float32", "ctranslate2_int8"):
        best[kind] = max(
            (name for name in engines if name.startswith(kind)), key=lambda n: np.median(rates[n])
        )
    ours = np.array(rates["pellucid"])
    peers = ["transformers", "ctranslate2_float32", "ctranslate2_int8"]
    int8_ratio = np.array(rates["pellucid_int8"]) / rates[best["ctranslate2_int8"]]
    result = {
        "benchmark": "decoding",
        "beam": beam,
        "batch": batch,
        "sentences": len(rows),
        "tokens_per_s": {kind: quartiles(rates[name], 0) for kind, name in best.items()},
        "ratio_to": {kind: quartiles(ours / rates[best[kind]], 2) for kind in peers},
        "int8_ratio_to_int8": quartiles(int8_ratio, 2),
        "workers_x_threads": {kind: best[kind].split()[-1] for kind in peers[:0:-1]},
        "same_answers": {
            kind: _same(answers["pellucid"], answers[best[kind]])
            for kind in ("pellucid_int8", *peers)
        },
    }
    return result, answers


def _same(ours: list[list[int]], theirs: list[list[int]]) -> str:
    """Count how many answers are equal, as text."""
    same = sum(a == b for a, b in zip(ours, theirs, strict=False))
    return f"{same} of {min(len(ours), len(theirs))}"


if __name__ == "__main__":
    main()
