"""The tree of a search, recorded while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.apps.view.record import Node
from pellucid.apps.view.tokens import Label, Vocabulary
from pellucid.core.batch import Packed
from pellucid.generation import Decodes, Hypothesis, SearchConfig, search

Array = np.ndarray


class _Hypothesis(NamedTuple):
    """An unfinished hypothesis: its last token, and log p of every next token."""

    parent: int
    token: int
    next_log_p: Array


class _State(NamedTuple):
    inner: Any
    rows: Array
    """Index of the hypothesis of each row, before its next token."""

    def select(self, rows: Array) -> _State:
        return _State(self.inner.select(rows), self.rows[rows])


class _Recording:
    """A model that records every hypothesis a search extends."""

    def __init__(self, model: Decodes) -> None:
        self._model = model
        self.config = model.config
        self.extended: list[_Hypothesis] = []

    def room(self, source: Packed) -> Array:
        return self._model.room(source)

    def start(self, source: Packed) -> _State:
        return _State(self._model.start(source), np.full(len(source), -1))

    def step(self, state: _State, tokens: Array) -> tuple[Array, _State]:
        log_p, inner = self._model.step(state.inner, tokens)
        first = len(self.extended)
        self.extended += map(_Hypothesis, state.rows.tolist(), np.asarray(tokens).tolist(), log_p)
        return log_p, _State(inner, np.arange(first, len(self.extended)))


def search_tree(
    model: Decodes,
    source: Sequence[int],
    config: SearchConfig,
    vocabulary: Vocabulary,
    first: tuple[int, Label],
    prefix: Sequence[int] = (),
) -> tuple[list[Hypothesis], tuple[Node, ...]]:
    """Search; return the answers, best first, and the tree of all hypotheses.

    `first` is the token before every answer, the tree's root, and its label. Answers begin with
    `prefix`.

    Every hypothesis that was extended is a node, and every answer's end. For each number of tokens
    the tree also has the most likely hypotheses that were dropped, as many as the beam is wide.
    """
    recording = _Recording(model)
    prefixes = [prefix] if prefix else ()
    begin = np.array(first[:1])
    answers = search(recording, Packed.of([source]), config, prefixes, begin)[0]
    eos, beam = model.config.eos_token_id, config.beam
    return answers, _tree(recording.extended, answers, eos, beam, vocabulary, first[1])


def _tree(
    hypotheses: Sequence[_Hypothesis],
    answers: Sequence[Hypothesis],
    eos: int,
    beam: int,
    vocabulary: Vocabulary,
    root: Label,
) -> tuple[Node, ...]:
    ranks = {answer.tokens: (rank, answer.finished) for rank, answer in enumerate(answers, 1)}
    # Later tokens may complete a character, so labels of a whole answer are better.
    whole: dict[tuple[int, ...], Label] = {(): root}
    for answer in reversed(answers):
        for n, found in enumerate(vocabulary.labels(answer.tokens), 1):
            whole[answer.tokens[:n]] = found
    paths: list[tuple[int, ...]] = []
    nodes: list[Node] = []
    for one in hypotheses:
        path: tuple[int, ...] = (one.token,)
        log_p = total = 0.0
        if one.parent >= 0:
            path = (*paths[one.parent], one.token)
            log_p = float(hypotheses[one.parent].next_log_p[one.token])
            total = nodes[one.parent].log_p + log_p
        rank, finished = ranks.get(path[1:], (0, False))
        label = whole.get(path[1:]) or vocabulary.last(path)
        p = float(np.exp(log_p))
        nodes.append(Node(one.parent, label, p, total, "kept", 0 if finished else rank))
        paths.append(path)
    extended = set(paths)
    dropped: dict[int, list[Node]] = {}
    for number, (path, one) in enumerate(zip(paths, hypotheses, strict=True)):
        rank, finished = ranks.get(path[1:], (0, False))
        likeliest = np.argsort(-one.next_log_p, kind="stable")[: 2 * beam].tolist()
        if finished and eos not in likeliest:
            likeliest.append(eos)
        for token in likeliest:
            if (*path, token) in extended:
                continue
            log_p = float(one.next_log_p[token])
            p, total = float(np.exp(log_p)), nodes[number].log_p + log_p
            made = Node(number, vocabulary.last((*path, token)), p, total, "dropped")
            if finished and token == eos:
                nodes.append(made._replace(state="end", rank=rank))
            else:
                dropped.setdefault(len(path), []).append(made)
    for made_here in dropped.values():
        nodes += sorted(made_here, key=lambda node: -node.log_p)[:beam]
    return tuple(nodes)
