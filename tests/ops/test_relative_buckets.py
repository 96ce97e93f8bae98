from __future__ import annotations

import numpy as np
import pytest

from pellucid.ops import relative_buckets


@pytest.mark.parametrize(
    ("buckets", "longest", "both_ways"), [(3, 128, True), (1, 128, False), (32, 8, True)]
)
def test_no_bucket_below_half_or_no_longer_distance_is_an_error(
    buckets: int, longest: int, both_ways: bool
) -> None:
    """The logarithm's steps would be divided by 0, which gives buckets outside the table."""
    with pytest.raises(ValueError, match="half the buckets"):
        relative_buckets(np.array([0, 1, 300]), buckets, longest, both_ways)


def test_buckets_of_the_shortest_longest_lie_in_the_table() -> None:
    found = relative_buckets(np.arange(-300, 300), 32, 9)
    assert found.min() == 0
    assert found.max() == 31
