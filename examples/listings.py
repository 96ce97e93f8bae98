"""The articles' own code and formulas, run next to Pellucid: number by number, listing by listing.

The loop of article 001 and the class of article 004 are quoted, with thanks to their authors; only
line breaks and indentation are restored. Article 000's code is not in its text, and article 002
prints torch's: their formulas and the order of the steps are run. What does not agree as printed is
run again with the correction of docs/articles.md.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import numpy as np
from rich.cells import set_cell_size

from lesson import ARTICLE_003, EPOCHS_003, prediction_interval, stored_runs
from pellucid import nn, ops
from pellucid.system.language import Text, language_of

Array = np.ndarray
LANGUAGE = language_of()
DRAWS = np.random.default_rng(0)
results: list[tuple[str, bool]] = []
"""(article, whether it agrees as printed) of every line so far."""


def line(article: str, about: Text | str, printed: str, ours: str, agrees: bool) -> None:
    """Print one comparison and count it, unless it is a corrected one: those are indented."""
    text = about if isinstance(about, str) else about.to(LANGUAGE)
    if not text.startswith(" "):
        results.append((article, agrees))
    words = Text("yes", "일치") if agrees else Text("NO", "다름")
    cells = (words.to(LANGUAGE), 4), (text, 56), (printed, 22)
    print(*(set_cell_size(content, width) for content, width in cells), ours)


def same(article: str, about: Text | str, printed: Array, ours: Array) -> None:
    """Print how far two arrays are apart; they agree to rounding."""
    apart = float(np.abs(np.asarray(printed) - ours).max())
    line(article, about, "", f"{apart:.1e}", apart < 1e-9)


def off(guess: Array, right: Array) -> str:
    """Return the relative error of a whole array."""
    return f"{np.linalg.norm(guess - right) / np.linalg.norm(right):.0%}"


def heading(number: str) -> None:
    """Print an article's heading."""
    columns = Text(
        "agrees · what · as printed · ours, or the largest difference",
        "일치 여부 · 내용 · 글의 값 · Pellucid의 값 또는 최대 차이",
    )
    print(f"\n{Text('Article', '글').to(LANGUAGE)} {number}: {columns.to(LANGUAGE)}")


def of(number: str, code: str, name: str, **known: Any) -> Any:
    """Run a listing of an article and return what it defines as `name`."""
    names: dict[str, Any] = {"np": np, **known}
    exec(compile(textwrap.dedent(code), f"article {number}", "exec", dont_inherit=True), names)
    return names[name]


# Article 000: its formulas ------------------------------------------------------------------------

heading("000")
q, k, v, dz = DRAWS.standard_normal((4, 8, 32))
a = q @ k.T / np.sqrt(32)
w = np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True)
out, saved = ops.attention(q, k, v)
dq, dk, dv = ops.attention_backward(dz, saved)
same("000", "Z = softmax(QKᵀ/√d_k) V", w @ v, out)
same("000", "dV = Wᵀ dZ", w.T @ dz, dv)
dw = dz @ v.T
da = w * (dw - (dw * w).sum(axis=-1, keepdims=True))
line(
    "000",
    Text(
        '∂W/∂A = W(1 − W): "not the real one", it says',
        "∂W/∂A = W(1 − W): 실제 계산이 아니라고 밝힘",
    ),
    "W(1 − W)",
    off(dw * w * (1 - w), da),
    agrees=False,
)
try:
    dz @ (w * (1 - w)) @ k / np.sqrt(32)
    fits = "fits"
except ValueError:
    fits = "(8, 32) · (8, 8)"
