"""Compare every fused kernel with its op on this machine, since training runs the kernels.

The table has each row of `op_cases` whose op has a kernel, in float32; further rows with so much
data that several threads share it; and the steps of optimizers.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.check.cases import OpCase, ruled
from pellucid.check.op_cases import case, normal, op_cases
from pellucid.check.result import Result
from pellucid.core import dispatch
from pellucid.core.rng import Rng
from pellucid.core.vjp import Declined
from pellucid.kernels.compare import excess, fused, in_float64, page, results, rounded
from pellucid.nn.module import Parameter
from pellucid.ops import rules
from pellucid.ops.rule import EVERYTHING
from pellucid.ops.rules.function import Applied
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.optim import OPTIMIZERS
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer, global_norm

ROWS, E, F, V = 331, 53, 67, 71
BFLOAT16 = "linear (bfloat16)"
_SIZES = {"layers.0.many.weight": ROWS, "layers.0.few.weight": 7}
"""The first is more than one task has. By these names muon steps them too."""


class _Compared(NamedTuple):
    arrays: int
    error: float
    digest: str


_Results = tuple[list[Any], list[Any], list[Any]]
"""Results of the kernel, of the reference in float32, and of the reference in float64."""


@dataclass(frozen=True)
class StepCase:
    """A check of three steps of an optimizer, with gradients divided by their global norm."""

    note: str
    config: OptimizerConfig

    @property
    def op(self) -> str:
        """The names of the kernels."""
        return f"{OPTIMIZERS[self.config.name].step.__name__}, global_norm"

    @property
    def name(self) -> str:
        """The names of the kernels, with the note that distinguishes the row in parentheses."""
        return f"{self.op} ({self.note})"

    def stepped(self, dtype: Any) -> list[Any]:
        """Take the steps in a dtype; return the norms, then parameters and moments."""
        draw = np.random.default_rng(3)

        def normal(draw: np.random.Generator, shape: tuple[int, ...]) -> Any:
            return draw.standard_normal(shape, np.float32).astype(dtype)

        parameters = {name: Parameter((n, n), normal, dtype) for name, n in _SIZES.items()}
        for parameter in parameters.values():
            parameter.data = normal(draw, parameter.shape)
        optimizer, norms = ModelOptimizer(parameters, self.config), []
        for _ in range(3):
            for parameter in parameters.values():
                parameter.grad = normal(draw, parameter.shape)
            norms.append(optimizer.norm())
            optimizer.step(lr=0.01, scale=1 / norms[-1])
        state = optimizer.state_dict().items()
        moments = [x for name, x in state if not name.startswith("step.")]
        return [np.array(norms, dtype), *(x.data for x in parameters.values()), *moments]


def kernel_cases() -> list[OpCase | StepCase]:
    """Return the table: ops that have a kernel, ops on many rows, and optimizers."""
    ops_rows = (row for row in op_cases() if dispatch.has_kernel(row.op))
    steps = {
        "decay": OptimizerConfig("adam", weight_decay=0.1),
        "decoupled": OptimizerConfig("adamw", (0.9, 0.98), eps=1e-3),
        "matrices": OptimizerConfig("muon"),
    }
    return [*ops_rows, *_many_rows(), *(StepCase(*each) for each in steps.items())]


def is_of_one_rule(row: OpCase | StepCase) -> bool:
    """Return whether a row's rule needs kernels compiled for that rule, which takes long.

    No model of a recipe has such a rule.
    """
    if isinstance(row, StepCase):
        return False
    score = ruled(row.arrays | row.fixed).get("rule", EVERYTHING).score
    late = any(isinstance(part, SoftCap) for part in score[1:])
    return late or any(isinstance(part, Applied) for part in score)


def _many_rows() -> list[OpCase]:
    """Return calls of ops on so many rows that several tasks share them."""
    x, index = normal(ROWS, E), np.arange(ROWS) * 3
    cu = np.concatenate([[0], np.cumsum([5, 1, 0, 13, 50, 131, 131])])
    heads, rng = [normal(ROWS, 3, 17) + i for i in range(3)], Rng(3).at(index.astype(np.uint32))
    packed: dict[str, Any] = dict(zip("qkv", heads, strict=True)) | {"cu_q": cu, "cu_k": cu}
    unlike = np.random.default_rng(5).random((7, 1, 131, 131)) < 0.2
    drawn: dict[str, Any] = {"dropout": 0.3, "rng": rng}
    looks = {
        "causal, dropout": {"rule": rules.causal, **drawn},
        "window": {"rule": rules.window(9) & rules.causal},
        "lengths": {"rule": rules.lengths(np.array([4, 1, 1, 13, 37, 97, 131]))},
        "bounded": {"rule": rules.bounded(np.arange(131) // 2, np.arange(131) + 1)},
        "prefix, ALiBi": {"rule": rules.prefix(np.arange(7)) & rules.alibi},
        "mask, soft cap": {"rule": rules.mask(unlike) & rules.soft_cap(2.0)},
    }
    return [
        case("linear", "many rows", x=x, weight=normal(F, E), bias=normal(F)),
        case("linear_cross_entropy", "many rows", x=x, weight=normal(V, E), bias=normal(V),
              target=index % V, label_smoothing=0.1),
        case("layer_norm", "many rows", x=x, weight=normal(E), bias=normal(E)),
        case("rms_norm", "many rows", x=x, weight=normal(E)),
        case("add_dropout_norm", "many rows", x=x, residual=x[::-1].copy(), weight=normal(E),
              bias=normal(E), **drawn),
        case("bias_act_dropout", "many rows", x=x, bias=normal(E), activation="gelu", **drawn),
        case("embedding", "many rows", index=index % V, weight=normal(V, E)),
        case("dropout", "many rows", x=x, p=0.3, rng=rng),
        *(case("packed_attention", f"many rows, {name}", **packed, **look)
          for name, look in looks.items()),
    ]  # fmt: skip


def check_kernels(table: Sequence[OpCase | StepCase]) -> Iterator[Result]:
    """Compare kernels with their ops, and their bits with those on one and on three threads.

    A row that the kernel declines is left out. If the kernel declines every row of its op, the op
    has one result, with the reason. If the bits differ, the error is ∞.
    """
    found = [(row, _compared(row)) for row in table]
    taken = {row.op for row, result in found if not isinstance(result, Declined)}
    on_threads = [_digests_on(count, [row.name for row in table]) for count in (1, 3) if taken]
    for row, result in found:
        if not isinstance(result, Declined):
            same = all(each.get(row.name, result.digest) == result.digest for each in on_threads)
            error = result.error if same else np.inf
            yield Result("kernel", row.name, result.arrays, error, 1.0)
        elif row.op not in taken:
            taken.add(row.op)
            yield _declined(row.op, result)


def _declined(name: str, why: Declined) -> Result:
    """Return the result of a row that was not compared, with the reason."""
    return Result("kernel", name, 0, 0.0, 1.0, why.reason)


def check_bfloat16(block: AbstractContextManager[None]) -> Result:
    """Compare bfloat16 products with the op, on inputs that bfloat16 represents exactly.

    `block` is the context in which `linear` multiplies in bfloat16. If the kernel declines, the
    result has the reason.
    """
    row = next(row for row in _many_rows() if row.op == "linear")
    with block:
        found = _compared(row, rounded)
    if isinstance(found, Declined):
        return _declined(BFLOAT16, found)
    return Result("kernel", BFLOAT16, found.arrays, found.error, 1.0)


def _compared(row: OpCase | StepCase, prepare: Any = lambda x: x) -> _Compared | Declined:
    """Compare one row with its op; `prepare` is applied to the arrays first."""
    found = _steps(row) if isinstance(row, StepCase) else _op(row, prepare)
    if isinstance(found, Declined):
        return found
    error = max(excess(*each) for each in zip(*found, strict=True))
    present = [np.ascontiguousarray(x) for x in found[0] if x is not None]
    digest = hashlib.blake2b(b"".join(x.tobytes() for x in present), digest_size=16)
    return _Compared(len(present), error, digest.hexdigest())


def _steps(row: StepCase) -> _Results | Declined:
    """Take an optimizer's steps by kernel and by reference."""
    run = fused(global_norm, [np.ones(1, np.float32)])
    if isinstance(run, Declined):
        return run
    ours = row.stepped(np.float32)
    with dispatch.reference():
        return ours, row.stepped(np.float32), row.stepped(np.float64)


