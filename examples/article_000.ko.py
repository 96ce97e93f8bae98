# %% [markdown]
# # 글 000: 어텐션, LayerNorm, GELU를 손으로
#
# 모든 부분의 순전파와 역전파를 유한 차분과 비교하고, 이어서 글에 나오는 그림을 그립니다.
# "Python으로 Transformer 바닥부터 구현하기[1]"을 따랐습니다. 글쓴이에게 감사드립니다. 자세한
# 설명은 `pellucid explain attention`(또는 `layer_norm`, `gelu`, `softmax`, …)에 있습니다.

# %%
"""글 000: 어텐션, 멀티 헤드 어텐션, LayerNorm, GELU의 순전파와 역전파."""

import numpy as np

import transformer
from lesson import Lesson, scaled_variance, stored_runs
from pellucid import nn, ops
from pellucid.apps.teach import pictures
from pellucid.apps.view import attention

lesson = Lesson(__doc__, "ko")
draws = np.random.default_rng(0)


def difference(f, x, direction, dout, h=1e-5):
    """sum(dout * f(x))의 한 방향 중심 차분을 반환한다."""
    return float((dout * (f(x + h * direction) - f(x - h * direction))).sum() / (2 * h))


def compare(name, gradient, f, x, dout):
    """무작위 방향의 미분을 손으로 구한 값과 차분으로 출력한다."""
    direction = draws.standard_normal(x.shape)
    by_hand, numeric = float((gradient * direction).sum()), difference(f, x, direction, dout)
    print(f"{name:<16} 손으로 {by_hand:+.9f}   차분 {numeric:+.9f}")
    assert np.isclose(by_hand, numeric, rtol=1e-5, atol=1e-8)


# %% [markdown]
# ## 스케일드 닷 프로덕트 어텐션
# `softmax(Q Kᵀ / √d_k) V`. 세 입력 모두의 기울기를 구합니다. 글은 ∂W/∂A = W(1 − W)라고 쓰면서 실제
# 계산은 다르다고 스스로 밝힙니다. 마지막 줄들이 둘의 차이입니다.

# %%
q, k, v = (draws.standard_normal((2, n, 8)) for n in (5, 7, 7))
out, saved = ops.attention(q, k, v)
dout = draws.standard_normal(out.shape)
dq, dk, dv = ops.attention_backward(dout, saved)
compare("attention dQ", dq, lambda x: ops.attention(x, k, v)[0], q, dout)
compare("attention dK", dk, lambda x: ops.attention(q, x, v)[0], k, dout)
compare("attention dV", dv, lambda x: ops.attention(q, k, x)[0], v, dout)

w, softmax_saved = ops.softmax(q @ k.swapaxes(1, 2) / np.sqrt(8))
dw = dout @ v.swapaxes(1, 2)
da = ops.softmax_backward(dw, softmax_saved)
apart = np.linalg.norm(dw * w * (1 - w) - da) / np.linalg.norm(da)
print(f"softmax의 미분 대신 W(1 - W)를 쓰면 오차 {apart:.0%} (키 7개, 무작위 dW)")

# %% [markdown]
# 여기서 dW는 평균이 0인 난수였습니다. 모델에서는 dW 한 행의 원소들에 공통된 부분이 있습니다. 모든
# 값이 손실을 같은 쪽으로 움직이기 때문입니다. 가중치의 합은 언제나 1이므로 softmax는 이 공통 부분을
# 무시하지만, W(1 − W)는 그러지 않습니다. 그래서 실제 오차는 난수로 잰 것보다 큽니다. 먼저 같은 dW에
# 공통 부분을 더해 보고, 이어서 examples/transformer.py의 어텐션 여섯 개를 학습 첫머리에서 잽니다.

# %%
for common in (0, 1, 3):
    guess = (dw + common) * w * (1 - w)
    same = np.allclose(ops.softmax_backward(dw + common, softmax_saved), da)
    apart = np.linalg.norm(guess - da) / np.linalg.norm(da)
    print(f"dW + {common}: dA가 같은가: {same}, W(1 - W)의 오차 {apart:.0%}")