line(
    "000",
    Text("dQ = dZ · W(1 − W) · K/√d_k: shapes", "dQ = dZ · W(1 − W) · K/√d_k의 모양"),
    fits,
    "dA K/√d_k",
    fits == "fits",
)
same(
    "000",
    Text("  with Vᵀ and the whole derivative", "  Vᵀ와 미분 전체를 쓰면"),
    da @ k / np.sqrt(32),
    dq,
)
products = DRAWS.standard_normal((2, 100_000, 64)).prod(axis=0).sum(axis=-1)
line(
    "000",
    Text("Var[q·k] = d_k; over √d_k", "Var[q·k] = d_k, √d_k로 나누면"),
    "64 → 1",
    f"{products.var():.1f} → {products.var() / 64:.3f}",
    abs(products.var() - 64) < 1,
)

x, dy, gain = DRAWS.standard_normal((5, 16)), DRAWS.standard_normal((5, 16)), np.ones(16)
mu, s2 = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True) + 1e-5
y, saved = ops.layer_norm(x)
same("000", Text("LayerNorm, forward", "LayerNorm 순전파"), (x - mu) / np.sqrt(s2) * gain, y)
dx = ops.layer_norm_backward(dy, saved)[0]


def layer_norm_dx(total: Any) -> Array:
    """Return the article's dx with dy ⊙ γ for ∂L/∂x̂; `total` is the sum that it leaves out."""
    dvar = total(dy * -0.5 * (x - mu) * s2**-1.5)
    dmu = total(dy * -1 / np.sqrt(s2)) + total(dvar * -2 / 16 * (x - mu))
    full: Array = dy / np.sqrt(s2) + dvar * 2 / 16 * (x - mu) + dmu / 16
    return full


line(
    "000",
    Text("LayerNorm, backward", "LayerNorm 역전파"),
    Text("without sums", "합이 없음").to(LANGUAGE),
    off(layer_norm_dx(lambda part: part), dx),
    agrees=False,
)
repaired = layer_norm_dx(lambda part: part.sum(axis=-1, keepdims=True))
same("000", Text("  with both sums", "  두 합을 넣으면"), repaired, dx)
t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
gelu, saved = ops.gelu(x, "tanh")
same("000", Text("GELU, the tanh form", "GELU, tanh 근사"), 0.5 * x * (1 + t), gelu)
slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 0.044715 * 3 * x**2)
same("000", Text("GELU, backward", "GELU 역전파"), slope, ops.gelu_backward(np.ones_like(x), saved))

# Article 001: the double loop ---------------------------------------------------------------------

LOOP = """\
score = [[0] * n for _ in range(n)]

for i in range(n):
\t# x_i가 query일 때,
\tfor j in range(n):
    \t# x_j가 key일 때,
    \tscore[i][j] = score(x[i], x[j])
"""

heading("001")
w_q, w_k = DRAWS.standard_normal((2, 16, 8))
product = (x @ w_q) @ (x @ w_k).T
known = {"n": 5, "x": x, "score": lambda one, other: (one @ w_q) @ (other @ w_k)}
try:
    of("001", LOOP, "score", **known)
    raised = ""
except TabError as error:
    raised = type(error).__name__
line(
    "001",
    Text("the double loop, as printed", "이중 반복문, 적힌 그대로"),
    raised,
    Text("mixed tabs and spaces", "탭과 공백이 섞임").to(LANGUAGE),
    not raised,
)
spaced = LOOP.replace("    \t", "\t\t")
try:
    of("001", spaced, "score", **known)
    raised = ""
except TypeError as error:
    raised = type(error).__name__
line(
    "001",
    Text("  with its indentation restored", "  들여쓰기를 고치면"),
    raised,
    Text("score is a list by then", "score가 이미 리스트").to(LANGUAGE),
    not raised,
)
renamed = spaced.replace("score = [[0]", "scores = [[0]").replace("score[i][j]", "scores[i][j]")
same(
    "001",
    Text("  with the list renamed: = (QKᵀ)_ij", "  리스트의 이름을 바꾸면: = (QKᵀ)_ij"),
    of("001", renamed, "scores", **known),
    product,
)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dtype=np.float64).eval()
z = layer.norm1(x + layer.self_attn(x, x, x)[0])
ffn = layer.linear2(np.maximum(layer.linear1(z), 0))
same("001", "z = LN(x + MHA(x)), y = LN(z + FFN(z))", layer.norm2(z + ffn), layer(x))

