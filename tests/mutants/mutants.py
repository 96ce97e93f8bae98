"""Faults that other Transformers written from nothing really have, as small patches of ours.

Each was found by running those projects or reading their source. A patch replaces one piece of one
file in a copy of the package; the test named beside it must then fail.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    fault: str
    file: str
    old: str
    new: str
    test: str
    """A file under tests/nn and what is chosen in it, as for pytest's -k."""


GRADIENTS = "test_whole_gradients.py: every_gradient"
GOLDEN = "test_golden.py: equals and "

MUTANTS = (
    Mutant(
        "gradients matched by part of a name: the decoder's overwrite the encoder's",
        "nn/transformer.py",
        "            return encoder_backward(dmemory), dtgt\n",
        "            dsrc = encoder_backward(dmemory)\n"
        "            named = list(self.named_parameters())\n"
        "            by_end = {name.partition('.')[2]: p.grad for name, p in named}\n"
        "            for name, p in named:\n"
        "                p.grad = by_end[name.partition('.')[2]]\n"
        "            return dsrc, dtgt\n",
        GRADIENTS,
    ),
    Mutant(
        "gradients matched by part of a name: cross-attention's overwrite self-attention's",
        "nn/transformer.py",
        "            return encoder_backward(dmemory), dtgt\n",
        "            dsrc = encoder_backward(dmemory)\n"
        "            named = dict(self.named_parameters())\n"
        "            for name, p in named.items():\n"
        "                p.grad = named.get(name.replace('self_attn', 'multihead_attn'), p).grad\n"
        "            return dsrc, dtgt\n",
        GRADIENTS,
    ),
    Mutant(
        "the final norm's gradient is dropped",
        "nn/transformer.py",
        "                dy = norm_backward(dy)\n",
        "                norm_backward(dy)\n",
        GRADIENTS,
    ),
    Mutant(
        "the residual's gradient is taken after dropout",
        "ops/add_dropout_norm.py",
        "    return dropout_backward(dsum, saved.dropout), dsum, dweight, dbias\n",
        "    dx = dropout_backward(dsum, saved.dropout)\n    return dx, dx, dweight, dbias\n",
        GRADIENTS,
    ),
    Mutant(
        "a repeated token's embedding gradient is assigned, not added",
        "core/array.py",
        "            total[index[order[first]]] = np.add.reduceat(updates[order], first, axis=0)\n",
        "            total[index] = updates\n",
        GOLDEN + "Embedding",
    ),
    Mutant(
        "a parameter used twice keeps its last gradient",
        "nn/module.py",
        "            self.grad = gradient if self.grad is None else self.grad + gradient\n",
        "            self.grad = gradient\n",
        "test_module.py: tied_parameter_add",
    ),
    Mutant(
        "LayerNorm's gradient is right only where gamma is constant",
        "ops/layer_norm.py",
        "    dx = (g - mean_g - x_hat * mean_gx) * inverse_std\n",
        "    gamma = 1.0 if weight is None else weight\n"
        "    mean_g = xp.mean(dy, axis=-1, keepdims=True)\n"
        "    mean_gx = xp.mean(dy * x_hat, axis=-1, keepdims=True)\n"
        "    dx = (dy - mean_g - x_hat * mean_gx) * inverse_std * gamma\n",
        GOLDEN + "LayerNorm",
    ),
    Mutant(
        "LayerNorm's gradient lacks the share of the mean and of the variance",
        "ops/layer_norm.py",
        "    dx = (g - mean_g - x_hat * mean_gx) * inverse_std\n",
        "    dx = g * inverse_std\n",
        GOLDEN + "LayerNorm",
    ),
    Mutant(
        "softmax's gradient is divided by the batch size",
        "ops/softmax.py",
        "    return p * (dp - xp.sum(dp * p, axis=-1, keepdims=True))\n",
        "    return p * (dp - xp.sum(dp * p, axis=-1, keepdims=True)) / p.shape[0]\n",
        GRADIENTS,
    ),
    Mutant(
        "one dropout used at several places: backward draws the mask of the last",
        "ops/dropout.py",
        '    """Return dx = dy ⊙ m / (1 − p); the same mask is drawn again instead of stored."""\n',
        "    global _last\n    saved = _last = globals().get('_last') or saved\n",
        GRADIENTS,
    ),
    Mutant(
        "cross-attention reads its values from the decoder: the future leaks",
        "nn/attention.py",
        "heads_backward = self.heads(context, (x, 0, 1), (memory.rows, 1, 3))\n",
        "heads_backward = self.heads(context, (x, 0, 1), (memory.rows, 1, 3))\n"
        "            v = self.heads(context, (x, 0, 3))[0][2][: len(v)]\n",
        "test_masks.py: later_target",
    ),
    Mutant(
        "softmax adds 1e-8: masked positions leak and a dead row becomes uniform",
        "ops/softmax.py",
        "    p = e / xp.where(total == 0, xp.ones_like(total), total)\n    return p, Saved(p)\n",
        "    p = (e + 1e-8) / xp.sum(e + 1e-8, axis=-1, keepdims=True)\n    return p, Saved(p)\n",
        "test_differences.py: our_rule and dead",
    ),
    Mutant(
        "a dead row becomes NaN",
        "ops/softmax.py",
        "    p = e / xp.where(total == 0, xp.ones_like(total), total)\n    return p, Saved(p)\n",
        "    with np.errstate(invalid='ignore'):\n        p = e / total\n    return p, Saved(p)\n",
        "test_differences.py: our_rule and dead",
    ),
    Mutant(
        "a backward that returns its argument",
        "nn/functional.py",
        "    return apply(ops.gelu, input, approximate)\n",
        "    return apply(ops.gelu, input, approximate)[0], lambda dy: dy\n",
        GOLDEN + "GELU",
    ),
    Mutant(
        "a wrong gradient of the scores, which attention over a single key cannot show",
        "ops/attention.py",
        "    da = softmax_backward(dp, SoftmaxSaved(saved.probabilities))",
        "    da = saved.probabilities * dp",
        GOLDEN + "scaled_dot",
    ),
    Mutant(
        "True in a mask read the other way round",
        "nn/masks.py",
        "    if mask.dtype != host.bool_ and",
        "    mask = ~mask if mask.dtype == host.bool_ else mask\n"
        "    if mask.dtype != host.bool_ and",
        "test_masks.py: valid_lens",
    ),
    Mutant(
        "padding is attended to, so an answer depends on its neighbours",
        "nn/masks.py",
        "    if key_padding_mask is not None:\n",
        "    if key_padding_mask is not None and attn_mask is not None:\n",
        "test_masks.py: neighbours",
    ),
)
