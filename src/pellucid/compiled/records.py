"""The arguments of the decoding kernels: named tuples of arrays and numbers, and their types.

All weights of one dtype are in one long array (1, all); the records hold offsets into it. Matrices
are in panels of WIDTH columns (`kernels.backend.matmul`, or `.int8`), so there are two widths: the
real one, and the one padded to whole panels.
"""

from typing import Any, NamedTuple

import numpy as np

from pellucid.kernels.backend.machine_code import record
from pellucid.models.prefix import Table

Array = np.ndarray


class PackedWeights(NamedTuple):
    """All weights of a model except the embedding tables."""

    floats: Array
    """(1, all) float32: biases, norms, the scales of int8 matrices, float32 matrices."""
    bytes: Array
    """(1, all) uint8: int8 matrices."""


class PackedStack(NamedTuple):
    """The blocks, sizes and settings of a stack."""

    program: Array
    """(blocks, 8) int64, a line for each block; its columns are in `compiled.blocks`."""
    layers: int
    width: int
    """E."""
    padded_width: int
    ffn: int
    """F."""
    padded_ffn: int
    gates: int
    """2 where the activation of the first F numbers multiplies F more, else 1."""
    heads: int
    key_heads: int
    """Heads of keys and values, each shared by heads / key_heads heads."""
    head_width: int
    """D."""
    padded_head: int
    """D padded to whole vectors."""
    pre_norm: int
    centred: int
    """Whether norms subtract the mean: LayerNorm, not RMSNorm."""
    final_norm: int
    """Where the final norm begins; −1 without one."""
    window: int
    """A row sees keys that are fewer than this number of positions away."""
    distances: int
    """Where begins what distances add to the scores, (H, 2 · reach + 1); −1 where nothing is."""
    reach: int
    """The last of them, from −reach on, stand for all distances beyond."""
    scale: Any
    """The factor of q · k."""
    softcap: Any
    """Soft cap of the scores; 0: no cap."""
    eps: Any
    angles: Array
    """(D / 2,): the angle per position that every pair of a head turns by; (0,) without."""
    cross: int
    """Whether the heads of cross-attention turn too."""


class PackedInputs(NamedTuple):
    """The tables of token and position embeddings with their factors."""

    tokens: Array
    """(V, E) float32; (0, E) where they are in int8."""
    rounded: Array
    """(V, E) int8; (0, E) where they are in float32."""
    scales: Array
    """(V,): what each row of int8 tokens is multiplied by; (0,) if they are float32."""
    positions: Array
    """Its last row is that of all positions beyond."""
    token_factor: Any
    position_factor: Any
    norm: int
    """Where the norm over their sum begins; −1 without one."""


class PackedOutput(NamedTuple):
    """The offsets and sizes of the output layer, and the special tokens."""

    weight: int
    bias: int
    vocabulary: int
    padded: int
    ends: Array
    """The end token, and others that count as it."""
    suppressed: Array
    """Tokens that are never generated."""


class PackedModel(NamedTuple):
    """A packed model. Without an encoder, `encoder` and `source` repeat the decoder's values."""

    has_encoder: bool
    w: PackedWeights
    encoder: PackedStack
    source: PackedInputs
    memory: Array
    """(layers, 3) int64: where the projections of the encoder's rows to every decoder layer's keys
    and values are, weights and biases, and the norm of the keys or −1; (0, 3) without an encoder.
    """
    decoder: PackedStack
    target: PackedInputs
    output: PackedOutput


class Source(NamedTuple):
    """The packed input sequences of an encoder."""

    tokens: Array
    positions: Array
    starts: Array
    """(N + 1,): where each begins among the tokens, and where the last ends."""


class Keys(NamedTuple):
    """The keys and values of a decoder's self-attention, in every layer."""

    rows: Array
    """(layers · capacity, 2 · key heads · padded head)."""
    capacity: int
    """Rows of one layer; 0 in an encoder, which keeps none."""
    first: int
    """Where the rows computed now are written."""


class Visible(NamedTuple):
    """The keys that each of the m rows of a step attends to."""

    keys: Array
    """(m, longest): the row numbers among `Keys`; in an encoder, the first row of the sequence."""
    counts: Array
    """(m,): how many."""
    sources: Array
    """(m, 2): first row and number of rows in the memory."""


