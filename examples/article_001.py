# %% [markdown]
# # Article 001: from looking things up to attention
#
# A search that returns one row, then attention, which returns a mixture of all rows. Then the score
# map of a Korean sentence, a mask, positions, and what the heads of a trained model do.
# From "Attention과 Transformer 이해하기", with thanks to its author.

# %%
"""Article 001: retrieval, attention, score maps, masks, positions and heads."""

from time import perf_counter

import numpy as np

from lesson import TASKS, Lesson, known_answers, score_map
from pellucid import nn, ops
from pellucid.apps.teach import pictures
from pellucid.apps.view import attention

lesson = Lesson(__doc__)
draws = np.random.default_rng(0)

# %% [markdown]
# ## Recurrence: one token after another
# Before attention: y_i = tanh(x_i W_x + y_{i−1} W_h), with its backward by hand. Every step waits
# for the one before, and the gradient of the last output passes through one W_h and one tanh for
# each token on its way back. Attention reaches every token in one step. The gradient that arrives
# at a token says how much the last output can learn from it.

# %%
width, length = 64, 256
w_x, w_h, *w_qkv = draws.standard_normal((5, width, width)) / np.sqrt(width)


def recurrent(tokens):
    """Return y_i = tanh(x_i W_x + y_{i-1} W_h) for every token."""
    outputs, y = [], np.zeros(width)
    for token in tokens:
        y = np.tanh(token @ w_x + y @ w_h)
        outputs.append(y)
    return np.array(outputs)


def recurrent_backward(dlast, outputs):
    """Return the gradient of every token, given that of the last output."""
    dx, dy = [], dlast
    for y in outputs[::-1]:
        da = dy * (1 - y**2)
        dx.append(da @ w_x.T)
        dy = da @ w_h.T
    return np.array(dx[::-1])


tokens, dlast = draws.standard_normal((length, width)), draws.standard_normal(width)
dx = {"rnn": recurrent_backward(dlast, recurrent(tokens))}
direction = draws.standard_normal(tokens.shape)
ends = [recurrent(tokens + h * direction)[-1] for h in (1e-5, -1e-5)]
by_differences = float((ends[0] - ends[1]) @ dlast / 2e-5)
print(
    f"recurrent dx: by hand {(dx['rnn'] * direction).sum():+.6f}, differences {by_differences:+.6f}"
)

out, saved = ops.attention(*(tokens @ w for w in w_qkv))
dout = np.zeros_like(out)
dout[-1] = dlast
grads = ops.attention_backward(dout, saved)
dx["attention"] = sum(grad @ w.T for grad, w in zip(grads, w_qkv, strict=True))
print("\ndistance   recurrent  attention   (gradient of a token, untrained)")
for distance in (1, 10, 50, 100, 200):
    near = slice(length - 1 - distance, length - distance)
    sizes = [np.linalg.norm(gradient[near]) for gradient in dx.values()]
    print(f"{distance:<10} {sizes[0]:<10.1e} {sizes[1]:.1e}")
print("\ntokens   steps: rnn   attention    seconds on this machine: rnn, attention")
for length in (64, 256, 1024):
    tokens, spent = draws.standard_normal((length, width)), []
    for run in (recurrent, lambda x: ops.attention(*(x @ w for w in w_qkv))):
        began = perf_counter()
        run(tokens)
        spent.append(perf_counter() - began)
    print(f"{length:<8} {length:<12} 1            {spent[0]:.4f} {spent[1]:.4f}")

# %% [markdown]
# So the article is right about forgetting: at a distance of 100 nothing arrives through this
# recurrence (an LSTM's cell loses less). "Faster" needs a word more. Attention has one step where
# recurrence has n, which many processors use; but it computes n² scores, and one processor feels
# that in long texts. And all this is about reading. Writing goes token by token with either:
# `pellucid explain generation`.

# %% [markdown]
# ## The same by depth: why x + f(x)
# The article compares the residual connection with the cell that was added to an RNN, so that it
# forgets less. The same measurement, by layers instead of tokens: feed-forward networks f, one
# after another, with their backward by hand. In f(x) the gradient passes every matrix; in x + f(x)
# it also goes past each. That it grows with depth is one more reason for a norm.


# %%
def arriving(depth, residual):
    """Return how much of a gradient passes feed-forward layers, 1.0 being all of it."""
    own = np.random.default_rng(1)
    x, layers = own.standard_normal((16, 64)), []
    for _ in range(depth):
        w1, w2 = own.standard_normal((2, 256, 64)) / np.sqrt(160)  # Xavier
        hidden = np.maximum(x @ w1.T, 0)
        layers.append((w1, w2, hidden))
        x = residual * x + hidden @ w2
    first = dy = own.standard_normal(x.shape)
    for w1, w2, hidden in layers[::-1]:
        dy = residual * dy + ((dy @ w2.T) * (hidden > 0)) @ w1
    return np.linalg.norm(dy) / np.linalg.norm(first)


print("\nlayers   f(x)       x + f(x)   (gradient that arrives at x)")
for depth in (1, 6, 12, 24):
    print(f"{depth:<8} {arriving(depth, 0):<10.1e} {arriving(depth, 1):.1e}")

# %% [markdown]
# ## Looking up: one query, one answer
# The article's database of videos. A title is described by what it is about; the query "dog videos"
# is compared with every title, and the best one's address is returned.

