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
# each token on its way back: a product of as many matrices as there are tokens between. Attention
# reaches every token in one step. The gradient that arrives at a token says how much the last
# output can learn from it.
#
# One initialisation would show one initialisation. So the recurrence is drawn in four ways, next to
# an LSTM, also by hand, whose cell passes a gradient on through its forget gate f alone.

# %%
width, length, distances = 64, 256, (10, 100, 200)
seeds = (0, 1)


def sigmoid(a):
    """Return 1 / (1 + exp(-a))."""
    return 0.5 * (1 + np.tanh(0.5 * a))


def recurrent(tokens, w_x, w_h):
    """Return the last y of y_i = tanh(x_i W_x + y_{i-1} W_h), and its backward."""
    ys, y = [], np.zeros(width)
    for x in tokens:
        y = np.tanh(x @ w_x + y @ w_h)
        ys.append(y)

    def backward(dlast):
        dx, dy = [], dlast
        for y in ys[::-1]:
            da = dy * (1 - y**2)
            dx.append(da @ w_x.T)
            dy = da @ w_h.T
        return np.array(dx[::-1])

    return y, backward


def lstm(tokens, w_x, w_h, bias):
    """Return the last y of an LSTM, whose cell is c = f c + i g, and its backward."""
    steps, y, c = [], np.zeros(width), np.zeros(width)
    for x in tokens:
        i, f, o, g = np.split(x @ w_x + y @ w_h, 4)
        i, f, o, g = sigmoid(i), sigmoid(f + bias), sigmoid(o), np.tanh(g)
        before, c = c, f * c + i * g
        y = o * np.tanh(c)
        steps.append((i, f, o, g, before, np.tanh(c)))

    def backward(dlast):
        dx, dy, dc = [], dlast, np.zeros(width)
        for i, f, o, g, before, t in steps[::-1]:
            dc = dc + dy * o * (1 - t**2)
            di, df, do = dc * g * i * (1 - i), dc * before * f * (1 - f), dy * t * o * (1 - o)
            da = np.concatenate([di, df, do, dc * i * (1 - g**2)])
            dx.append(da @ w_x.T)
            dy, dc = da @ w_h.T, dc * f
        return np.array(dx[::-1])

    return y, backward


def attended(tokens, w_q, w_k, w_v):
    """Return the last output of self-attention, and its backward."""
    out, saved = ops.attention(tokens @ w_q, tokens @ w_k, tokens @ w_v)

    def backward(dlast):
        dout = np.zeros_like(out)
        dout[-1] = dlast
        dq, dk, dv = ops.attention_backward(dout, saved)
        return dq @ w_q.T + dk @ w_k.T + dv @ w_v.T

    return out[-1], backward


def readers(draws):
    """Return ways to read 256 tokens, by name: a function and its arguments."""
    tokens = draws.standard_normal((length, width))
    w_x, w_h, *w_qkv = draws.standard_normal((5, width, width)) / np.sqrt(width)
    w_4x, w_4h = draws.standard_normal((2, width, 4 * width)) / np.sqrt(width)
    turn, _ = np.linalg.qr(w_h)
    return {
        "recurrent: inputs × 1, W_h normal": (recurrent, tokens, w_x, w_h),
        "recurrent: × 0.1, orthogonal / 2": (recurrent, 0.1 * tokens, w_x, 0.5 * turn),
        "recurrent: × 0.03, orthogonal": (recurrent, 0.03 * tokens, w_x, turn),
        "recurrent: × 0.1, normal × 1.5": (recurrent, 0.1 * tokens, w_x, 1.5 * w_h),
        "LSTM: forget bias 0": (lstm, tokens, w_4x, w_4h, 0.0),
        "LSTM: forget bias 3": (lstm, tokens, w_4x, w_4h, 3.0),
        "attention: inputs × 1": (attended, tokens, *w_qkv),
        "attention: inputs × 0.03": (attended, 0.03 * tokens, *w_qkv),
    }


direction, dlast = draws.standard_normal((length, width)), draws.standard_normal(width)
for read, tokens, *w in (
    readers(draws)[name] for name in ("recurrent: inputs × 1, W_h normal", "LSTM: forget bias 3")
):
    by_hand = float((read(tokens, *w)[1](dlast) * direction).sum())
    ends = [read(tokens + h * direction, *w)[0] @ dlast for h in (1e-5, -1e-5)]
    print(
        f"{read.__name__} dx: by hand {by_hand:+.6f}, differences {(ends[0] - ends[1]) / 2e-5:+.6f}"
    )

