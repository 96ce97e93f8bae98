"""Train on streams of batches and count useful tokens, in Pellucid and in PyTorch.

Pellucid uses packed rows, PyTorch batches of similar length. Source tokens and predicted tokens are
useful; padding is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.step import article_config, pellucid_trainer
from benchmarks.torch_model import TorchTrainer

from pellucid.core.batch import Batch
from pellucid.data.batches import Batches, Examples, encode_pairs
from pellucid.data.corpora import load_corpus
from pellucid.data.tokenizers import train_tokenizer
from pellucid.kernels.backend.threads import available
from pellucid.kernels.device import CPU, Precision
from pellucid.models import Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask, task_of
from pellucid.training.config import load_recipe
from pellucid.training.experiment import encode, make_tokenizers, read_data

LONGEST = 50
VOCABULARY = 8000
SENTENCES = {"chatbot-ko": 64, "multi30k-de-en": 128}
"""Corpora for article 003's model, and the number of pairs in a batch."""
DEMO = "g2p-demo"
"""The recipe whose data comes with the package; its own model is trained on it."""


@dataclass(frozen=True)
class Task:
    """Pairs, the model to train on them, and the size of a batch for either side."""

    name: str
    examples: Examples
    config: Seq2SeqConfig
    batch_tokens: int
    sentences: int


def article_task(corpus: str) -> Task:
    """Return a corpus with article 003's model. Raises `UserError` if data is missing."""
    pairs = load_corpus(corpus).train
    texts = [text for pair in pairs for text in (pair.source, *pair.targets)]
    tokenizer = train_tokenizer(texts, "bpe", VOCABULARY)
    examples = encode_pairs(pairs, tokenizer, tokenizer, max_tokens=LONGEST - 2)
    v, sentences = tokenizer.vocab_size, SENTENCES[corpus]
    tokens = round(sentences * float(examples.useful_tokens.mean()))
    model = article_config(
        source_vocab_size=v, target_vocab_size=v, max_position_embeddings=LONGEST + 1
    )
    return Task(corpus, examples, model, tokens, sentences)


def demo_task() -> Task:
    """Return the demo's pronunciations with its model.

    ReLU, as torch's layers have no gate. Raises `UserError` if they cannot be downloaded.
    """
    recipe = load_recipe(DEMO)
    plain = replace(recipe.model, activation_function="relu", ffn_dim=512)
    recipe = replace(recipe, model=plain)
    pairs = read_data(recipe)
    tokenizers = make_tokenizers(recipe, pairs)
    trained = task_of(recipe.model).build(recipe.model, tokenizers, recipe.search, recipe.seed)
    assert isinstance(trained, Seq2SeqTask)  # the recipe is for an encoder-decoder
    examples = encode(trained, pairs.train, recipe, pairs.first_target_only)
    tokens, config = recipe.data.batch_tokens, trained.model.config
    return Task(DEMO, examples, config, tokens, round(tokens / examples.useful_tokens.mean()))


def forever(batches: Batches, epoch: int = 0) -> Iterator[Batch]:
    """Yield the batches of every epoch from this one on."""
    while True:
        yield from batches.epoch(epoch)
        epoch += 1


def pellucid_way(task: Task, precision: Precision = "float32") -> Callable[[], int]:
    """Return a function that trains on the next batch and returns its useful tokens."""
    train = pellucid_trainer(task.config, CPU, precision)
    stream = forever(Batches(task.examples, seed=0, batch_tokens=task.batch_tokens))

    def step() -> int:
        batch = next(stream)
        train(batch)
        return batch.useful_tokens

    return step


def torch_way(
    task: Task, padded_to: int | None = None, precision: Precision = "float32"
) -> Callable[[], int]:
    """Return the same for PyTorch.

    Batches have similar lengths and are padded to their longest, or are shuffled and padded to
    `padded_to`, as in article 003.
    """
    trainer = TorchTrainer(task.config, available(), narrow=precision == "bfloat16")
    bucketed = padded_to is None
    batches = Batches(task.examples, seed=0, batch_size=task.sentences, bucketed=bucketed)
    stream = forever(batches)

    def step() -> int:
        batch = next(stream)
        source, target = batch.source.padded(0), batch.target.padded(0)
        if padded_to is not None:
            source = np.pad(source, [(0, 0), (0, padded_to - source.shape[1])])
            target = np.pad(target, [(0, 0), (0, padded_to + 1 - target.shape[1])])
        trainer.step(source, target)
        return batch.useful_tokens

    return step


def stretch(step: Callable[[], int], seconds: float) -> float:
    """Return useful tokens per second, measured over some seconds."""
    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        done += step()
    return done / spent