# %%
topics = ("dog", "travel", "video")
titles = {
    "My dog is happy!": ([1.0, 0.0, 0.2], "www.youtube.com/my_dog_is_happy"),
    "VLOG in Zürich": ([0.0, 1.0, 0.8], "www.youtube.com/VLOG_in_zurich"),
}
query = np.array([1.0, 0.0, 0.5])  # "dog videos"
keys = np.array([about for about, _ in titles.values()])
scores = keys @ query
best = list(titles)[int(scores.argmax())]
print("scores", dict(zip(titles, scores.round(2).tolist(), strict=True)))
print("hard lookup returns", titles[best][1])

# %% [markdown]
# ## Attention: the same, but soft
# Softmax turns scores into weights. The larger the scores, the nearer to the hard lookup: attention
# with scores × 20 returns the one row. Unlike the lookup it has a derivative.

# %%
values = np.eye(2)  # row i means: the address of title i
for sharpness in (1.0, 5.0, 20.0):
    mixed, _ = ops.attention(query[None], keys, values, scale=sharpness)
    print(f"scores × {sharpness:<4}: {mixed[0].round(3)} of (dog, Zürich)")

# %% [markdown]
# ## The double loop and the matrix
# The article first scores every pair in two loops, then as `Q Kᵀ`. They are the same numbers.

# %%
x, w_q, w_k = draws.standard_normal((6, 8)), *draws.standard_normal((2, 8, 8))
score = [[0.0] * 6 for _ in range(6)]
for i in range(6):  # x_i is the query
    for j in range(6):  # x_j is the key
        score[i][j] = float((x[i] @ w_q) @ (x[j] @ w_k))
as_product = (x @ w_q) @ (x @ w_k).T
print(f"\nlargest difference of loop and product: {np.abs(score - as_product).max():.1e}")

# %% [markdown]
# ## A mask, filled in
# The decoder's query l may see keys 0 to l. Forbidden scores become −inf, so their weight is 0.

# %%
print("\n" + nn.explain_mask(4, is_causal=True))
weights, _ = ops.softmax(np.where(ops.causal_mask(4, 4), -np.inf, as_product[:4, :4] / np.sqrt(8)))
print(weights.round(2))

# %% [markdown]
# ## Positions
# The article promises positional encoding for later. The table of sines and cosines has one useful
# property: moving by k positions is the same rotation everywhere, so the product of two positions
# depends on their distance only. `pellucid explain positions` derives it.

# %%
table = ops.sinusoidal(60, 64)
for start in (0, 20, 40):
    print(f"P[{start}]·P[{start + 5}] = {table[start] @ table[start + 5]:.6f}")
lesson.show("positions", pictures.positions)

# %% [markdown]
# ## The score map of a sentence
# A trained chatbot reads a Korean sentence. A row is a query; its dark cells are the keys that it
# takes most from. One head of the encoder, and one that connects the answer to the question.

# %%
chatbot = lesson.chatbot()
record = attention(chatbot, "너는 자랑하고 있어").record
print("\n" + record.title)
names = {"encoder": "self-attention of the encoder", "cross": "cross-attention"}
for kind in names:
    seen = record.layers(kind)[-1]
    head = int(seen.entropies.argmin())
    labels = ([t.text for t in record.queries(kind)], [t.text for t in record.keys(kind)])
    title = f"{names[kind]}, layer {seen.layer}, head {head + 1}"
    lesson.show(f"scores-{kind}", score_map, seen.probabilities[head], *labels, title)
    for row, label in zip(seen.probabilities[head], labels[0], strict=True):
        most = labels[1][int(row.argmax())]
        print(f"  {kind:<8} {label:<8} looks most at {most} ({row.max():.2f})")

# %% [markdown]
# ## What heads specialise in
# Heads differ because each has its own W. Three numbers for each head of self-attention, over
# several sentences: how many keys it spreads over (e to the entropy), and how much weight goes to
# the token itself and to the one before it. A head that looks at all keys alike would give each
# 1 / keys, here about 0.3.

# %%
sentences = ("너는 자랑하고 있어", "가십을 말해줘.", "AI가 뭐지?", "주식 시장", "너는 최악이야")
records = [attention(chatbot, sentence).record for sentence in sentences]
print(f"\n{'layer':<28} head  keys spread over  itself  token before")
for index, name in enumerate(layer.name for layer in records[0].maps):
    if name.endswith("multihead_attn"):
        continue
    maps = [record.maps[index] for record in records]
    for head in range(maps[0].probabilities.shape[0]):
        grids = [m.probabilities[head] for m in maps]
        spread = np.mean([np.exp(m.entropies[head]) for m in maps])
        itself = np.mean([np.trace(grid) / len(grid) for grid in grids])
        before = np.mean([np.trace(grid, -1) / max(len(grid) - 1, 1) for grid in grids])
        print(f"{name:<28} {head + 1:<5} {spread:<17.1f} {itself:<7.2f} {before:.2f}")

# %% [markdown]
# ## Heads with a known answer
# What should a head look at? In Korean sentences nobody knows. Where the task is to copy, reverse
# or sort letters one does: to write the next one, the model must look at *its* place in the source.
# So each head of cross-attention gets a mark: its mean weight on the right place. A small model
# learns each task in some seconds; nobody tells it where to look. Brackets are the hardest: the
# source is nested as in A B ) ) C ), and the answer, B A C, names what each ) closes.
#
# All four heads find the place, and all four the same one: these tasks need one relation, so the
# heads have nothing to share out. That heads *can* differ is in the table above; that they divide
# synonyms and parts of speech among them, as the article imagines, nothing here shows.

# %%
print("\ntask      right tokens  weight on the right place, heads 1 to 4  if equal")
for task in TASKS:
    right, scores, equal = known_answers(task, lesson.steps)
    shown = "  ".join(f"{score:.2f}" for score in scores)
    print(f"{task:<9} {right:<13.0%} {shown:<38}  {equal:.2f}")