print("\ngradient of a token, untrained; seeds 0 and 1, each at a distance of 10, 100, 200")
for name in readers(draws):
    found = []
    for seed in seeds:
        read, tokens, *w = readers(np.random.default_rng(seed))[name]
        dx = read(tokens, *w)[1](dlast)
        found += [f"{np.linalg.norm(dx[length - 1 - distance]):<8.0e}" for distance in distances]
    print(f"{name:<34}", *found)

print("\ntokens   steps: rnn   attention    seconds on this machine: rnn, attention")
for length in (64, 256, 1024):
    spent = []
    for name in ("recurrent: inputs × 1, W_h normal", "attention: inputs × 1"):
        read, tokens, *w = readers(draws)[name]
        began = perf_counter()
        read(tokens, *w)
        spent.append(perf_counter() - began)
    print(f"{length:<8} {length:<12} 1            {spent[0]:.4f} {spent[1]:.4f}")

# %% [markdown]
# So "it forgets" is not a law. A product of n factors fades where they are smaller than 1 (a
# saturated tanh, a small W_h), grows where they are larger, and arrives where each is near 1: with
# small inputs and an orthogonal W_h a recurrence passes more at a distance of 100 than attention.
# That takes care, and training moves it. The LSTM's gate makes the factor easy to learn: with its
# bias at 3, f is near 0.95 and what arrives depends little on the distance; with its bias at 0, f
# is near 0.5 and an LSTM forgets as the first recurrence does. Attention has no such product, so
# no such care: whatever the inputs' size, distance 200 gets about what distance 10 gets.
#
# "Faster" needs a word more. Attention has one step where recurrence has n, which many processors
# use; but it computes n² scores, and one processor feels that in long texts. And all this is about
# reading. Writing goes token by token with either: `pellucid explain generation`.

# %% [markdown]
# ## The same by depth: why x + f(x), and why a norm
# The article compares the residual connection with the cell that was added to an RNN, so that it
# forgets less. The same measurement, by layers instead of tokens: feed-forward networks f, one
# after another, with their backward by hand. Again a product, and again one initialisation would
# mislead: so f is taken at He's size for ReLU, at half of it and at twice.


# %%
def arriving(depth, way, size, seed):
    """Return how much of a gradient passes feed-forward layers, 1.0 being all of it."""
    own = np.random.default_rng(seed)
    x, layers = own.standard_normal((16, 64)), []
    for _ in range(depth):
        w1 = own.standard_normal((256, 64)) * np.sqrt(2 / 64)  # He
        w2 = own.standard_normal((256, 64)) * np.sqrt(1 / 256) * size
        hidden, saved = np.maximum(x @ w1.T, 0), None
        x = (way != "f(x)") * x + hidden @ w2
        if way == "LayerNorm(x + f(x))":
            x, saved = ops.layer_norm(x)
        layers.append((w1, w2, hidden, saved))
    first = dy = own.standard_normal(x.shape)
    for w1, w2, hidden, saved in layers[::-1]:
        if saved is not None:
            dy, _, _ = ops.layer_norm_backward(dy, saved)
        dy = (way != "f(x)") * dy + ((dy @ w2.T) * (hidden > 0)) @ w1
    return np.linalg.norm(dy) / np.linalg.norm(first)


print("\ngradient that arrives at x; seeds 1 and 2, each after 6 and 24 layers")
for way in ("f(x)", "x + f(x)", "LayerNorm(x + f(x))"):
    for size in (0.5, 1.0, 2.0):
        found = [f"{arriving(n, way, size, s):<8.0e}" for s in (1, 2) for n in (6, 24)]
        print(f"{way:<20} f × {size:<6}", *found)

# %% [markdown]
# In f(x) all depends on the size: half of it and nothing arrives, twice and it explodes, and He's
# initialisation is the one in between that fits. (Xavier's halves the variance under ReLU, so it
# behaves as the half does.) In x + f(x) nothing fades, whatever the size, since the gradient also
# goes past each layer. But it grows with depth, beyond 1e+08 for the largest f. Add & Norm
# together, the layer of the article, keep it near 1 in every case: that is what the two are for.

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