class Memory(NamedTuple):
    """The encoder's output as keys and values of every decoder layer."""

    rows: Array
    """(layers · length, 2 · key heads · padded head)."""
    length: int
    """Rows of one layer."""


class Inputs(NamedTuple):
    """The N inputs of a running search and their progress."""

    sources: Array
    """(N, 2): first row and number of rows in the memory."""
    prompts: Array
    """(N,): the rows that a decoder alone has read of it."""
    limits: Array
    """(N,): the most tokens of its answer."""
    lengths: Array
    """(N,): the tokens that its hypotheses have."""
    beginnings: Array
    """(N,): the first state of what its answer begins with; −1 for nothing."""


class Beam(NamedTuple):
    """The settings of a search: `SearchConfig` and `Constraints` as numbers."""

    size: int
    best: int
    eos: int
    penalties: Array
    """(2 + longest limit + 1,): the length penalty of every length."""
    longer_is_kinder: bool
    """Whether the penalty divides log p of longer answers by more (α > 0)."""
    repetition: Any
    """Factor of log p of a token that was generated before; 1 for none."""
    no_repeat: int
    """The tokens of a sequence that must not come twice; 0: any may."""
    least: int
    """The tokens that an answer has at least."""
    forced: int
    """The token that every answer begins with; −1: any."""


class Hypotheses(NamedTuple):
    """The unfinished hypotheses, those of an input adjacent; room for `most` of them."""

    owners: Array
    """(most,): the input of each."""
    totals: Array
    """(most,): Σ log p."""
    tokens: Array
    """(most,): the newest token."""
    parents: Array
    """(most,): the row that it extends."""
    names: Array
    """(most, longest): the numbers of its rows among `Keys`."""
    generated: Array
    """(most, longest limit): its tokens."""


class Candidates(NamedTuple):
    """The likeliest next tokens of each hypothesis, likeliest first."""

    log_p: Array
    tokens: Array
    """(m, 2 · beam); −1 where the vocabulary has no more."""


class Answers(NamedTuple):
    """The best answers of each input, best first."""

    tokens: Array
    """(N, beam, longest limit)."""
    ends: Array
    """(N, beam, 2): length, whether the end token was generated."""
    log_p: Array
    """(N, beam)."""
    scores: Array
    """(N, beam); −inf where there is no answer."""
    finished: Array
    """(N,): how many ended with the end token."""


ROWS, LOG_P = "i8[::1]", "f4[:,::1]"
_STACK = record(PackedStack, "i8[:,::1]", *["i8"] * 16, *["f4"] * 3, "f8[::1]", "i8")
_INPUTS = record(PackedInputs, "f4[:,::1],i1[:,::1],f4[::1],f4[:,::1],f4,f4,i8")
_WEIGHTS = record(PackedWeights, "f4[:,::1],u1[:,::1]")
_OUTPUT = record(PackedOutput, "i8,i8,i8,i8,i8[::1],i8[::1]")
MODEL = record(PackedModel, "b1", _WEIGHTS, _STACK, _INPUTS, "i8[:,::1]", _STACK, _INPUTS, _OUTPUT)
SOURCE = record(Source, "i8[::1],i8[::1],i8[::1]")
KEYS = record(Keys, "f4[:,::1],i8,i8")
VISIBLE = record(Visible, "i8[:,::1],i8[::1],i8[:,::1]")
MEMORY = record(Memory, "f4[:,::1],i8")
INPUTS = record(Inputs, "i8[:,::1],i8[::1],i8[::1],i8[::1],i8[::1]")
BEGINNINGS = record(Table, "i8[::1],i8[::1],i8[::1],i8[::1]")
BEAM = record(Beam, "i8,i8,i8,f8[::1],b1,f4,i8,i8,i8")
HYPOTHESES = record(Hypotheses, "i8[::1],f8[::1],i8[::1],i8[::1],i8[:,::1],i4[:,::1]")
ANSWERS = record(Answers, "i4[:,:,::1],i8[:,:,::1],f8[:,::1],f8[:,::1],i8[::1]")
