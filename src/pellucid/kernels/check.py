"""Every fused kernel against its op, on this machine: what training runs, not its page alone.

A row of `op_cases` whose op has a kernel is a row here, in float32; so are some with more rows,
which several threads share.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
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
from pellucid.ops import rules

ROWS, E, F, V = 331, 53, 67, 71
BFLOAT16 = "linear (bfloat16)"


class _Compared(NamedTuple):
    arrays: int
    error: float
    digest: str


def kernel_cases() -> list[OpCase]:
    """Return the rows of ops that have a kernel, then those of many rows."""
    return [*(row for row in op_cases() if dispatch.has_kernel(row.op)), *_many_rows()]


def _many_rows() -> list[OpCase]:
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


def check_kernels(table: Sequence[OpCase]) -> Iterator[Result]:
    """Compare kernels with their ops, and their bits on one thread and on three with these.

    A row that a kernel declines is left out, unless the kernel declines every row of its op.
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
    return Result("kernel", name, 0, 0.0, 1.0, why.reason)


def check_bfloat16(block: AbstractContextManager[None]) -> Result:
    """Compare products of bfloat16 with the op, on numbers that bfloat16 has."""
    row = next(row for row in _many_rows() if row.op == "linear")
    with block:
        found = _compared(row, rounded)
    if isinstance(found, Declined):
        return _declined(BFLOAT16, found)
    return Result("kernel", BFLOAT16, found.arrays, found.error, 1.0)


def _compared(row: OpCase, prepare: Any = lambda x: x) -> _Compared | Declined:
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
    ours = results(run, dy)
    every = zip(ours, results(plain, dy), results(exact, in_float64(dy)), strict=True)
    error = max(excess(*each) for each in every)
    present = [np.ascontiguousarray(x) for x in ours if x is not None]
    digest = hashlib.blake2b(b"".join(x.tobytes() for x in present), digest_size=16)
    return _Compared(len(present), error, digest.hexdigest())


def _single(x: Any, prepare: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        return prepare(x.astype(np.float32))
    return x


def digests(names: Sequence[str]) -> dict[str, str]:
    """Return a digest of all bits that each row's kernel gave, by the name of the row."""
    found = ((row.name, _compared(row)) for row in kernel_cases() if row.name in names)
    return {name: each.digest for name, each in found if not isinstance(each, Declined)}


def _digests_on(count: int, names: Sequence[str]) -> Mapping[str, str]:
    """Return `digests` of a process with this many threads: a pool is made once in a process."""
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