# Article 002: what the methods of torch do, in their order ----------------------------------------

DEFAULTS = """
d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6, dim_feedforward = 2048,
dropout = 0.1, custom_encoder = None, custom_decoder = None, layer_norm_eps = 1e-05,
batch_first = False, norm_first = False
"""


def in_order(layer: Any, x: Array, memory: Array | None = None, **masks: Any) -> Array:
    """Compute a layer as the article lists torch's: attention, attention to memory, network.

    Each step has a residual sum and a norm, before the step if `norm_first`, else after the sum.
    """

    def network(x: Array) -> Array:
        return layer.linear2(np.maximum(layer.linear1(x), 0))

    own = (
        {"attn_mask": masks.get("tgt_mask")}
        if memory is not None
        else {"key_padding_mask": masks.get("src_key_padding_mask")}
    )
    steps = [lambda x: layer.self_attn(x, x, x, need_weights=False, **own)[0], network]
    if memory is not None:
        padded = masks["memory_key_padding_mask"]
        steps.insert(
            1,
            lambda x: layer.multihead_attn(
                x, memory, memory, need_weights=False, key_padding_mask=padded
            )[0],
        )
    for number, step in enumerate(steps, start=1):
        norm = getattr(layer, f"norm{number}")
        x = x + step(norm(x)) if layer.norm_first else norm(x + step(x))
    return x


heading("002")
source, target = DRAWS.standard_normal((3, 7, 16)), DRAWS.standard_normal((3, 5, 16))
padding = np.arange(7) >= np.array([7, 5, 3])[:, None]
causal = np.triu(np.ones((5, 5), bool), 1)
for norm_first in (False, True):
    model = nn.Transformer(
        16, 4, 2, 2, 32, batch_first=True, norm_first=norm_first, dtype=np.float64
    ).eval()
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    order = f"norm_first={norm_first}"
    same(
        "002",
        f"TransformerEncoderLayer.forward, {order}",
        in_order(encoder, source, src_key_padding_mask=padding),
        encoder(source, src_key_padding_mask=padding),
    )
    masks: dict[str, Any] = {"tgt_mask": causal, "memory_key_padding_mask": padding}
    same(
        "002",
        f"TransformerDecoderLayer.forward, {order}",
        in_order(decoder, target, source, **masks),
        decoder(target, source, **masks),
    )
masks = {"tgt_mask": causal, "memory_key_padding_mask": padding}
memory = model.encoder(source, src_key_padding_mask=padding)
same(
    "002",
    Text("Transformer.forward, with masks", "Transformer.forward, 마스크 포함"),
    model.decoder(target, memory, **masks),
    model(source, target, src_key_padding_mask=padding, **masks),
)
parameters = inspect.signature(nn.Transformer).parameters
for default in DEFAULTS.replace("\n", " ").strip().split(", "):
    name, value = default.split(" = ")
    ours = str(parameters[name].default)
    line(
        "002",
        f"Transformer(…, {name})",
        value,
        ours,
        value == ours,
    )

# Article 003: its examples and its table ----------------------------------------------------------

heading("003")


def softmax(scores: list[float], dtype: type = np.float64) -> Array:
    """Return the weights of one row of scores."""
    weights: Array = ops.softmax(np.array(scores, dtype))[0]
    return weights


big = 1e10
for dtype in (np.float64, np.float32):
    one, other = softmax([1, 2, 3], dtype), softmax([1 + big, 2 + big, 3 + big], dtype)
    line(
        "003",
        f"softmax([1, 2, 3]) = softmax([1+1e10, …]), {dtype.__name__}",
        str(one.round(3)),
        str(other.round(3)),
        np.allclose(one, other),
    )