def in_a_model(seed, steps=20):
    """학습 스텝마다 모델의 어텐션에서 W(1 - W)의 오차를 반환한다.

    dW의 행마다 공통 부분을 먼저 뺐을 때의 오차도 함께 반환한다.
    """
    found, plain = [], transformer.softmax

    def watched(a):
        w, backward = plain(a)

        def watched_backward(dw):
            da = backward(dw)
            common = (dw * w).sum(axis=-1, keepdims=True)
            guesses = dw * w * (1 - w), (dw - common) * w * (1 - w)
            found.append([np.linalg.norm(each - da) / np.linalg.norm(da) for each in guesses])
            return da

        return w, watched_backward

    transformer.softmax = watched
    random = np.random.default_rng(seed)
    p = transformer.initial(random)
    m, v = ([np.zeros_like(w) for w in transformer.arrays(p)] for _ in range(2))
    for step in range(1, steps + 1):
        _, g = transformer.loss_and_gradients(p, *transformer.batch(random.integers(1, 10**6, 32)))
        transformer.adam(p, g, m, v, step, 2e-5 * step)
    transformer.softmax = plain
    return np.array(found)


for seed in (0, 1):
    apart, without = in_a_model(seed).T
    print(
        f"모델에서, 시드 {seed}: W(1 - W)의 오차 {apart.min():.0%}에서 {apart.max():.0%}, "
        f"공통 부분을 빼면 {without.min():.0%}에서 {without.max():.0%}"
    )

# %% [markdown]
# ## 멀티 헤드 어텐션
# 셀프 어텐션에서는 글의 설명대로 세 기울기를 더한 것이 하나뿐인 입력의 기울기입니다.

# %%
mha = nn.MultiheadAttention(16, 4, batch_first=True, dtype=np.float64)
x = draws.standard_normal((2, 5, 16))
(y, weights), backward = mha.forward(x, x, x)
dy = draws.standard_normal(y.shape)
compare("multi-head dx", sum(backward(dy)), lambda x: mha(x, x, x)[0], x, dy)
print("가중치", weights.shape, "= (배치, 쿼리, 키), 헤드들의 평균")

# %% [markdown]
# 글은 차원을 맞추는 데 주의하라고 합니다. 헤드로 나누는 것은 *특징*의 모양을 바꾸고 축을 바꾸는
# 일이며, 헤드마다 위치 다섯 개가 모두 있습니다.

# %%
split = x @ mha.in_proj_weight.data[:16].T  # in_proj_weight의 처음 16행이 W_Q
steps = [x, split, split.reshape(2, 5, 4, 4), split.reshape(2, 5, 4, 4).swapaxes(1, 2)]
for name, step in zip(("x", "Q = x W_Qᵀ", "reshape", "transpose"), steps, strict=True):
    print(f"{name:<12}", step.shape)
together = steps[-1].swapaxes(1, 2).reshape(2, 5, 16)
print("축을 되돌려 이어 붙인 것 = Q:", bool((together == split).all()))

# %% [markdown]
# ## 왜, 무엇에 걸쳐 정규화하는가
# 글은 배치마다 데이터의 분포가 다르다고 합니다. 앞 레이어의 출력이 다음 레이어의 입력이므로 그
# 차이는 레이어마다 이어지고, 앞 레이어는 학습하면서 변하기도 합니다. 가중치와 ReLU로 된 레이어
# 여섯 개에 같은 행을 그대로, 그리고 세 배로 키워 넣어 봅니다. 정규화하면 모든 레이어가 같은
# 크기의 입력을 받습니다. (가중치는 ReLU에서 분산을 유지하는 He 초기화라서, 여기서 저절로 작아지는
# 것은 없습니다.)

# %%
own = np.random.default_rng(1)
matrices, row = own.standard_normal((6, 64, 64)) * np.sqrt(2 / 64), own.standard_normal((5, 64))
for name, norm in (("정규화 없음", lambda x: x), ("layer norm", lambda x: ops.layer_norm(x)[0])):
    for size in (1, 3):
        x, spread = size * row, []
        for matrix in matrices:
            x = norm(np.maximum(x @ matrix, 0))
            spread.append(f"{x.std():.2f}")
        print(f"{name:<10} 입력 × {size}: 레이어별 표준편차", *spread)

