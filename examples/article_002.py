# %% [markdown]
# # Article 002: torch.nn.Transformer taken apart
#
# The same classes with torch's names and arguments, in NumPy: follow the data layer by layer.
# From a walk through torch.nn.modules.transformer (hi-lu.tistory.com), with thanks to its author.

# %%
"""Article 002: data through Transformer layer by layer, norms, masks, copies, two results."""

import numpy as np

from lesson import Lesson
from pellucid import nn

lesson = Lesson(__doc__)
draws = np.random.default_rng(0)

# %% [markdown]
# ## Through the layers
# Width 16, 4 heads, 2 + 2 layers; a batch of 3, sources of 7 tokens, targets of 5. What enters are
# vectors with their positions already added: as the article notes, this class adds none.

# %%
model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
source = draws.standard_normal((3, 7, 16)).astype(np.float32)
target = draws.standard_normal((3, 5, 16)).astype(np.float32)
x = source
print("encoder input      ", x.shape)
for i, layer in enumerate(model.encoder.layers):
    x = layer(x)
    print(f"encoder layer {i}    ", x.shape)
memory = model.encoder.norm(x)
print("memory (after norm)", memory.shape)
y = target
for i, layer in enumerate(model.decoder.layers):
    y = layer(y, memory)  # every layer reads the same memory: the last encoder output
    print(f"decoder layer {i}    ", y.shape)
y = model.decoder.norm(y)
print("by hand = model:   ", np.abs(y - model(source, target)).max())

# %% [markdown]
# ## Inside one encoder layer
# The article's `_sa_block` and `_ff_block`. With the norm after the sum (post) the output has unit
# variance; with the norm before the sublayer (pre) the sum grows from layer to layer.

# %%
layer = model.encoder.layers[0]
attended, _ = layer.self_attn(source, source, source)
after = layer.norm1(source + attended)
forward = layer.linear2(np.maximum(layer.linear1(after), 0))
print("\nby hand = layer:   ", np.abs(layer.norm2(after + forward) - layer(source)).max())
for norm_first in (False, True):
    layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=True)
    layers, x, spread = nn.TransformerEncoder(layer, 6).eval().layers, source, []
    for part in layers:
        x = part(x)
        spread.append(f"{x.std():.2f}")
    print("pre-norm " if norm_first else "post-norm", "standard deviation by layer:", *spread)

# %% [markdown]
# ## Inside one decoder layer
# The article's `_sa_block`, `_mha_block` and `_ff_block`: three residual steps where the encoder
# has two. Self-attention is causal here; the second takes its queries from the decoder and its keys
# and values from the memory, so its weights have one column for each *source* token.

# %%
layer = model.decoder.layers[0]
attended, _ = layer.self_attn(target, target, target, is_causal=True)
after = layer.norm1(target + attended)
attended, weights = layer.multihead_attn(after, memory, memory)
after = layer.norm2(after + attended)
forward = layer.linear2(np.maximum(layer.linear1(after), 0))
whole = layer(target, memory, tgt_is_causal=True)
print("\nby hand = decoder layer:", np.abs(layer.norm3(after + forward) - whole).max())
print("weights on the memory:  ", weights.shape, "= (batch, target, source)")
changed = target.copy()
changed[:, 3:] += 1  # what comes later
for causal in (True, False):
    moved = layer(changed, memory, tgt_is_causal=causal) - layer(
        target, memory, tgt_is_causal=causal
    )
    print(f"is_causal={causal}: positions 0 to 2 move by {np.abs(moved[:, :3]).max():.2f}")

# %% [markdown]
# ## Gradients flow back through both stacks
# `forward` returns the output and its backward; the decoder's gradient reaches the source.

# %%
out, backward = model.forward(source, target)
dsource, dtarget = backward(np.ones_like(out))
print("\ngradients:", dsource.shape, dtarget.shape)
print("parameters with a gradient:", sum(p.grad is not None for p in model.parameters()),
      "of", len(list(model.parameters())))  # fmt: skip

# %% [markdown]
# ## Masks, drawn
# Every kind that the article lists. `explain_mask` says who may look at whom, and which mask
# forbids the rest. In a bool mask True = not allowed; float masks are added to the scores.

# %%
padding = np.array([[False, False, False, True]])
band = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) > 1
bonus = np.zeros((4, 4))
bonus[:, 0] = 2.0
print("\nno mask\n" + nn.explain_mask(4))
print("\nis_causal\n" + nn.explain_mask(4, is_causal=True))
print("\nattn_mask (bool: neighbours only)\n" + nn.explain_mask(4, attn_mask=band))
print("\nattn_mask (float: key 0 gets +2)\n" + nn.explain_mask(4, attn_mask=bonus))
print("\nkey_padding_mask\n" + nn.explain_mask(4, key_padding_mask=padding))
print("\nvalid_lens\n" + nn.explain_mask(4, valid_lens=np.array([3, 2])))
together = nn.explain_mask(4, is_causal=True, key_padding_mask=padding)
print("\nis_causal and key_padding_mask\n" + together)

# %% [markdown]
# ## What copies share
# `TransformerEncoder(layer, 2)` copies the layer: the copies start equal and share nothing.
# `Transformer` then draws every matrix again (Xavier), so its layers differ: the class does more
# than stack.

# %%
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
first, second = nn.TransformerEncoder(layer, 2).layers
a, b = first.linear1.weight, second.linear1.weight
print("\nstack: equal at first", np.array_equal(a.data, b.data), "| shared", a is b)
a, b = (part.linear1.weight for part in model.encoder.layers)
print("Transformer: equal at first", np.array_equal(a.data, b.data), "| shared", a is b)

# %% [markdown]
# ## Why `[0]`?
# Multi-head attention returns two things, the output and the weights. The blocks want the first;
# with need_weights=False the second is None and need not be computed.

# %%
mha = nn.MultiheadAttention(16, 4, batch_first=True).eval()
for options in ({}, {"average_attn_weights": False}, {"need_weights": False}):
    out, weights = mha(source, source, source, **options)
    print(options, "→", out.shape, None if weights is None else weights.shape)
