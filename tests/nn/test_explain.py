from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.nn.test_masks import never_seen, situations

from pellucid.nn import explain_mask


def test_one_example_in_words() -> None:
    added = np.zeros((3, 4))
    added[0, 1], added[2] = 0.5, -np.inf
    text = explain_mask(
        3,
        4,
        attn_mask=added,
        key_padding_mask=np.array([[False, False, False, True]]),
        keys=["the", "cat", "sat", "PAD"],
        queries=["a", "b", "c"],
    )
    assert text.splitlines() == [
        "3 queries over 4 keys",
        "         the cat sat PAD",
        "query a    .   ~   .   p   sees 3: keys the, cat, sat",
        "query b    .   .   .   p   sees 3: keys the, cat, sat",
        "query c    m   m   m   +   sees nothing: dead, gets zeros and gives zero gradient",
        ". may look   ~ may look, a number is added to its score   m attn_mask   "
        "p key_padding_mask   + several forbid it",
    ]


def test_one_sequence_without_a_batch() -> None:
    """Its masks are those of a batch of one, as the attention takes them."""
    padding = np.array([False, False, True])
    per_head = np.zeros((2, 4, 3), bool)
    per_head[1, 0, 0] = True
    for attn_mask, heads in ((None, 1), (per_head, 2)):
        options: dict[str, Any] = {"attn_mask": attn_mask, "num_heads": heads}
        assert explain_mask(4, 3, key_padding_mask=padding, **options) == explain_mask(
            4, 3, key_padding_mask=padding[None], **options
        )


def test_examples_and_heads_that_look_alike_share_a_picture() -> None:
    mask = np.zeros((6, 2, 3), bool)
    mask[1, 0, 0] = mask[3, 0, 0] = True  # head 1 of examples 0 and 1
    text = explain_mask(2, 3, attn_mask=mask, num_heads=2, valid_lens=np.array([3, 3, 1]))
    assert text.splitlines() == [
        "2 queries over 3 keys",
        "examples 0, 1, head 0:",
        "query 0  . . .   sees 3: keys 0-2",
        "query 1  . . .   sees 3: keys 0-2",
        "examples 0, 1, head 1:",
        "query 0  m . .   sees 2: keys 1-2",
        "query 1  . . .   sees 3: keys 0-2",
        "example 2:",
        "query 0  . v v   sees 1: key 0",
        "query 1  . v v   sees 1: key 0",
        ". may look   m attn_mask   v valid_lens",
    ]


def test_no_mask() -> None:
    assert explain_mask(1).splitlines() == [
        "1 query over 1 key", "query 0  .   sees 1: key 0", ". may look"
    ]  # fmt: skip


@pytest.mark.parametrize("labels", [{"queries": ["a"]}, {"keys": ["a", "b", "c", "d"]}])
def test_labels_are_as_many_as_queries_and_keys(labels: dict[str, list[str]]) -> None:
    (name,) = labels
    with pytest.raises(ValueError, match=f"{name} must be .* labels, one for each; got"):
        explain_mask(2, 3, **labels)


def test_wrong_masks_raise_as_in_the_attention() -> None:
    with pytest.raises(TypeError, match="True = not allowed"):
        explain_mask(2, attn_mask=np.zeros((2, 2), int))
    with pytest.raises(ValueError, match=r"\(N, S\) = \(1, 3\)"):
        explain_mask(2, 3, key_padding_mask=np.zeros((1, 2), bool))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(situations())
def test_the_picture_tells_the_truth(s: dict[str, Any]) -> None:
    """A key is drawn open for some query exactly if some query's gradient could reach it."""
    for n in range(s["n"]):
        one = dict(s, n=1)
        for name, per in (("attn_mask", s["heads"]), ("key_padding_mask", 1)):
            if s[name] is not None and (name != "attn_mask" or s[name].ndim == 3):
                one[name] = s[name][n * per : (n + 1) * per]
        text = explain_mask(
            s["length"],
            s["source_length"],
            attn_mask=one["attn_mask"],
            key_padding_mask=one["key_padding_mask"],
            is_causal=s["is_causal"],
            num_heads=s["heads"],
        )
        drawn = [line.split("  ")[1].split() for line in text.splitlines() if "query" in line[:5]]
        open_keys = {j for marks in drawn for j, mark in enumerate(marks) if mark in ".~"}
        assert open_keys == set(np.flatnonzero(~never_seen(one)[0]))