# %% [markdown]
# 글에 나오는 세 정규화는 어떤 수들이 평균과 분산을 함께 쓰는지가 다릅니다. 토큰 다섯 개짜리 문장
# 셋, 곧 (N, L, E) 배열에서 BatchNorm은 *모든* 토큰의 한 특징을 씁니다. 그래서 한 문장의 출력이
# 옆 문장과 패딩에 따라 달라집니다. GroupNorm은 논문과 torch에서 *한* 문장의 모든 위치에 걸쳐 특징
# 한 그룹을 씁니다. 그래서 옆 문장은 상관없지만 패딩은 상관있습니다. (그룹이 하나뿐이어도 토큰마다
# 따로 정규화하는 트랜스포머의 LayerNorm과는 다릅니다.) LayerNorm은 어느 쪽에도 영향받지 않습니다.

# %%


def unit(x, axes):
    """몇 개의 축에 걸쳐 평균 0, 분산 1로 만든 x를 반환한다."""
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


norms = {
    "batch norm": (lambda x: unit(x, (0, 1)), "N과 L에 걸쳐(특징마다 평균 하나)"),
    "layer norm": (lambda x: unit(x, 2), "E에 걸쳐(토큰마다 하나)"),
    "group norm": (
        lambda x: unit(x.reshape(*x.shape[:2], 4, 4), (1, 3)).reshape(x.shape),
        "L과 E의 4분의 1에 걸쳐(문장마다 넷)",
    ),
}


def moved(norm, seed):
    """한 문장이 더 큰 문장들과 있을 때, 패딩 일곱 토큰을 붙일 때 달라지는 비율을 반환한다."""
    batch = np.random.default_rng(seed).standard_normal((3, 5, 16)) * [[[1.0]], [[3.0]], [[1.0]]]
    alone, padding = norm(batch[:1]), np.zeros((1, 7, 16))
    others = norm(batch)[:1], norm(np.concatenate([batch[:1], padding], axis=1))[:, :5]
    return [np.linalg.norm(other - alone) / np.linalg.norm(alone) for other in others]


print()
for name, (norm, axes) in norms.items():
    among, padded = zip(*(moved(norm, seed) for seed in (0, 1)), strict=True)
    print(f"{name}, {axes}: 한 문장이 다른 문장들과 있으면 {among[0]:.0%}, {among[1]:.0%},")
    print(f"    패딩을 붙이면 {padded[0]:.0%}, {padded[1]:.0%} 달라진다 (시드 0과 1)")

# %% [markdown]
# ## LayerNorm
# 글의 가정대로 ε = 0이면 모든 원소가 같은 행에서 0을 0으로 나눕니다.

# %%
x, gain, offset = draws.standard_normal((3, 16)), draws.standard_normal(16), np.ones(16)
y, saved = ops.layer_norm(x, gain, offset)
dy = draws.standard_normal(y.shape)
dx, dgain, doffset = ops.layer_norm_backward(dy, saved)
compare("layer_norm dx", dx, lambda x: ops.layer_norm(x, gain, offset)[0], x, dy)
compare("layer_norm dγ", dgain, lambda g: ops.layer_norm(x, g, offset)[0], gain, dy)
compare("layer_norm dβ", doffset, lambda b: ops.layer_norm(x, gain, b)[0], offset, dy)
with np.errstate(all="ignore"):
    print("모두 같은 행, ε = 0:    ", ops.layer_norm(np.full(3, 2.0), eps=0.0)[0])
print("모두 같은 행, ε = 1e-5: ", ops.layer_norm(np.full(3, 2.0))[0])

# %% [markdown]
# ## GELU
# 글이 구현한 tanh 근사식과 그 미분, 그리고 정확한 식과의 차이입니다.

# %%
x = draws.standard_normal((3, 16))
y, saved = ops.gelu(x, "tanh")
dy = draws.standard_normal(y.shape)
compare("gelu (tanh) dx", ops.gelu_backward(dy, saved), lambda x: ops.gelu(x, "tanh")[0], x, dy)
grid = np.linspace(-6, 6, 100_001)
print(f"tanh 근사식: 최대 오차 {np.abs(ops.gelu(grid)[0] - ops.gelu(grid, 'tanh')[0]).max():.1e}")
print("GELU의 최솟값: x = {:.4f}, y = {:.4f}".format(*pictures.gelu_minimum()))
lesson.show("activations", pictures.activations)

