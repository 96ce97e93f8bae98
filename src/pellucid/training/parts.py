"""A step in a fixed number of parts, whose gradients are added in one fixed tree.

The tree halves the parts: 8 parts give ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Floating-point
addition depends on its order, and the order here depends on nothing but the number of parts. A
worker has consecutive parts and adds the subtrees that lie within them. So the sum has the same
bits however many workers there are.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np

from pellucid.core.errors import UsageError, UserError
from pellucid.models.output import LossSum
from pellucid.nn.module import Parameter
from pellucid.training.workers import Array, Workers

Node = tuple[int, int]
"""A subtree: the parts from the first number up to, but not including, the second."""
T = TypeVar("T", float, np.ndarray)


def own_parts(parts: int, workers: int, rank: int) -> range:
    """Return the parts of one worker; they are consecutive, and each part is one worker's.

    >>> [list(own_parts(8, 3, rank)) for rank in range(3)]
    [[0, 1], [2, 3, 4], [5, 6, 7]]
    """
    return range(parts * rank // workers, parts * (rank + 1) // workers)


def children(node: Node) -> tuple[Node, Node]:
    """Return the two subtrees of a node of several parts.

    >>> children((0, 8)), children((4, 7))
    (((0, 4), (4, 8)), ((4, 6), (6, 7)))
    """
    first, last = node
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)


@lru_cache(maxsize=64)
def roots(node: Node, first: int, last: int) -> tuple[Node, ...]:
    """Return the largest subtrees below `node` that hold no part outside first … last − 1.

    >>> roots((0, 8), 0, 4), roots((0, 8), 2, 5)
    (((0, 4),), ((2, 4), (4, 5)))
    """
    if first <= node[0] and node[1] <= last:
        return (node,)
    if node[1] <= first or last <= node[0]:
        return ()
    left, right = children(node)
    return roots(left, first, last) + roots(right, first, last)


def tree_sum(sums: Mapping[Node, T], node: Node) -> T:
    """Return the sum below `node`, given the sums of subtrees that cover it.

    >>> tree_sum({(0, 1): 1.0, (1, 2): 2.0, (2, 4): 4.0}, (0, 4))
    7.0
    """
    if node in sums:
        return sums[node]
    left, right = children(node)
    total: T = tree_sum(sums, left) + tree_sum(sums, right)
    return total


class PartSum:
    """The sum of the gradients of all parts of a step, on one worker or on several.

    All gradients lie in one vector of P numbers. With n workers:

        1.  each worker adds the gradients of its parts, as far as the tree allows
        2.  all-to-all: each receives its slice of every worker's sums,      P (n − 1)/n numbers
        3.  it adds them in the same tree: its slice of the whole sum
        4.  all-gather: each receives the other slices of the whole sum,     P (n − 1)/n numbers

    That is what a ring all-reduce sends, whose order of addition would depend on n. Every worker
    then steps all parameters, so it has the optimizer's whole state.

    Raises `UsageError` when there are fewer parts than workers, and `UserError` unless all
    parameters are NumPy arrays of one dtype.

    >>> weight = Parameter((2,), lambda g, shape: np.zeros(shape))
    >>> def run_part(part):
    ...     weight.accumulate(np.array([1.0, -1.0], np.float32))
    ...     return LossSum(0.5, 1)
    >>> [loss.nats for loss in PartSum([("weight", weight)], parts=2).run(run_part)]
    [0.5, 0.5]
    >>> weight.grad
    array([ 2., -2.], dtype=float32)
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        parts: int,
        workers: Workers | None = None,
    ) -> None:
        self.parts, self.workers = parts, workers or Workers()
        size = self.workers.size
        if parts < size:
            raise UsageError(
                f"training.parts = {parts} is too few for {size} workers: each needs at least one "
                "part of a step"
            )
        each = list(dict(parameters).values())
        dtypes = {getattr(p.data, "dtype", None) for p in each}
        if len(dtypes) > 1 or not all(isinstance(p.data, Array) for p in each):
            raise UserError(
                "training in parts takes parameters that are NumPy arrays of one dtype; got "
                f"{', '.join(sorted(map(str, dtypes)))}"
            )
        own = [own_parts(parts, size, rank) for rank in range(size)]
        self._roots = [roots((0, parts), some.start, some.stop) for some in own]
        self._own = self._roots[self.workers.rank]
        ends = list(accumulate((p.data.size for p in each), initial=0))
        self._places = [(p, slice(*place)) for p, place in zip(each, pairwise(ends), strict=True)]
        self._width = -(-ends[-1] // size)  # of a worker's slice; the last one may end in zeros
        dtype = dtypes.pop() if dtypes else np.float32
        self._sums = np.zeros((len(self._own), size * self._width), dtype)
        self._halves: list[Array] = []  # for right halves of subtrees, one for each level

    def run(self, run_part: Callable[[int], LossSum]) -> list[LossSum]:
        """Run this worker's parts; give every parameter the sum of all, and return all losses.

        run_part: runs forward and backward of the part of this number, and returns its loss. No
        parameter may have a gradient before. One that gets none in any part has none afterwards.
        """
        losses, touched = np.zeros((self.parts, 2)), np.zeros(len(self._places))

        def run_leaf(part: int, out: Array) -> None:
            loss = run_part(part)
            losses[part] = loss.nats, loss.tokens
            for i, (parameter, place) in enumerate(self._places):
                gradient, parameter.grad = parameter.grad, None
                # Without a gradient zeros are added, for the bits that another worker's would give.
                out[place] = 0 if gradient is None else gradient.ravel()
                touched[i] += gradient is not None

        for node, row in zip(self._own, self._sums, strict=True):
            self._sum_into(row, node, run_leaf, 0)
        # Each part has numbers other than 0 on one worker only, so the sum of losses is exact.
        found = self.workers.all_gather(np.concatenate([losses.ravel(), touched])).sum(axis=0)
        total = self._all_reduced()
        for (parameter, place), times in zip(self._places, found[2 * self.parts :], strict=True):
            parameter.grad = total[place].reshape(parameter.shape) if times else None
        pairs = found[: 2 * self.parts].reshape(-1, 2).tolist()
        return [LossSum(nats, int(tokens)) for nats, tokens in pairs]

    def _sum_into(
        self, out: Array, node: Node, run_leaf: Callable[[int, Array], None], depth: int
    ) -> None:
        """Write the sum of the gradients below a node into `out`."""
        part, end = node
        if end - part == 1:
            run_leaf(part, out)
            return
        if depth == len(self._halves):
            self._halves.append(np.zeros_like(out))
        half = self._halves[depth]
        left, right = children(node)
        self._sum_into(out, left, run_leaf, depth + 1)
        self._sum_into(half, right, run_leaf, depth + 1)
        out += half

    def _all_reduced(self) -> Array:
        """Return the sum of the sums of all workers' subtrees, with the same bits on each."""
        size, width = self.workers.size, self._width
        if size == 1:
            alone: Array = self._sums[0]
            return alone
        slices = np.ascontiguousarray(self._sums.reshape(-1, size, width).swapaxes(0, 1))
        lengths = [width * len(nodes) for nodes in self._roots]
        received = self.workers.all_to_all(slices.ravel(), lengths).reshape(-1, width)
        nodes = [node for nodes in self._roots for node in nodes]
        own: Array = tree_sum(dict(zip(nodes, received, strict=True)), (0, self.parts))
        return self.workers.all_gather(own).ravel()