same(
    "003",
    "softmax([1, 1+1e10, 1]) = softmax([1-1e10, 1, 1-1e10])",
    softmax([1, 1 + big, 1]),
    softmax([1 - big, 1, 1 - big]),
)
weights, saved = ops.softmax(np.array([0.3, -1.0, 0.5]))
first = ops.softmax_backward(np.eye(3)[0], saved)[0]
same("003", "∂a/∂z₁ = a(1 − a)", weights[0] * (1 - weights[0]), first)
whole = nn.Transformer(256, 8, 3, 3, 512)
count = sum(p.data.size for p in whole.parameters()) - 4 * 256  # its model has no final norms
count += 2 * (10194 + 50) * 256 + 10194 * 256 + 10194  # tables of tokens and positions, output
line("003", "# of trainable parameters", "11,818,450", f"{count:,}", count == 11818450)

runs = stored_runs("-003")
for variant, figures in ARTICLE_003.items() if runs else ():
    curves = np.array([run["curve"]["train"] for run in runs if run["change"] == variant])
    for epoch, figure in zip(EPOCHS_003, figures, strict=True):
        low, high = prediction_interval(curves[:, epoch - 1])
        line(
            "003",
            Text(
                f"{variant}, epoch {epoch}, 95 % of new runs",
                f"{variant}, 에폭 {epoch}, 새 실행의 95 %",
            ),
            f"{figure:.3f}",
            f"{low:.3f} … {high:.3f}",
            low <= figure <= high,
        )

# Article 004: its class ---------------------------------------------------------------------------

CLASS = """
class MultiHeadAttention:
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        self.num_heads = num_heads
        self.num_hiddens = num_hiddens
        self.d_k = self.d_v = num_hiddens//num_heads
        self.W_q = np.random.rand(num_hiddens, num_hiddens)
        self.W_k = np.random.rand(num_hiddens, num_hiddens)
        self.W_v = np.random.rand(num_hiddens, num_hiddens)
        self.W_o = np.random.rand(num_hiddens, num_hiddens)
        if bias:
            self.b_q = np.random.rand(num_hiddens)
            self.b_k = np.random.rand(num_hiddens)
            self.b_v = np.random.rand(num_hiddens)
            self.b_o = np.random.rand(num_hiddens)
        else:
            self.b_q = self.b_k = self.b_v = self.b_o = np.zeros(num_hiddens)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        X = X.transpose(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
        X = X.transpose(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def scaled_dot_product_attention(self, Q, K, V, valid_lens):
        d_k = Q.shape[-1]
        scores = np.matmul(Q, K.transpose(0, 2, 1)) / np.sqrt(d_k)
        if valid_lens is not None:
            mask = np.arange(scores.shape[-1]) < valid_lens[:, None]
            scores = np.where(mask[:, None, :], scores, -np.inf)
        attention_weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        attention_weights /= attention_weights.sum(axis=-1, keepdims=True)
        return np.matmul(attention_weights, V)

    def forward(self, queries, keys, values, valid_lens):
        queries = self.transpose_qkv(np.dot(queries, self.W_q) + self.b_q)
        keys = self.transpose_qkv(np.dot(keys, self.W_k) + self.b_k)
        values = self.transpose_qkv(np.dot(values, self.W_v) + self.b_v)
        if valid_lens is not None:
            valid_lens = np.repeat(valid_lens, self.num_heads, axis=0)
        output = self.scaled_dot_product_attention(queries, keys, values, valid_lens)
        output_concat = self.transpose_output(output)
        return np.dot(output_concat, self.W_o) + self.b_o
"""

