"""An optimizer whose gradients and states are divided among workers, in slices.

All parameters are in one vector θ of P numbers, and so are their gradients. A step with n workers:

    1.  each worker adds the gradients of its parts, as far as the tree of `training.parts` allows
    2.  all-to-all: each worker receives its slice of every worker's sums,  P (n − 1)/n numbers
    3.  it adds them in the same tree, so that its slice of the gradient has bits that do not
        depend on n; the squares of it, in blocks of one size, give the global norm of all slices
    4.  it steps its slice of θ, and keeps the optimizer's states of that slice only
    5.  all-gather: each worker receives the other slices of θ,  P (n − 1)/n numbers

That is what a ring all-reduce sends. Steps 2 and 5 go in buckets; in backward of a worker's last
part, a bucket is sent as soon as its gradients are final. Source: Rajbhandari et al. 2020 (ZeRO),
stage 1; Li et al. 2020 (PyTorch DDP) for the buckets.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pellucid.core.errors import UsageError, UserError
from pellucid.core.vjp import check_gradient
from pellucid.models.output import LossSum
from pellucid.nn.init import zeros
from pellucid.nn.module import Parameter
from pellucid.training.config import OptimizerConfig
from pellucid.training.optimizers import OPTIMIZERS
from pellucid.training.optimizers.model import ModelOptimizer, check_state
from pellucid.training.parts import Node, completed_by, own_parts, roots, tree_sum
from pellucid.training.workers import Wait, Workers

Array = np.ndarray
ALIGNMENT = 16  # numbers: where parameters begin in the vector, so that rows are whole cache lines
BLOCK = 1024  # numbers whose squares are summed together, and what slices are made of
BUCKET = 1 << 20  # numbers exchanged at once
SWEEP = 64  # blocks squared at once: their float64 copies stay in the cache


class ShardedOptimizer:
    """A `ModelOptimizer` for a step in parts, on one of several workers or on one alone.

    The parameters are moved into one vector and stay there: they are views of it. Every worker
    gets the first one's values.

    Raises `UsageError` when there are fewer parts than workers or the optimizer needs whole
    parameters, and `UserError` unless all parameters are NumPy arrays of one dtype.

    >>> weight = Parameter((2,), lambda g, shape: np.zeros(shape))
    >>> optimizer = ShardedOptimizer([("weight", weight)], parts=2)
    >>> for part in optimizer.parts:
    ...     optimizer.begin(part)
    ...     weight.accumulate(np.array([1.0, -1.0], np.float32))
    ...     optimizer.end(part, LossSum(0.5, 1))
    >>> [loss.nats for loss in optimizer.exchange()], round(optimizer.norm(), 3)
    ([0.5, 0.5], 2.828)
    >>> optimizer.step(lr=0.5)
    >>> weight.data.round(3)
    array([-0.5,  0.5], dtype=float32)
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter] | Iterable[tuple[str, Parameter]],
        config: OptimizerConfig | None = None,
        *,
        parts: int,
        workers: Workers | None = None,
    ) -> None:
        self.workers = workers = workers or Workers()
        config = config or OptimizerConfig()
        OPTIMIZERS[config.name].check_slices()
        if parts < workers.size:
            raise UsageError(
                f"training.parts = {parts} is too few for {workers.size} workers: each needs at "
                "least one part of a step"
            )
        self.tree: Node = (0, parts)
        self.parts = own_parts(parts, workers.size, workers.rank)
        self.early = True
        """Whether buckets are sent during backward, or all after it."""
        self._parameters = _distinct(parameters)
        dtypes = {getattr(p.data, "dtype", None) for p in self._parameters.values()}
        if len(dtypes) > 1 or not all(isinstance(p.data, Array) for p in self._parameters.values()):
            raise UserError(
                "training in parts takes parameters that are NumPy arrays of one dtype; got "
                f"{', '.join(sorted(map(str, dtypes)))}"
            )
        # Backward comes to the last layers first, so these are first in the vector.
        self._places: dict[str, slice] = {}
        end = 0
        for name, parameter in reversed(self._parameters.items()):
            self._places[name] = slice(end, end + parameter.data.size)
            end = -(-(end + parameter.data.size) // ALIGNMENT) * ALIGNMENT
        unit = BLOCK * workers.size
        self._length = -(-max(end, 1) // unit) * unit
        width = max(unit, BUCKET // unit * unit)
        self._buckets = [
            slice(start, min(start + width, self._length))
            for start in range(0, self._length, width)
        ]
        self._theta = np.zeros(self._length, dtypes.pop() if dtypes else np.float32)
        for name, parameter in self._parameters.items():
            view = self._theta[self._places[name]].reshape(parameter.shape)
            view[...] = parameter.data
            parameter.data = view
        workers.broadcast(self._theta)
        self._summed = np.zeros(self._length // workers.size, self._theta.dtype)
        self._make_pieces(config)

        # The numbers of the parts so far: a stack of sums of subtrees, and vectors to use again.
        self._sums: list[Array] = []
        self._free: list[Array] = []
        self._nodes = [self._roots(rank) for rank in range(workers.size)]
        self._places_of_sums: dict[tuple[int, int], Array] = {}
        self._received: list[tuple[list[Array], list[Wait]]] = []
        self._heard: Counter[int] = Counter()
        self._expected: Counter[int] = Counter()
        self._names = {id(p): name for name, p in self._parameters.items()}
        self._added: set[str] = set()
        self._touched: dict[str, None] = {}
        self._missing: list[int] = []
        self._pieces_in_part, self._part = 1, -1
        self._losses: dict[int, LossSum] = {}
        self._norm = math.nan
        self._steps: Counter[str] = Counter()
        for parameter in self._parameters.values():
            parameter.reached = self._hear

    def _roots(self, rank: int) -> tuple[Node, ...]:
        own = own_parts(self.tree[1], self.workers.size, rank)
        return roots(self.tree, own.start, own.stop)

    def _make_pieces(self, config: OptimizerConfig) -> None:
        """Make a parameter of each run of numbers that is one parameter's and in our slices."""
        self._pieces: dict[str, list[tuple[Parameter, slice]]] = {n: [] for n in self._parameters}
        named: dict[str, Parameter] = {}
        for own, at in self._slices(self.workers.rank):
            for name, place in self._places.items():
                first, last = max(own.start, place.start), min(own.stop, place.stop)
                if first < last:
                    piece = Parameter((last - first,), zeros, self._theta.dtype)
                    piece.data = self._theta[first:last]
                    self._pieces[name].append(
                        (piece, slice(at + first - own.start, at + last - own.start))
                    )
                    named[f"{name}[{first - place.start}:{last - place.start}]"] = piece
        self._optimizer = ModelOptimizer(named, config)
        self.config = self._optimizer.config
        self._named = {id(piece): name for name, piece in named.items()}

    def _slices(self, rank: int) -> Iterable[tuple[slice, int]]:
        """Yield a worker's slice of each bucket, and where it is among that worker's numbers."""
        at = 0
        for bucket in self._buckets:
            width = (bucket.stop - bucket.start) // self.workers.size
            start = bucket.start + rank * width
            yield slice(start, start + width), at
            at += width

    # 1. The parts of this worker

    def begin(self, part: int, pieces: int = 1) -> None:
        """Begin one of `parts`, whose gradients will come in so many backward passes."""
        self._part, self._pieces_in_part = part, pieces
        self._merges = completed_by(self.tree, part, self.parts.start)
        if self._merges == 0:
            self._sums.append(
                self._free.pop()
                if self._free
                else np.zeros(self._length, self._theta.dtype)  # between parameters it stays zero
            )
        self._heard.clear()
        self._added.clear()
        if part == self.parts[-1]:
            self._await_buckets()

    def _await_buckets(self) -> None:
        """Count the parameters of each bucket: it is sent when all have come."""
        self._missing = [0] * len(self._buckets)
        for name in self._parameters:
            for i in self._buckets_of(name):
                self._missing[i] += 1

    def _buckets_of(self, name: str) -> range:
        place, width = self._places[name], self._buckets[0].stop
        return range(place.start // width, (place.stop - 1) // width + 1)

    def _hear(self, parameter: Parameter) -> None:
        """Note that a gradient has come; when it was the last of the part, add it and send it."""
        key = id(parameter)
        self._heard[key] += 1
        if not (self.early and self._missing and self.workers.size > 1):
            return
        name = self._names[key]
        if name in self._added:
            raise RuntimeError(
                f"{name} got more gradients in one part of a step than in those before, after they "
                "were sent; this is a bug: set `early` of the optimizer to False, and report it"
            )
        if self._heard[key] == self._expected[key] * self._pieces_in_part:
            self._add(name)

    def end(self, part: int, loss: LossSum) -> None:
        """End a part: its gradients are complete, and `loss` is its sum."""
        self._losses[part] = loss
        for name in self._parameters:
            if name not in self._added:
                self._add(name)
        for key, times in self._heard.items():
            # Not fewer than in any part: a gradient must not be sent before it is complete.
            self._expected[key] = max(self._expected[key], -(-times // self._pieces_in_part))
        for _ in range(self._merges - 1):
            self._free.append(self._sums.pop())
        if self._missing:
            self._send(len(self._buckets))
            self._missing = []

    def _add(self, name: str) -> None:
        """Add a parameter's gradient to the sums of all subtrees that this part completes."""
        parameter, place = self._parameters[name], self._places[name]
        gradient, parameter.grad = parameter.grad, None
        self._added.add(name)
        lowest = self._sums[-1][place].reshape(parameter.shape)
        if gradient is not None:
            check_gradient(gradient, parameter.shape, name)
            self._touched[name] = None
        # Without a gradient zeros are added, for the bits that another worker's zeros would give.
        value = 0 if gradient is None else gradient
        if self._merges == 0:
            lowest[...] = value
        else:
            lowest += value
        for i in range(1, self._merges):
            self._sums[-i - 1][place] += self._sums[-i][place]
        if self._missing:
            for i in self._buckets_of(name):
                self._missing[i] -= 1
            ready = len(self._received)
            while ready < len(self._buckets) and not self._missing[ready]:
                ready += 1
            if self.early:
                self._send(ready)

    # 2. and 3. The exchange

    def _send(self, buckets: int) -> None:
        """Begin the all-to-all of every bucket before this one that was not sent yet."""
        size, rank = self.workers.size, self.workers.rank
        for bucket in self._buckets[len(self._received) : buckets]:
            width = (bucket.stop - bucket.start) // size
            arrays, waits = [], []
            for i in range(max(map(len, self._nodes)) if size > 1 else 0):
                own = self._sums[i][bucket] if i < len(self._nodes[rank]) else self._theta[:0]
                got = [width if i < len(nodes) else 0 for nodes in self._nodes]
                array = self._place(bucket, i, sum(got))
                sent = [len(own) // size] * size
                waits.append(self.workers.deal(own, sent, array, got))
                arrays.append(array)
            self._received.append((arrays, waits))

    def _place(self, bucket: slice, i: int, size: int) -> Array:
        """Return memory for the i-th sums of a bucket, the same in every step."""
        key = (bucket.start, i)
        if key not in self._places_of_sums:
            self._places_of_sums[key] = np.empty(size, self._theta.dtype)
        return self._places_of_sums[key]

    def exchange(self, note: Sequence[float] = ()) -> list[LossSum]:
        """End a step's gradients: return the losses of all parts, those of other workers included.

        note: numbers to tell the others, as many on each worker; `notes` then has the rows of all.
        """
        began = time.perf_counter()
        for (own, at), bucket, received in zip(
            self._slices(self.workers.rank), self._buckets, self._received, strict=True
        ):
            self._sum(bucket, received, self._summed[at : at + own.stop - own.start])
        self._received = []
        self._free += self._sums
        self._sums = []
        most = -(-self.tree[1] // self.workers.size)
        losses = [self._losses[part] for part in self.parts]
        losses += [LossSum(0.0, 0)] * (most - len(losses))
        said = [
            np.asarray(note, np.float64),
            np.array([[loss.nats, loss.tokens] for loss in losses], np.float64).ravel(),
            np.array([name in self._touched for name in self._parameters], np.float64),
            block_squares(self._summed),
        ]
        ends = np.cumsum([len(part) for part in said])
        heard = np.split(self.workers.rows(np.concatenate(said)), ends[:-1], axis=1)
        self.workers.waited += time.perf_counter() - began if self.workers.size > 1 else 0.0
        self.notes, sums, touched, squares = heard
        self._touched = self._named_by(touched)
        self._norm = math.sqrt(math.fsum(squares.ravel().tolist()))
        return [
            LossSum(float(nats), int(tokens))
            for rank, row in enumerate(sums)
            for (nats, tokens), _ in zip(
                row.reshape(-1, 2), own_parts(self.tree[1], self.workers.size, rank), strict=False
            )
        ]

    def _sum(self, bucket: slice, received: tuple[list[Array], list[Wait]], out: Array) -> None:
        if self.workers.size == 1:
            out[...] = self._sums[0][bucket]
            return
        arrays, waits = received
        sums: dict[Node, Array] = {}
        for i, (array, wait) in enumerate(zip(arrays, waits, strict=True)):
            wait()
            nodes = [nodes[i] for nodes in self._nodes if i < len(nodes)]
            sums |= dict(zip(nodes, np.split(array, len(nodes)), strict=True))
        out[...] = tree_sum(sums, self.tree)

    def norm(self) -> float:
        """Return the global norm of the gradients, of all workers' slices."""
        return self._norm

    def not_finite(self) -> list[str]:
        """Return the names of the parameters whose gradient has a NaN or an infinity."""
        own = [
            any(not np.isfinite(self._summed[at]).all() for _, at in self._pieces[name])
            for name in self._parameters
        ]
        return list(self._named_by(self.workers.rows(np.array(own, np.float64))))

    def _named_by(self, rows: Array) -> dict[str, None]:
        """Return the parameters, in order, whose number is not 0 in any row."""
        numbers: list[float] = rows.max(axis=0).tolist()
        return {name: None for name, x in zip(self._parameters, numbers, strict=True) if x}

    # 4. and 5. The step

    def step(self, lr: float, scale: float = 1.0) -> None:
        """Step every parameter that got a gradient along scale · gradient, as `ModelOptimizer`."""
        for name, pieces in self._pieces.items():
            data = self._parameters[name].data
            if data.base is not self._theta:
                raise RuntimeError(f"{name} was replaced by another array since training began")
            for piece, at in pieces:
                piece.grad = self._summed[at] if name in self._touched else None
        self._optimizer.step(lr, scale)
        self._steps.update(iter(self._touched))
        self._touched = {}
        began = time.perf_counter()
        waits = [
            self.workers.collect(self._theta[bucket], self._theta[own])
            for bucket, (own, _) in zip(self._buckets, self._slices(self.workers.rank), strict=True)
        ]
        for wait in waits:
            wait()
        self.workers.waited += time.perf_counter() - began if self.workers.size > 1 else 0.0

    def zero_grad(self) -> None:
        """Forget the gradients of parameters, and all parts of a step that was not ended."""
        for parameter in self._parameters.values():
            parameter.grad = None
        self._free += self._sums
        self._sums, self._received, self._missing = [], [], []
        self._touched = {}

    # The state, which says nothing of workers

    def state_dict(self) -> dict[str, Array]:
        """Return the state as `ModelOptimizer` does, on the first worker; the others get nothing.

        Every worker has to call it.
        """
        state: dict[str, Array] = {}
        own = self._optimizer.state_dict()
        for kept in self._optimizer.optimizer.states:
            whole = self._gathered(kept, own)
            if self.workers.rank == 0:
                for name, parameter in self._parameters.items():
                    state[f"{kept}.{name}"] = whole[self._places[name]].reshape(parameter.shape)
        if self.workers.rank == 0:
            for name in self._parameters:
                state[f"step.{name}"] = np.array(self._steps[name], np.int64)
        return state

    def _gathered(self, kept: str, own: Mapping[str, Array]) -> Array:
        """Return one of the optimizer's states for the whole vector."""
        mine = np.zeros_like(self._summed)
        for pieces in self._pieces.values():
            for piece, at in pieces:
                mine[at] = own[f"{kept}.{self._named[id(piece)]}"]
        rows = np.empty((self.workers.size, len(mine)), mine.dtype)
        self.workers.collect(rows.reshape(-1), mine)()
        whole = np.empty_like(self._theta)
        for rank, row in enumerate(rows):
            for place, start in self._slices(rank):
                whole[place] = row[start : start + place.stop - place.start]
        return whole

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take over the first worker's state; every worker has to call it.

        Raises `UserError` on the first worker, naming every array that does not fit.
        """
        states = self._optimizer.optimizer.states
        if self.workers.rank == 0:
            expected = {
                f"{kept}.{name}": parameter.data
                for name, parameter in self._parameters.items()
                for kept in states
            }
            steps = {f"step.{name}": np.array(0, np.int64) for name in self._parameters}
            check_state(expected | steps, state, self.config.name)
        given = {name: int(state[f"step.{name}"]) for name in self._parameters if state}
        self._steps = Counter(self.workers.share(given))
        own: dict[str, Array] = {}
        for kept in states:
            whole = np.zeros_like(self._theta)
            if self.workers.rank == 0:
                for name, place in self._places.items():
                    whole[place] = state[f"{kept}.{name}"].ravel()
            self.workers.broadcast(whole)
            slices = [whole[place] for place, _ in self._slices(self.workers.rank)]
            mine = np.concatenate(slices)
            for name, pieces in self._pieces.items():
                for piece, at in pieces:
                    own[f"{kept}.{self._named[id(piece)]}"] = mine[at]
                    own[f"step.{self._named[id(piece)]}"] = np.array(self._steps[name], np.int64)
        self._optimizer.load_state_dict(own)


def block_squares(x: Array) -> Array:
    """Return the sum of squares, in float64, of every block of x, whose length is whole blocks.

    A block's sum depends on nothing outside it.

    >>> block_squares(np.ones(2 * BLOCK, np.float32))
    array([1024., 1024.])
    """
    blocks = x.reshape(-1, BLOCK)
    return np.concatenate(
        [
            np.square(blocks[i : i + SWEEP], dtype=np.float64).sum(axis=1)
            for i in range(0, len(blocks), SWEEP)
        ]
    )


def _distinct(
    parameters: Mapping[str, Parameter] | Iterable[tuple[str, Parameter]],
) -> dict[str, Parameter]:
    """Return every parameter once, under its first name."""
    first: dict[int, str] = {}
    named = dict(parameters)
    return {n: p for n, p in named.items() if first.setdefault(id(p), n) == n}
