"""A prefix allows every way to write its text, and none that is another."""

from itertools import product

import pytest

from pellucid.models.prefix import FREE, NEVER, Prefix, Spelling

SPELLED = Spelling([b"", b"t", b"th", b"he", b"the", b"e", b"ere", b"there", b"x", b"h"])
BEHIND = Spelling([b"", b" t", b" th", b"he", b"the", b"e", b"ere", b" there", b"x", b"h"])


def text_of(tokens: tuple[int, ...], behind: Spelling) -> bytes:
    return b"".join((behind if i else SPELLED)[token] for i, token in enumerate(tokens))


def accepted(prefix: Prefix, tokens: tuple[int, ...], most: int) -> bool:
    for place, token in enumerate(tokens):
        allowed = prefix.allowed(tokens[:place], most - place)
        if allowed is not None and token not in allowed:
            return False
    return True


@pytest.mark.parametrize("behind", [SPELLED, BEHIND])
@pytest.mark.parametrize("text", [b"t", b"the", b"ther", b"there th", b"thex"])
def test_a_text_is_accepted_when_it_begins_with_the_prefix_or_is_its_beginning(
    text: bytes, behind: Spelling
) -> None:
    prefix, seen = Prefix.of_text(text, (SPELLED, behind)), set()
    for tokens in product(range(1, len(SPELLED)), repeat=3):
        written = text_of(tokens, behind)
        agrees = written.startswith(text) or text.startswith(written)
        if agrees and text.startswith(written) and written != text:
            continue  # whether the rest can be written is another matter
        assert accepted(prefix, tokens, 99) == agrees, (tokens, written)
        seen.add(agrees)
    assert False in seen


def test_the_fewest_tokens_are_counted_and_room_is_kept_for_them() -> None:
    prefix = Prefix.of_text(b"thehex", (SPELLED, SPELLED))
    assert prefix.fewest[0] == 3  # the, he, x
    assert prefix.allowed([], 3) == [4]
    assert prefix.allowed([], 4) == [1, 2, 4]
    assert prefix.allowed([1], 3) == [3]  # and not "h", "e"
    assert prefix.allowed([1], 4) == [3, 9]
    assert prefix.allowed([4, 3, 8], 1) is None
    assert Prefix.of_text(b"thz", (SPELLED, SPELLED)).fewest[0] == NEVER
    assert Prefix.of_text(b"x", (SPELLED, SPELLED), never={8}).fewest[0] == NEVER


@pytest.mark.parametrize("text", [b"the", b"there"])
def test_a_whole_answer_is_written_and_ended_in_any_tokens_but_no_other(text: bytes) -> None:
    prefix, found = Prefix.of_text(text, (SPELLED, SPELLED), {0}, ends=0), set()
    for tokens in product(range(len(SPELLED)), repeat=4):
        answer = tokens[: (*tokens, 0).index(0)]
        if accepted(prefix, (*answer, 0), 9):
            found.add(answer)
    right = {t for n in (1, 2, 3) for t in product(range(1, 10), repeat=n)}
    assert found == {t for t in right if text_of(t, SPELLED) == text}
    assert prefix.allowed([4], 1) == ([0] if text == b"the" else [])


def test_tokens_in_front_write_nothing() -> None:
    prefix = Prefix.of_text(b"x", (SPELLED, BEHIND), frame=[0, 9])
    assert [prefix.allowed(seen, 9) for seen in ([], [0], [0, 9], [0, 9, 8])] == [
        [0],
        [9],
        [8],
        None,
    ]
    assert prefix.fewest[0] == 3


def test_what_would_change_the_end_may_not_follow_it_in_pieces_either() -> None:
    tokens = [b"", b"e", b"\xcc", b"\x81", b"\x80", b"e\xcc\x81", b"e\xcc\x81\x80", b"ex"]
    spelled = Spelling(tokens)
    prefix = Prefix.of_text(b"e", (spelled, spelled), closed_to=(b"\xcc\x81",))
    assert prefix.allowed([], 9) == [1, 7]
    assert prefix.steps[0][7] == FREE
    assert prefix.allowed([1], 9) == [0, 1, 2, 4 - 1, 4, 5, 6, 7]
    assert prefix.allowed([1, 2], 9) == [0, 1, 2, 4, 5, 6, 7]
    assert prefix.allowed([1, 2, 4], 9) is None
