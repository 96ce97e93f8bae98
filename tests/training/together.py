"""Several workers in the threads of one process: gloo does not mind, and nothing is started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.training.copying import MODEL, TRAIN, VOCABULARY, Reversals, held_out

from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.config import CausalLMConfig, MaskedLMConfig
from pellucid.optim.config import OptimizerConfig
from pellucid.training.config import TrainingConfig
from pellucid.training.events import TIME_FIELDS, Event
from pellucid.training.torch_workers import TorchWorkers
from pellucid.training.trainer import Trainer
from pellucid.training.workers import Workers

LAYERS = {"d_model": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "ffn_dim": 17}
FAMILIES: dict[str, Callable[[], Any]] = {
    "seq2seq": lambda: Seq2Seq(replace(MODEL, dropout=0.1), seed=3),
    "causal_lm": lambda: CausalLM(
        CausalLMConfig(vocab_size=VOCABULARY, dropout=0.1, **LAYERS), seed=3
    ),
    "masked_lm": lambda: MaskedLM(
        MaskedLMConfig(vocab_size=VOCABULARY + 1, dropout=0.1, mask_token_id=VOCABULARY, **LAYERS),
        seed=3,
    ),
}
IN_PARTS = replace(
    TRAIN, parts=8, checkpoint_every=None, optimizer=OptimizerConfig("adamw", clip=0.5)
)


def together(
    size: int, work: Callable[[Workers], Any], *, timeout: float = 60.0, failing: bool = False
) -> list[Any]:
    """Do the work of each worker in a thread; return what they returned, or raised if `failing`."""
    if size == 1:
        return [work(Workers())]
    import torch  # workers exchange numbers through it

    store = torch.distributed.HashStore()
    found: list[Any] = [None] * size
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            with TorchWorkers(store, rank, size, timeout=timeout) as workers:
                found[rank] = work(workers)
        except BaseException as error:
            found[rank] = error
            if not isinstance(error, SystemExit):
                errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors and not failing:
        raise errors[0]
    return found


def train(
    family: str, config: TrainingConfig, workers: Workers, batches: int = 13, size: int = 13
) -> dict[str, Any]:
    """Train a model; return all that must not depend on the number of workers."""
    events: list[Event] = []
    model = FAMILIES[family]()
    trainer = Trainer(
        model,
        Reversals(batches, size),
        config,
        validation=held_out(),
        listeners=[events.append],
        workers=workers,
    )
    trainer.fit()
    untimed = dict.fromkeys(TIME_FIELDS, 0)
    return {
        "weights": model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "events": [vars(event) | untimed for event in events],
    }


def assert_equal(found: dict[str, Any], expected: dict[str, Any], what: Sequence[str]) -> None:
    for part in what:
        if part == "events":
            assert found[part] == expected[part]
            continue
        assert found[part].keys() == expected[part].keys()
        for name, array in expected[part].items():
            np.testing.assert_array_equal(found[part][name], array, err_msg=name)
