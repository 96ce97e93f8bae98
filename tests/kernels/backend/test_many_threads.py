"""The bits of every kernel, of a training step and of decoding do not depend on the threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import FUSED, planned

from pellucid import ops
from pellucid.compiled.engine import Engine
from pellucid.core.batch import Batch, Packed
from pellucid.core.rng import Rng, row_keys
from pellucid.generation import SearchConfig
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import Kernel
from pellucid.kernels.backend.matmul import FLOAT32, division
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.ops import rules
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.training.config import TrainingConfig

pytestmark = pytest.mark.alone

MANY = (2, 3, 5, 8, 16, 32)
T, E, F, V, H = 600, 128, 192, 331, 4
CU = np.array([0, 211, 211, 300, 417, 600])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def both(f: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    """Output and gradients of an op on its kernel; a decline fails."""
    y, backward = planned(f, *args, **options)()
    gradients = backward(normal(*np.shape(y)) if np.ndim(y) else np.float32(1.0))
    return [y, *(gradients if isinstance(gradients, tuple) else [gradients])]


def attention(q: np.ndarray, rule: rules.Rule) -> list[Any]:
    heads = q.reshape(T, 3, H, E // H)
    rng = Rng(7).at(row_keys(np.zeros(1, int), np.arange(T)))
    given = (heads[:, 0], heads[:, 1], heads[:, 2], CU, CU)
    return both(ops.packed_attention, *given, rule=rule, dropout=0.2, rng=rng)


def products() -> list[Any]:
    """With few rows and many columns too, where the columns are divided."""
    found = []
    for m, k, n in ((T, E, F), (9, 256, 2000), (T, 33, 7), (24, 600, 640)):
        a, packed = normal(m, k), FLOAT32.panels(normal(k, n))
        found.append(FLOAT32.multiply(a, packed, np.empty((m, n), np.float32), normal(n)))
        sums = np.empty(k, np.float32)
        out = np.zeros((k, n), np.float32)
        FLOAT32.multiply(a.T, FLOAT32.panels(normal(m, n)), out, add=True, sums=sums)
        found += [out, sums]
    return found


def trained() -> list[Any]:
    """Two steps of a model with every kind of layer, and its answers."""
    config = Seq2SeqConfig(
        V, V, d_model=E, num_attention_heads=H, encoder_layers=1, decoder_layers=1, ffn_dim=F,
        dropout=0.1, max_position_embeddings=31,
    )  # fmt: skip
    draw = np.random.default_rng(0)
    rows = [[draw.integers(3, V, n).tolist() for n in draw.integers(5, 25, 24)] for _ in range(2)]
    batch = Batch(Packed.of(rows[0]), Packed.of([[1, *row, 2] for row in rows[1]]))
    model = Seq2Seq(config)
    settings = TrainingConfig(steps=2)
    optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
    norms = [
        train_step(model, optimizer, batch, settings, step=step, lr=1e-3)[1] for step in (1, 2)
    ]
    answers = Engine(model).search(batch.source, SearchConfig(beam=3, max_length=7))
    return [*model.state_dict().values(), *norms, repr(answers)]


WORK: dict[str, Callable[[], list[Any]]] = {
    "products": products,
    "linear": lambda: both(ops.linear, normal(T, E), normal(F, E), normal(F)),
    "layer_norm": lambda: both(ops.layer_norm, normal(T, E), normal(E), normal(E)),
    "rms_norm": lambda: both(ops.rms_norm, normal(T, E), normal(E)),
    "norm_rotate": lambda: both(
        ops.norm_rotate, normal(4 * T, 3 * H, E // H), (H, H), normal(E // H), normal(E // H),
        np.arange(4 * T),
    ),
    "add_dropout_norm": lambda: both(
        ops.add_dropout_norm, normal(4 * T, E), normal(4 * T, E)[::1], normal(E), normal(E),
        dropout=0.3, rng=Rng(1),
    ),
    "bias_act_dropout": lambda: [
        x
        for name in ("relu", "gelu", "swiglu")
        for x in both(
            ops.bias_act_dropout, normal(4 * T, 2 * F), normal(2 * F), activation=name, dropout=0.3,
            rng=Rng(2),
        )
    ],
    "dropout": lambda: both(ops.dropout, normal(4 * T, E), 0.3, Rng(3)),
    "embedding": lambda: both(ops.embedding, np.arange(T) * 7 % V, normal(V, E)),
    "linear_cross_entropy": lambda: both(
        ops.linear_cross_entropy, normal(T, E), normal(V, E), normal(V), np.arange(T) % V,
        label_smoothing=0.1,
    ),
    "packed_attention": lambda: attention(normal(T, 3 * E), rules.Rule()),
    "packed_attention, causal": lambda: attention(normal(T, 3 * E), rules.causal),
    "packed_attention, T5": lambda: attention(
        normal(T, 3 * E), rules.soft_cap(3.0) & rules.relative(normal(17, H))
    ),
    "attention": lambda: both(ops.attention, *(normal(5, H, 60, 32) for _ in range(3))),
    "step and search": trained,
}  # fmt: skip


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give the kernels a pool of so many threads."""

    def use(count: int) -> None:
        monkeypatch.setenv("PELLUCID_THREADS", str(count))
        monkeypatch.setattr(threads, "_pool", None)
        monkeypatch.setattr(threads, "_count", None)
        division.cache_clear()

    return use


def digest(found: list[Any]) -> str:
    whole = hashlib.sha256()
    for x in found:
        whole.update(x.encode() if isinstance(x, str) else np.asarray(x).tobytes())
    return whole.hexdigest()


def test_every_fused_page_is_among_the_work() -> None:
    assert set(WORK) >= FUSED - {"adam", "global_norm"}  # those are in the step


@pytest.mark.parametrize("name", WORK)
def test_the_bits_are_the_same_on_any_number_of_threads(
    name: str, on: Callable[[int], None]
) -> None:
    on(1)
    expected = digest(WORK[name]())
    for count in MANY:
        on(count)
        assert digest(WORK[name]()) == expected, f"{count} threads"


def test_work_is_divided_for_as_many_threads_as_there_are(
    on: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread gets a task of each kernel, of a shape that has so many rows."""
    made: dict[str, int] = {}
    call = Kernel.__call__

    def counted(self: Kernel, *arguments: Any) -> Any:
        if isinstance(self, threads.ParallelKernel):
            name = f"{self.function.__module__.rsplit('.', 1)[-1]}.{self.function.__name__}"
            ends = (0, *arguments[2 : 2 + self.stages])
            made[name] = max(made.get(name, 0), *(end - begin for begin, end in pairwise(ends)))
        return call(self, *arguments)

    monkeypatch.setattr(Kernel, "__call__", counted)
    on(32)
    for work in WORK.values():
        work()
    few = {name: tasks for name, tasks in made.items() if tasks < 16}
    # what adds partial sums, or has fewer columns, pieces or numbers than that here
    assert few.keys() <= {
        "embedding._add", "bias_act_dropout.backward", "add_dropout_norm._backward",
        "global_norm._squares", "adam._step", "matmul._pack",
    }, few  # fmt: skip
    assert made["matmul._multiply"] >= 32
    assert made["flash._forward"] >= 16
