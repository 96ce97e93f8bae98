# %% [markdown]
# # 글 004: 수학과 코드로 보는 멀티 헤드 어텐션
#
# 글의 클래스 테스트를 그대로 해 보고, 이어서 글이 제안하는 것을 해 봅니다. 헤드 수를 바꾸고,
# 어텐션 앞뒤에 피드포워드 네트워크를 여럿 두고, 번역을 시켜 봅니다. "Transformers, 수학과 코딩으로
# 이해하기"를 따랐습니다. 글쓴이에게 감사드립니다.

# %%
"""글 004: 클래스 테스트, valid_lens, 다른 헤드 수, 어텐션 앞뒤의 네트워크."""

import numpy as np

from lesson import Lesson, final_loss, stored_runs
from pellucid import nn, ops

lesson = Lesson(__doc__, "ko")
draws = np.random.default_rng(0)

# %% [markdown]
# ## 클래스 테스트
# 은닉 유닛 100개, 헤드 5개, 배치 2, 쿼리 4개, 키 6개, 유효 길이 3과 2입니다. 글은 출력의 모양이
# (2, 4, 100)이어야 한다고 합니다.

# %%
valid_lens = np.array([3, 2])
mask = nn.valid_lens_mask(valid_lens, 6)
print(nn.explain_mask(4, 6, valid_lens=valid_lens))


def article_test(draw):
    """`draw(shape)`에서 뽑은 가중치와 입력으로 글의 테스트를 하고 out, weights를 반환한다."""
    attention = nn.MultiheadAttention(100, 5, bias=False, batch_first=True, dtype=np.float64)
    for parameter in attention.parameters():
        parameter.data = draw(parameter.shape)
    queries, pairs = draw((2, 4, 100)), draw((2, 6, 100))
    return attention.eval()(queries, pairs, pairs, mask, average_attn_weights=False)


out, weights = article_test(draws.random)
print("\n출력의 모양:", out.shape, "(글: (2, 4, 100))")
print("valid_lens를 넘는 키의 가중치:", weights[0, ..., 3:].max(), weights[1, ..., 2:].max())

# %% [markdown]
# ## 평균이 있는 데이터
# 글은 입력과 가중치를 0과 1 사이의 `rand`에서 뽑습니다. 평균이 ½이므로 q·k의 평균이 d_k와 함께
# 커지고, √d_k로 나누어도 없어지지 않습니다. 거의 모든 쿼리가 키 하나만 봅니다. 데이터와 가중치의
# 평균이 0이면 어텐션 가중치가 퍼집니다.

# %%
scale = 0.1  # 가중치의 표준편차: 투영해도 분산이 유지되도록 1 / √100
cases = {
    "rand(글의 데이터)": draws.random,
    "정규 분포, 평균 0": lambda shape: (
        draws.standard_normal(shape) * (scale if shape[0] > 2 else 1)
    ),
}
for name, draw in cases.items():
    tops = np.array([article_test(draw)[1].max(axis=-1) for _ in range(100)])
    one_hot = (tops > 0.99).mean()
    print(f"가장 큰 가중치 {tops.mean():.2f}, 키 하나만 보는 행 {one_hot:.0%}: {name}")

# %% [markdown]
# ## 유효한 키가 없을 때
# 길이가 0이면 모든 점수가 −∞이고 최댓값도 −∞여서, 글의 코드는 −∞ − (−∞), 즉 NaN을 계산합니다.
# 여기서는 그런 쿼리가 아무것도 보지 않습니다.

# %%
none = nn.valid_lens_mask(np.array([0, 2]), 6)[:, None]
q, k, v = (draws.standard_normal((2, n, 20)) for n in (4, 6, 6))
out, _ = ops.attention(q, k, v, mask=none)
print("\nvalid_lens 0:", out[0].min(), "에서", out[0].max(), "| NaN:", bool(np.isnan(out).any()))

# %% [markdown]
# ## 위치별 피드포워드 네트워크
# max(0, x W₁ + b₁) W₂ + b₂를 모든 위치에 똑같이 적용합니다. 위치를 섞으면 결과도 그대로 섞입니다.

# %%
w1, b1, w2, b2 = (draws.standard_normal(shape) for shape in ((32, 16), 32, (16, 32), 16))


def ffn(x):
    """행 x에 대한 네트워크의 출력을 반환한다."""
    hidden, _ = ops.linear(x, w1, b1)
    active, _ = ops.relu(hidden)
    return ops.linear(active, w2, b2)[0]


x, order = draws.standard_normal((6, 16)), draws.permutation(6)
print("위치별로 같은가:", np.allclose(ffn(x[order]), ffn(x)[order]))

# %% [markdown]
# ## 헤드 수를 바꾸면
# 헤드들이 차원을 나누어 쓰므로 헤드 수는 파라미터 수를 바꾸지 않고 차원을 나누는 방법만 바꿉니다.
# 각각 데모 챗봇의 4분의 1만 학습합니다(학습 손실입니다. 데이터가 이렇게 적으면 암기이므로 품질이
# 아니라 배우는 속도를 비교하는 것이며, 각각 한 번 실행합니다).

# %%
for heads in (1, 4, 16):
    folder = lesson.train(f"heads-{heads}", f"--model.num-attention-heads={heads}", share=0.25)
    print(f"헤드 {heads:>2}개: 손실 토큰당 {final_loss(folder):.3f} nat")

# %% [markdown]
# ## 어텐션 앞뒤의 네트워크
# 글의 연습 문제는 옵션 두 개입니다: `--model.ffn-before`와 `--model.ffn-after`. 유닛을
# 네트워크들이 나누어 쓰므로 셋의 파라미터 수가 거의 같습니다.

# %%
for before, after, units in ((0, 1, 512), (1, 1, 256), (0, 2, 256)):
    settings = (f"--model.ffn-before={before}", f"--model.ffn-after={after}")
    folder = lesson.train(
        f"ffn-{before}-{after}", *settings, f"--model.ffn-dim={units}", share=0.25
    )
    print(f"앞에 {before}개, 뒤에 {after}개: 손실 토큰당 {final_loss(folder):.3f} nat")

# %% [markdown]
# ## 같은 연습 문제, 실험실의 결과
# 독일어-영어 번역, 작은 모델입니다. 파라미터 수는 모두 1 % 안에서 같고, 난수 시드는 셋씩입니다. 이
# 결과로 알 수 있는 것과 없는 것은 docs/findings.ko.md에 있습니다.

# %%
print("\n변형             실행   검증 손실(토큰당 nat)")
variants = {}
for run in stored_runs("heads-and-ffns"):
    variants.setdefault(run["change"], []).append(run["metrics"]["best_valid_loss"])
for change, losses in sorted(variants.items(), key=lambda item: min(item[1])):
    print(f"{change:<16} {len(losses):<6} " + " ".join(f"{loss:.3f}" for loss in sorted(losses)))

# %% [markdown]
# ## 기계 번역
# 글의 마지막 제안에는 코어 하나로 24분이 걸리고 Multi30k가 필요합니다.
#
#     pellucid train multi30k-de-en-small --model.ffn-before 1 --model.ffn-dim 128
#     pellucid generate runs/multi30k-de-en-small "ein Hund rennt über die Wiese."
#
# 실험실은 헤드 수와 네트워크를 난수 시드 여러 개로, 독일어-영어 번역에서 비교합니다: `pellucid lab
# run heads-and-ffns`.
