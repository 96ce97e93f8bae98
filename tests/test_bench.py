"""Where the time of a step goes, by kind of work."""

import numpy as np
import pytest

from pellucid import bench


def test_shares_are_parts_of_one_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"V": 53, "E": 24, "H": 2, "F": 31, "LAYERS": 1}.items():
        monkeypatch.setattr(bench, name, size)
    ids = np.random.default_rng(0)
    step = bench.pellucid_step(ids.integers(3, 53, (3, 7)), ids.integers(3, 53, (3, 8)))
    step()
    shares = bench.shares(step)
    assert set(shares) == {*bench.KINDS.values(), "elementwise", "Python"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 < share < 1 for share in shares.values())
