"""What torch 2.13 answered, stored: the comparison that needs no torch."""

from __future__ import annotations

import pytest
from tests.nn import compare, golden, ours
from tests.nn.draws import KINDS

CASES = golden.load()


def test_every_class_is_stored() -> None:
    stored = [name.split("/")[0] for name in CASES]
    assert {kind: stored.count(kind) for kind in KINDS} == dict.fromkeys(KINDS, 6)


@pytest.mark.parametrize("name", CASES)
def test_equals_what_torch_answered(name: str) -> None:
    case, expected = CASES[name]
    found = compare.errors(ours.run(case), expected)
    assert max(found.values()) <= compare.TOLERANCE[case.dtype], found
