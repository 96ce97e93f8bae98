"""Record the tree of hypotheses while a beam search runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.apps.view.record import Array, Node
from pellucid.apps.view.tokens import Label, Vocabulary
from pellucid.core.batch import Packed
from pellucid.generation import Decodes, Hypothesis, SearchConfig, search
from pellucid.models.prefix import Prefix

Tokens = tuple[int, ...]
"""The tokens of a hypothesis, beginning with the token that precedes every answer."""


class _State(NamedTuple):
    inner: Any
    paths: list[Tokens]
    """The tokens of each row's hypothesis so far."""

    def select(self, rows: Array) -> _State:
        return _State(self.inner.select(rows), [self.paths[row] for row in rows])


class _Recording:
    """Wrapper of a model that records every hypothesis that a search extends."""

    def __init__(self, model: Decodes) -> None:
        self._model = model
        self.config = model.config
        self.extended: dict[Tokens, Array] = {}
        """log p of all next tokens (V,), by hypothesis."""

    def room(self, source: Packed) -> Array:
        return self._model.room(source)

    def start(self, source: Packed) -> _State:
        return _State(self._model.start(source), [()] * len(source))

    def step(self, state: _State, tokens: Array) -> tuple[Array, _State]:
        log_p, inner = self._model.step(state.inner, tokens)
        paths = [(*path, int(token)) for path, token in zip(state.paths, tokens, strict=True)]
        self.extended.update(zip(paths, log_p, strict=True))
        return log_p, _State(inner, paths)

    def tree(
        self, answers: Sequence[Hypothesis], beam: int, vocabulary: Vocabulary, root: Label
    ) -> tuple[Node, ...]:
        """Return the tree that `search_tree` describes."""
        extended, eos = self.extended, self.config.eos_token_id
        ranks = {answer.tokens: (rank, answer.finished) for rank, answer in enumerate(answers, 1)}
        # Later tokens may complete a character, so labels of a whole answer are better.
        whole: dict[Tokens, Label] = {(): root}
        for answer in reversed(answers):
            for n, found in enumerate(vocabulary.labels(answer.tokens), 1):
                whole[answer.tokens[:n]] = found
        places: dict[Tokens, int] = {}
        nodes: list[Node] = []
        for path in extended:
            parent, log_p, total = places.get(path[:-1], -1), 0.0, 0.0
            if parent >= 0:
                log_p = float(extended[path[:-1]][path[-1]])
                total = nodes[parent].log_p + log_p
            rank, finished = ranks.get(path[1:], (0, False))
            label = whole.get(path[1:]) or vocabulary.last(path)
            places[path] = len(nodes)
            p = float(np.exp(log_p))
            nodes.append(Node(parent, label, p, total, "kept", 0 if finished else rank))
        dropped: dict[int, list[Node]] = {}
        for number, (path, next_log_p) in enumerate(extended.items()):
            rank, finished = ranks.get(path[1:], (0, False))
            order = np.argsort(-next_log_p, kind="stable")[: 2 * beam]
            likeliest = order[next_log_p[order] > -np.inf].tolist()
            if finished and eos not in likeliest:
                likeliest.append(eos)
            for token in likeliest:
                if (*path, token) in extended:
                    continue
                log_p = float(next_log_p[token])
                p, total = float(np.exp(log_p)), nodes[number].log_p + log_p
                made = Node(number, vocabulary.last((*path, token)), p, total, "dropped")
                if finished and token == eos:
                    nodes.append(made._replace(state="end", rank=rank))
                else:
                    dropped.setdefault(len(path), []).append(made)
        for made_here in dropped.values():
            nodes += sorted(made_here, key=lambda node: -node.log_p)[:beam]
        return tuple(nodes)


def search_tree(
    model: Decodes,
    source: Sequence[int],
    config: SearchConfig,
    vocabulary: Vocabulary,
    first: tuple[int, Label],
    prefix: Prefix | None = None,
) -> tuple[list[Hypothesis], tuple[Node, ...]]:
    """Run a beam search; return its answers, best first, and its tree of hypotheses.

    first: the token before every answer, which is the root of the tree, and its label. prefix: what
    every answer must begin with.

    The nodes are every hypothesis that was extended and the end of every finished answer. For each
    length the tree also has the most likely hypotheses that were dropped, up to `config.beam` of
    them. These are chosen by the model's probabilities alone, so some may be forbidden by the
    prefix, a constraint or the greatest length.
    """
    recording = _Recording(model)
    begin = np.array(first[:1])
    answers = search(recording, Packed.of([source]), config, [prefix], begin)[0]
    return answers, recording.tree(answers, config.beam, vocabulary, first[1])
