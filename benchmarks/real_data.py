"""Goal 2: useful tokens a second on real data, each side with its best batching.

    PELLUCID_DATA=… python -m benchmarks.real_data chatbot-ko|multi30k-de-en [--keep]

Three ways through the same pairs, seed 003's model: Pellucid on packed batches by token budget;
PyTorch on length-bucketed batches padded to their own longest; PyTorch as the seed does it, batches
of 64 padded to 50. They take turns, a stretch of batches each, in one process with two threads.
Source and target tokens that are not padding count as useful.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from benchmarks.machine import machine, quartiles, report
from benchmarks.torch_model import TorchSeq2Seq, TorchTrainer
from threadpoolctl import threadpool_limits

from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.packed import Batch
from pellucid.text.batches import Batches, Examples, encode_pairs
from pellucid.text.corpora import load_corpus
from pellucid.text.tokenizer import train_tokenizer
from pellucid.training import TrainConfig
from pellucid.training.optim import Adam
from pellucid.training.step import train_step

LONGEST = 50
V = 8000


def examples_of(corpus: str) -> tuple[Examples, int]:
    pairs = load_corpus(corpus).train
    texts = [text for pair in pairs for text in (pair.source, *pair.targets)]
    tokenizer = train_tokenizer(texts, "bpe", V)
    return encode_pairs(pairs, tokenizer, tokenizer, max_tokens=LONGEST - 2), tokenizer.vocab_size


def forever(batches: Batches) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from batches.epoch(epoch)
        epoch += 1


def pellucid_way(examples: Examples, v: int, tokens: int) -> Callable[[], int]:
    config = Seq2SeqConfig(
        v, v, positions="learned", max_position_embeddings=LONGEST + 1, final_norm=False
    )
    model, settings = Seq2Seq(config), TrainConfig(steps=1)
    optimizer = Adam(model.named_parameters(), settings.optimizer)
    stream = enumerate(forever(Batches(examples, seed=0, batch_tokens=tokens)), 1)

    def step() -> int:
        number, batch = next(stream)
        train_step(model, optimizer, batch, settings, step=number, lr=5e-4)
        return batch.useful_tokens

    return step


def torch_way(examples: Examples, v: int, bucketed: bool, sentences: int) -> Callable[[], int]:
    trainer = TorchTrainer(TorchSeq2Seq(v, 256, 8, 3, 512, LONGEST + 1, 0.1))
    stream = forever(Batches(examples, seed=0, batch_size=sentences, bucketed=bucketed))

    def step() -> int:
        batch = next(stream)
        source, target = batch.source.padded(0), batch.target.padded(0)
        if not bucketed:
            source = np.pad(source, [(0, 0), (0, LONGEST - source.shape[1])])
            target = np.pad(target, [(0, 0), (0, LONGEST + 1 - target.shape[1])])
        trainer.step(source, target)
        return batch.useful_tokens

    return step


def stretch(step: Callable[[], int], seconds: float) -> float:
    """Return useful tokens a second over about this long."""
    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        done += step()
    return done / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=["chatbot-ko", "multi30k-de-en"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way in each round")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    torch.set_num_threads(2)
    where = machine()
    examples, v = examples_of(options.corpus)
    per_sentence = float(examples.useful_tokens.mean())
    sentences = 64 if options.corpus == "chatbot-ko" else 128
    ways = {
        "pellucid": pellucid_way(examples, v, round(sentences * per_sentence)),
        "torch_bucketed": torch_way(examples, v, True, sentences),
        "torch_padded_to_50": torch_way(examples, v, False, sentences),
    }
    with threadpool_limits(2):
        for step in ways.values():
            step()
            step()
        rates = np.array(
            [
                [stretch(step, options.seconds) for step in ways.values()]
                for _ in range(options.rounds)
            ]
        )
    result = {
        "benchmark": "real_data",
        "corpus": options.corpus,
        "sentences_per_batch": sentences,
        "vocabulary": v,
        "useful_tokens_per_s": {
            name: quartiles(column, 0) for name, column in zip(ways, rates.T, strict=True)
        },
        "ratio_to_bucketed": quartiles(rates[:, 0] / rates[:, 1], 2),
        "ratio_to_padded": quartiles(rates[:, 0] / rates[:, 2], 2),
        "torch": torch.__version__,
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()