heading("004")
np.random.seed(0)  # noqa: NPY002 (the class draws from the global state)
num_hiddens, num_heads = 100, 5
attention = of("004", CLASS, "MultiHeadAttention")(num_hiddens, num_heads, dropout=0.5, bias=False)
valid_lens = np.array([3, 2])
X, Y = DRAWS.random((2, 4, num_hiddens)), DRAWS.random((2, 6, num_hiddens))
output = attention.forward(X, Y, Y, valid_lens)
line(
    "004",
    Text("the class test: Output shape", "클래스 테스트: Output shape"),
    "(2, 4, 100)",
    str(output.shape),
    output.shape == (2, 4, 100),
)
heads = attention.transpose_qkv(X)
line(
    "004", "transpose_qkv: (B h, T, d)", "(10, 4, 20)", str(heads.shape), heads.shape == (10, 4, 20)
)
split = X.reshape(2, 4, 5, 20)
walk = (X, split, split.transpose(0, 2, 1, 3), heads)
print(" " * 5 + Text("line by line:", "한 줄씩:").to(LANGUAGE), *(part.shape for part in walk))
same(
    "004",
    Text("transpose_output undoes transpose_qkv", "transpose_output은 transpose_qkv의 역"),
    attention.transpose_output(heads),
    X,
)
mask = nn.valid_lens_mask(valid_lens, 6)
for bias in (False, True):
    ours_mha = nn.MultiheadAttention(
        num_hiddens, num_heads, bias=bias, batch_first=True, dtype=np.float64
    ).eval()
    attention = of("004", CLASS, "MultiHeadAttention")(num_hiddens, num_heads, bias=bias)
    state = ours_mha.state_dict()
    for letter, part in zip("qkv", np.split(state["in_proj_weight"], 3), strict=True):
        setattr(attention, f"W_{letter}", part.T)
    attention.W_o = state["out_proj.weight"].T
    if bias:
        attention.b_q, attention.b_k, attention.b_v = np.split(state["in_proj_bias"] + 0.1, 3)
        attention.b_o = state["out_proj.bias"] + 0.2
        state |= {"in_proj_bias": state["in_proj_bias"] + 0.1, "out_proj.bias": attention.b_o}
        ours_mha.load_state_dict(state)
    same(
        "004",
        Text(
            f"the class with our weights, bias={bias}", f"클래스에 Pellucid의 가중치, bias={bias}"
        ),
        attention.forward(X, Y, Y, valid_lens),
        ours_mha(X, Y, Y, mask)[0],
    )
examples = [b for head in heads for b in (0, 1) if np.isin(head, X[b]).all()]
same(
    "004",
    Text("np.repeat gives each head its example's length", "np.repeat: 헤드마다 자기 예시의 길이"),
    np.repeat(valid_lens, 5),
    valid_lens[examples],
)
right, by_tile = (
    attention.transpose_output(attention.scaled_dot_product_attention(heads, heads, heads, lengths))
    for lengths in (np.repeat(valid_lens, 5), np.tile(valid_lens, 5))
)
line("004", Text("  with np.tile", "  np.tile이라면"), "", off(by_tile, right), agrees=False)
row = np.array([0.5, 0.3, 0.2])
line(
    "004",
    Text("softmax as printed, without exp below: its sum", "분모에 exp가 없는 softmax의 합"),
    f"{(np.exp(row) / row.sum()).sum():.2f}",
    f"{ops.softmax(row)[0].sum():.2f}",
    agrees=False,
)
with np.errstate(invalid="ignore"):
    empty = attention.forward(X, Y, Y, np.array([0, 2]))[0]
ours_empty = ours_mha(X, Y, Y, nn.valid_lens_mask(np.array([0, 2]), 6))[0][0]
line(
    "004",
    Text("no valid key: NaN?", "유효한 키가 없을 때 NaN인가"),
    str(bool(np.isnan(empty).any())),
    str(bool(np.isnan(ours_empty).any())),
    agrees=False,
)

print()
for article in ("000", "001", "002", "003", "004"):
    found = [agrees for number, agrees in results if number == article]
    print(
        Text(
            f"Article {article}: {sum(found)} of {len(found)} agree as printed",
            f"글 {article}: {len(found)}개 가운데 {sum(found)}개가 적힌 그대로 일치",
        ).to(LANGUAGE)
    )
