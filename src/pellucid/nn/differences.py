"""The table of intended differences between `pellucid.nn` and torch.nn.

docs/differences.md is generated from it, error messages quote it, and tests/nn/test_differences.py
tests every row. The random comparison with torch leaves out these rows and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One row: its subject, the classes it concerns, what torch 2.13 does, what Pellucid does."""

    name: str
    where: str
    torch: str
    ours: str


TABLE = (
    Difference(
        "dead query",
        "every attention",
        "A query with every key forbidden gives zeros or NaN, depending on the code path; after a "
        "NaN the gradients are NaN too.",
        "A query with every key forbidden (True, in scaled_dot_product_attention False, or "
        "-inf; large negative numbers forbid nothing) gets zero attention and zero gradient. "
        "MultiheadAttention then returns out_proj.bias for it.",
    ),
    Difference(
        "causal alone",
        "MultiheadAttention, layers, stacks, Transformer",
        "is_causal=True without a mask is an error: it is only a hint about the mask.",
        "is_causal=True forbids key s > query l by itself; no mask is needed.",
    ),
    Difference(
        "causal with a mask",
        "MultiheadAttention, layers, stacks, Transformer, scaled_dot_product_attention",
        "One of the two is used, depending on need_weights and key_padding_mask; "
        "scaled_dot_product_attention raises.",
        "Both apply: a key is visible if neither the mask nor causality forbids it.",
    ),
    Difference(
        "causal with learnt keys",
        "MultiheadAttention(add_bias_kv=True or add_zero_attn=True)",
        "With is_causal=True the added keys count as future keys of most queries.",
        "The keys added by add_bias_kv and add_zero_attn are visible to every query.",
    ),
    Difference(
        "scale of 0 or less",
        "scaled_dot_product_attention with is_causal=True",
        "NaN in the flash kernel of the CPU: a forbidden score, -inf, is multiplied by the scale.",
        "A forbidden key stays forbidden at every scale.",
    ),
    Difference(
        "large negative mask on every key",
        "scaled_dot_product_attention, layers, stacks, Transformer",
        "With -1e9 or less on all S keys of a query the flash kernel of the CPU gives gradients S "
        "times too large: log S is lost in the sum that it keeps. Its math backend is right.",
        "The gradients are those of the weights, 1/S each.",
    ),
    Difference(
        "mask dtype",
        "every attention",
        "A float mask of another dtype than the query is an error on most code paths; mixing a "
        "bool and a float mask warns.",
        "A float mask of any float dtype is converted to the query's; bool and float masks mix.",
    ),
    Difference(
        "mask gradient",
        "every attention",
        "A float mask that requires grad gets a gradient.",
        "Masks are constants. A recorder returns the gradient of the scores, which is the same "
        "number.",
    ),
    Difference(
        "backward",
        "every layer",
        "Autograd: loss.backward().",
        "layer.forward(x) returns (y, backward). backward(dy) returns the gradients of the inputs, "
        "adds those of the parameters to .grad, and may be called once. layer(x) returns y.",
    ),
    Difference(
        "randomness",
        "Dropout and every layer with dropout; initial weights",
        "One global generator.",
        "Nothing reads global state: dropout while training needs an rng in the call, and its bits "
        "depend on (seed, site, example, position, channel) alone. Initial weights have torch's "
        "distributions and depend on (seed, the parameter's name).",
    ),
    Difference(
        "activation",
        "layers, Transformer",
        'activation is "relu", "gelu" or any callable.',
        'activation is also "gelu_tanh", "silu" or "leaky_relu"; a callable needs a derivative: '
        "a function of pellucid.nn.functional, a Module, or pellucid.pair(f, f_backward).",
    ),
    Difference(
        "activation module in a decoder",
        "TransformerDecoder, Transformer",
        "Copying a decoder layer forgets an activation that is a module, such as nn.GELU(): the "
        "stack computes with ReLU.",
        "Copies keep their activation.",
    ),
    Difference(
        "inplace",
        "Dropout, ReLU, LeakyReLU, SiLU and their functions",
        "inplace=True writes the result into the argument.",
        "It is a ValueError: arguments are never written to.",
    ),
    Difference(
        "results that backward reads",
        "softmax, log_softmax, layer_norm, scaled_dot_product_attention, the weights of "
        "MultiheadAttention",
        "Writing into a result that backward reads is an error in backward.",
        "layer.forward(x) returns a read-only result if backward reads it; layer(x) returns one "
        "that can be written to.",
    ),
    Difference(
        "max_norm",
        "Embedding",
        "max_norm rescales rows of the table while looking them up.",
        "It is a ValueError: forward never writes to a parameter.",
    ),
    Difference(
        "sparse",
        "Embedding",
        "sparse=True gives the gradient as a sparse tensor.",
        "sparse is accepted and has no effect: the gradient is dense.",
    ),
    Difference(
        "code paths",
        "TransformerEncoder, MultiheadAttention",
        "enable_nested_tensor and mask_check select an implementation; torch's fast path for "
        "evaluation also writes zeros where a source is padding.",
        "Both are accepted and have no effect: every implementation gives the same result.",
    ),
    Difference(
        "device",
        "every class",
        "device=None, then dtype=None, as the last two arguments.",
        "There is no device. dtype is keyword-only; its default is float32.",
    ),
    Difference(
        "float16",
        "every class and function",
        "float16 parameters and arrays are accepted; sums are wider.",
        "It is a TypeError: float16 sums stop growing at 2048 and overflow at 65504. Compute in "
        "float32; weights stored in float16 are converted when they are loaded.",
    ),
    Difference(
        "complex numbers",
        "every class and function",
        "Linear, Dropout and SiLU accept complex parameters and arrays.",
        "It is a TypeError, as for everything that is neither float32, float64 nor an integer: the "
        "derivatives here are of real functions.",
    ),
    Difference(
        "epsilon",
        "LayerNorm, layers, stacks, Transformer",
        "Any eps; one below 0 gives NaN where the variance is less than its size.",
        "An eps below 0 or NaN is a ValueError.",
    ),
    Difference(
        "factors",
        "LeakyReLU, leaky_relu, scaled_dot_product_attention",
        "Any negative_slope and scale, NaN and infinity too.",
        "One that is not finite, or too large for its square to be finite in float32, is a "
        "ValueError.",
    ),
    Difference(
        "nothing to mask",
        "MultiheadAttention, layers, stacks",
        "A mask over 0 sequences or 0 keys raises RuntimeError on some code paths.",
        "0 sequences give an output of 0 sequences; with 0 keys every query is dead.",
    ),
    Difference(
        "no layers",
        "TransformerEncoder, TransformerDecoder, Transformer",
        "A stack of 0 layers raises IndexError.",
        "A stack of 0 layers is its norm; a decoder of 0 layers gives memory a zero gradient.",
    ),
    Difference(
        "custom parts",
        "Transformer(custom_encoder, custom_decoder)",
        "Any callable.",
        "A Module whose forward returns (memory, backward); a decoder's backward returns "
        "(dtgt, dmemory).",
    ),
    Difference(
        "infinite input",
        "GELU, SiLU",
        "gelu(-inf), and on some code paths gelu(inf), is NaN.",
        "The limits: 0 at -inf, inf at inf.",
    ),
    Difference(
        "not a number",
        "Dropout, ReLU",
        "A NaN that dropout drops stays NaN; ReLU lets the gradient through where its input is "
        "NaN.",
        "A dropped entry is 0, even if it was NaN; ReLU gives NaN zero gradient.",
    ),
    Difference(
        "row of -inf",
        "softmax, log_softmax",
        "A row that is all -inf gives NaN.",
        "softmax gives zeros, log_softmax -inf.",
    ),
    Difference(
        "mixed dtypes",
        "every class and function",
        "Most refuse arrays of different dtypes, and all but ReLU and linear refuse integers.",
        "float32 and float64 mix, and integers are accepted, promoted as in NumPy; attention and "
        "losses require floats.",
    ),
    Difference(
        "broadcast bias",
        "linear",
        "A bias of any shape that broadcasts to the output, such as (1,).",
        "bias has the shape (out_features,), else ValueError.",
    ),
    Difference(
        "class numbers",
        "CrossEntropyLoss",
        "Targets are int64 or uint8; the weight must have the dtype of the input.",
        "Targets are integers of any width; the weight is converted.",
    ),
    Difference(
        "nothing to average",
        "CrossEntropyLoss",
        "A mean over a total weight of 0 is NaN; so is its gradient, which is 0 where every target "
        "is ignored.",
        "Such a mean is NaN, its gradient 0.",
    ),
    Difference(
        "target gradient",
        "CrossEntropyLoss",
        "Target probabilities that require grad get a gradient.",
        "The target is a constant.",
    ),
    Difference(
        "errors",
        "every class",
        "AssertionError, RuntimeError, ValueError or IndexError.",
        "ValueError for shapes and values, TypeError for dtypes, IndexError for an index outside a "
        "table, StateError (a KeyError) for a state dict. The message says what was expected, "
        "what was given and what to do.",
    ),
)


def rule(name: str) -> str:
    """Return what Pellucid does, as error messages quote it.

    >>> rule("inplace")
    'arguments are never written to.'
    """
    ours = next(row.ours for row in TABLE if row.name == name)
    return re.sub(r"^It is a \w+: ", "", ours)


def markdown() -> str:
    """Return the table as the text of docs/differences.md."""
    rows = "".join(f"| {d.name} | {d.where} | {d.torch} | {d.ours} |\n" for d in TABLE)
    return (
        "# Where pellucid.nn differs from torch.nn\n\n"
        "Everything else equals PyTorch 2.13: a random comparison of every argument, forward and "
        "backward, tests it.\n"
        "This page is generated from `pellucid.nn.differences.TABLE`; each row has a test.\n\n"
        "| subject | where | torch | Pellucid |\n|---|---|---|---|\n" + rows
    )
