# %% [markdown]
# # 글 002: torch.nn.Transformer 뜯어보기
#
# torch와 이름도 인자도 같은 클래스를 NumPy로 구현했습니다. 데이터가 지나가는 길을 레이어마다
# 따라갑니다. torch.nn.modules.transformer를 한 줄씩 읽는 글(hi-lu.tistory.com)을 따랐습니다.
# 글쓴이에게 감사드립니다.

# %%
"""글 002: 레이어마다 따라가는 데이터, 정규화, 마스크, 사본, 두 반환값."""

import numpy as np

from lesson import Lesson
from pellucid import nn

lesson = Lesson(__doc__, "ko")
draws = np.random.default_rng(0)

# %% [markdown]
# ## 레이어를 지나며
# 차원 16, 헤드 4개, 레이어 2 + 2개입니다. 배치는 3, 입력은 토큰 7개, 출력은 5개입니다. 들어오는
# 것은 위치를 이미 더한 벡터입니다. 글의 설명대로 이 클래스는 위치를 더하지 않습니다.

# %%
model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
source = draws.standard_normal((3, 7, 16)).astype(np.float32)
target = draws.standard_normal((3, 5, 16)).astype(np.float32)
x = source
print("인코더 입력        ", x.shape)
for i, layer in enumerate(model.encoder.layers):
    x = layer(x)
    print(f"인코더 레이어 {i}        ", x.shape)
memory = model.encoder.norm(x)
print("메모리(정규화 뒤)  ", memory.shape)
y = target
for i, layer in enumerate(model.decoder.layers):
    y = layer(y, memory)  # 모든 레이어가 같은 메모리, 곧 인코더의 마지막 출력을 읽는다
    print(f"디코더 레이어 {i}        ", y.shape)
y = model.decoder.norm(y)
print("직접 계산 = 모델: ", np.abs(y - model(source, target)).max())

# %% [markdown]
# ## 인코더 레이어의 안쪽
# 글에 나오는 `_sa_block`과 `_ff_block`입니다. 정규화를 합 뒤에 두면(post) 출력의 분산이 1이고,
# 서브레이어 앞에 두면(pre) 합이 레이어마다 커집니다.

# %%
layer = model.encoder.layers[0]
attended, _ = layer.self_attn(source, source, source)
after = layer.norm1(source + attended)
forward = layer.linear2(np.maximum(layer.linear1(after), 0))
print("\n직접 계산 = 레이어:   ", np.abs(layer.norm2(after + forward) - layer(source)).max())
for norm_first in (False, True):
    layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=True)
    layers, x, spread = nn.TransformerEncoder(layer, 6).eval().layers, source, []
    for part in layers:
        x = part(x)
        spread.append(f"{x.std():.2f}")
    print("pre-norm " if norm_first else "post-norm", "레이어마다 표준편차:", *spread)

# %% [markdown]
# ## 디코더 레이어의 안쪽
# 글에 나오는 `_sa_block`, `_mha_block`, `_ff_block`입니다. 인코더는 잔차 단계가 둘이고 여기는
# 셋입니다. 셀프 어텐션은 인과적입니다. 둘째 단계는 쿼리를 디코더에서, 키와 값을 메모리에서
# 가져오므로 가중치의 열이 *원문* 토큰마다 하나씩 있습니다.

# %%
layer = model.decoder.layers[0]
attended, _ = layer.self_attn(target, target, target, is_causal=True)
after = layer.norm1(target + attended)
attended, weights = layer.multihead_attn(after, memory, memory)
after = layer.norm2(after + attended)
forward = layer.linear2(np.maximum(layer.linear1(after), 0))
whole = layer(target, memory, tgt_is_causal=True)
print("\n직접 계산 = 디코더 레이어:", np.abs(layer.norm3(after + forward) - whole).max())
print("메모리에 대한 가중치: ", weights.shape, "= (배치, 타깃, 원문)")
changed = target.copy()
changed[:, 3:] += 1  # 뒤에 오는 것
for causal in (True, False):
    moved = layer(changed, memory, tgt_is_causal=causal) - layer(
        target, memory, tgt_is_causal=causal
    )
    print(f"is_causal={causal}: 위치 0~2가 {np.abs(moved[:, :3]).max():.2f}만큼 움직인다")

# %% [markdown]
# ## 기울기는 두 스택을 거슬러 흐른다
# `forward`는 출력과 그 역전파를 반환합니다. 디코더의 기울기가 입력까지 도달합니다.

# %%
out, backward = model.forward(source, target)
dsource, dtarget = backward(np.ones_like(out))
print("\n기울기:", dsource.shape, dtarget.shape)
print("기울기를 받은 파라미터:", sum(p.grad is not None for p in model.parameters()),
      "/ 전체", len(list(model.parameters())))  # fmt: skip

# %% [markdown]
# ## 마스크를 그려 보면
# 글에 나오는 모든 종류입니다. `explain_mask`는 누가 누구를 볼 수 있는지, 나머지는 어느 마스크가
# 막는지 보여 줍니다. bool 마스크에서 True는 허용하지 않는다는 뜻이고, 실수 마스크는 점수에
# 더해집니다. 출력은 영어입니다. sees는 그 쿼리(query)가 볼 수 있는 키(key)의 개수와 번호이고,
# 점(may look)은 볼 수 있다는 표시입니다.

# %%
padding = np.array([[False, False, False, True]])
band = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) > 1
bonus = np.zeros((4, 4))
bonus[:, 0] = 2.0
print("\n마스크 없음\n" + nn.explain_mask(4))
print("\nis_causal\n" + nn.explain_mask(4, is_causal=True))
print("\nattn_mask (bool: 이웃만)\n" + nn.explain_mask(4, attn_mask=band))
print("\nattn_mask (float: 키 0에 +2)\n" + nn.explain_mask(4, attn_mask=bonus))
print("\nkey_padding_mask\n" + nn.explain_mask(4, key_padding_mask=padding))
print("\nvalid_lens\n" + nn.explain_mask(4, valid_lens=np.array([3, 2])))
together = nn.explain_mask(4, is_causal=True, key_padding_mask=padding)
print("\nis_causal과 key_padding_mask\n" + together)

# %% [markdown]
# ## 사본이 공유하는 것
# `TransformerEncoder(layer, 2)`는 레이어를 복사합니다. 사본들은 같은 값에서 시작하고 아무것도
# 공유하지 않습니다. 그런데 `Transformer`는 모든 행렬을 다시 뽑으므로(Xavier) 레이어들이 서로
# 다릅니다. 쌓기만 하는 클래스가 아닙니다.

# %%
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
first, second = nn.TransformerEncoder(layer, 2).layers
a, b = first.linear1.weight, second.linear1.weight
print("\n스택: 처음에 같은가", np.array_equal(a.data, b.data), "| 공유", a is b)
a, b = (part.linear1.weight for part in model.encoder.layers)
print("Transformer: 처음에 같은가", np.array_equal(a.data, b.data), "| 공유", a is b)

# %% [markdown]
# ## 왜 `[0]`인가?
# 멀티 헤드 어텐션은 출력과 가중치 두 가지를 반환합니다. 블록에는 첫째만 필요합니다.
# need_weights=False이면 둘째는 None이고 계산할 필요도 없습니다.

# %%
mha = nn.MultiheadAttention(16, 4, batch_first=True).eval()
for options in ({}, {"average_attn_weights": False}, {"need_weights": False}):
    out, weights = mha(source, source, source, **options)
    print(options, "→", out.shape, None if weights is None else weights.shape)
