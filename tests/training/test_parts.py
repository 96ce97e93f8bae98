from __future__ import annotations

import numpy as np
import pytest

from pellucid.training.parts import children, completed_by, own_parts, roots, tree_sum


def sum_in_order(values: dict[tuple[int, int], np.ndarray], node: tuple[int, int]) -> np.ndarray:
    """The sum of the docstring's picture, written down a second time."""
    if node[1] - node[0] == 1:
        return values[node]
    left, right = children(node)
    return sum_in_order(values, left) + sum_in_order(values, right)


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8, 11])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 11])
def test_the_sum_of_subtrees_has_the_bits_of_the_whole_tree(parts: int, workers: int) -> None:
    if workers > parts:
        pytest.skip("each worker has a part")
    g = np.random.default_rng(parts)
    leaves = {(i, i + 1): g.standard_normal(7, np.float32) for i in range(parts)}
    expected = sum_in_order(leaves, (0, parts))
    sums: dict[tuple[int, int], np.ndarray] = {}
    seen: list[int] = []
    for rank in range(workers):
        own = own_parts(parts, workers, rank)
        seen += own
        stack: list[np.ndarray] = []
        for part in own:  # as the optimizer does it: a stack of sums, merged when complete
            stack.append(leaves[part, part + 1])
            for _ in range(completed_by((0, parts), part, own.start)):
                right = stack.pop()
                stack[-1] = stack[-1] + right
        nodes = roots((0, parts), own.start, own.stop)
        assert len(stack) == len(nodes)
        sums |= dict(zip(nodes, stack, strict=True))
    assert seen == list(range(parts))
    np.testing.assert_array_equal(tree_sum(sums, (0, parts)), expected)


def test_the_order_of_the_tree_shows_in_the_bits() -> None:
    g = np.random.default_rng(0)
    leaves = {(i, i + 1): g.standard_normal(999, np.float32) for i in range(8)}
    in_order = np.sum(np.stack(list(leaves.values())), axis=0, dtype=np.float32)
    assert (tree_sum(leaves, (0, 8)) != in_order).any()
