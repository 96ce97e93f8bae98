"""Sampling: draw each next token from the model's distribution."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pellucid.core.array import to_host
from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.core.rng import Rng, random_bits
from pellucid.core.settings import check_ranges
from pellucid.generation.model import compile_model
from pellucid.models.decoding import Array, Constraints, Decodes, constrain, limits_of
from pellucid.models.prefix import Prefix


@dataclass(frozen=True)
class SampleConfig:
    """How an answer is sampled."""

    temperature: float = 1.0
    """Log-probabilities are divided by it: below 1 less random, above 1 more random."""
    top_k: int = 0
    """Sample among this many likeliest tokens; 0 among all."""
    top_p: float = 1.0
    """Sample among the fewest likeliest tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Leave out tokens less likely than this fraction of the likeliest one's probability."""
    max_length: int = 128
    """Longest answer, in tokens, the end token not counted."""
    seed: int = 0
    """Random seed; every draw is keyed by (seed, input, step), so the batch does not matter."""
    constraints: Constraints = field(default_factory=Constraints)
    samples: int = 1
    """Answers drawn for each input."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        check_ranges(self, temperature="[0, inf)", top_k="[0, inf]", top_p="(0, 1]", min_p="[0, 1)")
        if self.temperature == 0:
            raise UsageError("temperature must be above 0; greedy search takes the likeliest token")
        check_ranges(self, max_length="[1, inf]", seed="[0, inf]", samples="[1, 4096]")


def kept_probabilities(log_p: Array, config: SampleConfig) -> tuple[Array, Array]:
    """Apply temperature, top-k, top-p and min-p.

    Returns (tokens, probabilities) to draw from.

    log_p: (V,), some of it finite. top-k comes first, then temperature; top-p and min-p keep what
    both allow. Tokens are sorted, likeliest first, equal ones by number; probabilities sum to 1.
    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (top-p); Nguyen et al. 2024 (min-p).

    >>> tokens, p = kept_probabilities(np.log([0.1, 0.6, 0.3]), SampleConfig(top_p=0.8))
    >>> tokens, p.round(3)
    (array([1, 2]), array([0.667, 0.333]))
    """
    order = likeliest_first(log_p)
    if config.top_k:
        order = order[: config.top_k]
    z = log_p[order].astype(np.float64)
    with np.errstate(over="ignore"):  # a difference too large for float64 is -inf, so p = 0
        p = np.exp((z - z[0]) / config.temperature)
    p /= p.sum()
    before = np.cumsum(p) - p
    kept = (before < config.top_p) & (p >= config.min_p * p[0]) & (p > 0)
    return order[kept], p[kept] / p[kept].sum()


def likeliest_first(log_p: Array) -> Array:
    """Return all tokens (V,), sorted by falling log-probability; equal ones by number.

    For float32, whose bits sort as integers do, value and token are packed into one integer, which
    sorts faster than a stable argsort for thousands of tokens.
    """
    if log_p.dtype != np.float32:
        return np.argsort(-log_p, kind="stable")
    bits = (0.0 - log_p).view(np.int32)  # 0 - x: no -0, which would order before 0
    rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    packed = (rising << 32) | np.arange(len(log_p))
    packed.sort()
    order: Array = packed & 0xFFFFFFFF
    return order


def uniform_draws(seed: int, step: int, examples: Array) -> Array:
    """Return a uniform random number in (0, 1) for each example, (N,).

    Each depends only on (seed, example, step), so answers do not depend on the batch.
    """
    rng = Rng(seed).fold(step).at(examples.astype(np.uint32))
    draws: Array = (random_bits(rng, (len(examples), 1))[:, 0] + 0.5) / 2.0**32
    return draws


def choose(log_p: Array, config: SampleConfig, u: float) -> int:
    """Choose a token: the first whose cumulative probability (`kept_probabilities`) reaches u.

    log_p: (V,). For a uniform u in (0, 1) this draws from the distribution.
    """
    candidates, p = kept_probabilities(log_p, config)
    place = min(int(np.searchsorted(np.cumsum(p), u)), len(candidates) - 1)
    return int(candidates[place])


def sample_stream(
    model: Decodes,
    source: Packed,
    config: SampleConfig = SampleConfig(),
    prefixes: Sequence[Prefix | None] = (),
    first: Array | None = None,
) -> Iterator[list[tuple[int, int]]]:
    """Sample answers token by token.

    Yields a list of (input, token) pairs for each step, without end tokens; `input` is the index in
    `source`. The model is compiled first, if that is possible.

    Draws depend on the inputs' numbers `source.examples`. `prefixes` and `first` are as in
    `search`. Each input gets one answer: `config.samples` is not read here, so the caller repeats
    the inputs. Raises `ValueError` as `search` does, at the first step.
    """
    bos, eos = model.config.bos_token_id, model.config.eos_token_id
    model = compile_model(model)
    limits = limits_of(model, source, config.max_length, prefixes)
    generated: list[list[int]] = [[] for _ in range(len(source))]
    active = np.flatnonzero(limits > 0)
    if not len(active):
        return
    state = model.start(source.select(active))
    tokens = np.full(len(active), bos) if first is None else first[active]
    for step in range(int(limits.max())):
        log_p, state = model.step(state, tokens)
        draws = uniform_draws(config.seed, step, source.examples[active])
        chosen = []
        for row, i, u in zip(to_host(log_p), active, draws, strict=True):
            prefix = prefixes[int(i)] if prefixes else None
            left = int(limits[i]) - step
            allowed = constrain(row, generated[i], config.constraints, prefix, eos, left)
            chosen.append(choose(allowed, config, u))
        kept = [k for k, token in enumerate(chosen) if token != eos]
        for k in kept:
            generated[active[k]].append(chosen[k])
        yield [(int(active[k]), chosen[k]) for k in kept]
        going = [k for k in kept if len(generated[active[k]]) < limits[active[k]]]
        if not going:
            return
        if len(going) < len(chosen):
            state = state.select(np.array(going))
        active, tokens = active[going], np.array([chosen[k] for k in going])


def sample(
    model: Decodes,
    source: Packed,
    config: SampleConfig = SampleConfig(),
    prefixes: Sequence[Prefix | None] = (),
    first: Array | None = None,
) -> list[tuple[int, ...]]:
    """Sample an answer to each input; return their tokens, without end tokens.

    Arguments are as in `sample_stream`, which does not read `config.samples` either.
    """
    generated: list[list[int]] = [[] for _ in range(len(source))]
    for kept in sample_stream(model, source, config, prefixes, first):
        for i, token in kept:
            generated[i].append(token)
    return [tuple(tokens) for tokens in generated]