def _op(row: OpCase, prepare: Any) -> _Results | Declined:
    """Run an op, forward and backward, by kernel and by reference."""
    f = getattr(ops, row.op)
    given = {name: _single(x, prepare) for name, x in (row.arrays | row.fixed).items()}
    exact, plain = (
        page(f, **ruled(arguments))
        for arguments in ({name: in_float64(x) for name, x in given.items()}, given)
    )
    run = fused(f, **ruled(given))
    if isinstance(run, Declined):
        return run
    shape = np.shape(exact()[0])
    dy = prepare(np.asarray(np.random.default_rng(11).standard_normal(shape), np.float32))
    return results(run, dy), results(plain, dy), results(exact, in_float64(dy))


def _single(x: Any, prepare: Any) -> Any:
    """Convert a float64 array to float32 and prepare it.

    Returns anything else unchanged.
    """
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        return prepare(x.astype(np.float32))
    return x


def digests(names: Sequence[str]) -> dict[str, str]:
    """Return a digest of the results of each named row's kernel, bit for bit.

    Rows that their kernel declines are left out.
    """
    found = ((row.name, _compared(row)) for row in kernel_cases() if row.name in names)
    return {name: each.digest for name, each in found if not isinstance(each, Declined)}


def _digests_on(count: int, names: Sequence[str]) -> Mapping[str, str]:
    """Return `digests` from a new process with this many threads.

    A process cannot change the size of its thread pool.
    """
    code = "import json, sys; from pellucid.kernels.check import digests"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(json.dumps(digests(json.load(sys.stdin))))"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PELLUCID_THREADS": str(count)},
        input=json.dumps(names),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Mapping[str, str] = json.loads(done.stdout)
    return found