# %% [markdown]
# 글은 "자연어 처리에서는 왜 꼭 GELU여야 할까, 가우시안이 연속이어서일까" 하고 묻습니다. SiLU, 곧
# x · sigmoid(x)도 똑같이 매끄럽습니다. 매끄러움이 이유라면 SiLU도 ReLU보다 나아야 합니다. 작은 번역
# 모델을 활성화 함수마다 학습한 결과입니다.

# %%
curves = stored_runs("activations")
print("\n활성화 함수  검증 손실(토큰당 nat), 난수 시드별")
for change in ("relu", "leaky_relu", "silu", "gelu") if curves else ():
    losses = sorted(r["metrics"]["best_valid_loss"] for r in curves if r["change"] == change)
    print(f"{change:<12} " + " ".join(f"{loss:.3f}" for loss in losses))

# %% [markdown]
# ## 점수를 스케일링하는 이유
# 글은 쿼리 하나와 키 10개로 그림을 그립니다. 스케일이 없으면 가중치 하나가 1.0이 되고, 있으면
# 0.4가 되어 나머지도 보입니다. 글의 쿼리는 무작위로 뽑은 하나이므로, 쿼리 2,000개의 평균으로
# 무엇을 기대할 수 있는지 봅니다.

# %%
print("\n가중치 10개 중 최댓값, d_k = 64   글, 쿼리 하나        2,000개의 평균")
for name, article, power in (("softmax(q·k)", 1.0, 0.0), ("softmax(q·k / √d_k)", 0.4, 0.5)):
    print(f"{name:<33} {article:<20} {pictures.top_weight(64, 10, power):.2f}")
lesson.show("softmax", pictures.softmax)

# %% [markdown]
# 평균이 0이고 분산이 1인 원소라면 Var[q·k] = d_k입니다. 가중치의 평균은 d_k와 상관없이 1 / (키의
# 개수)입니다.

# %%
print("\nd_k    Var[q·k]   Var[q·k / √d_k]")
for d_k in (8, 32, 128, 512):
    products = pictures.scores(d_k, 8)
    print(f"{d_k:<6} {products.var():<10.1f} {products.var() / d_k:.3f}")
print("\n키     √d_k에서 가장 큰 가중치 (d_k = 64)     가중치 평균")
for keys in (2, 8, 32, 128):
    print(f"{keys:<6} {pictures.top_weight(64, keys, 0.5):<38.2f} {1 / keys:.3f}")
lesson.show("variance", pictures.variance)

# %% [markdown]
# ## 학습한 뒤에는?
# "평균 0, 분산 1, 독립"은 무작위 벡터의 이야기입니다. 학습한 모델은 쿼리를 필요한 키 쪽으로
# 맞추므로 Var[q·k]는 더 이상 d_k가 아니고, √d_k로 나누어도 1이 되지 않습니다. 점수의 분산이 크면
# 어텐션이 날카로워집니다. 얼마나 날카로워지는지는 끝까지 스케일에 달려 있습니다. 학습은 그 일부만
# 메웁니다.

# %%
record = attention(lesson.chatbot(), "너는 자랑하고 있어").record
print("\n학습한 챗봇, d_k = 32: 레이어마다 Var[q·k], 헤드들의 평균")
for layer in record.maps:
    products = layer.q @ layer.k.swapaxes(1, 2)
    print(f"{layer.name:<34} {products.var(axis=(1, 2)).mean():8.1f}")

# 글 003의 챗봇에 같은 질문을 한다. 실험실에 저장된 결과에서, 디코더 셀프 어텐션의 스케일된 점수의
# 분산을 난수 시드별로 최소에서 최대까지 적는다.
runs = stored_runs("-003")
print("\n글 003의 모델         스텝 0의 분산        스텝 9250의 분산   끝난 뒤의 손실")
for change in ("unscaled", "sqrt_d_k", "d_k", "d_k^2") if runs else ():
    chosen = [run for run in runs if run["change"] == change]
    first, last = ([scaled_variance(run, probe) for run in chosen] for probe in (0, -1))
    loss = np.median([run["metrics"]["train_loss"] for run in chosen])
    ends = f"{min(last):.3g}~{max(last):.3g}"
    print(f"{change:<21} {min(first):.2g}~{max(first):<12.2g} {ends:<18} {loss:.3f}")
