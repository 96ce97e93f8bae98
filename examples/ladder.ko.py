"""transformer.ko.py까지 오르는 사다리: 세기에서 트랜스포머까지, 한 칸에 하나씩 바꿉니다.

    python examples/ladder.ko.py

모든 칸이 같은 영어 수를 같은 한국어 수로 옮기고, 학습에 쓰지 않은 수로 채점합니다. 한 칸이 하지
못하는 일이 다음 칸의 이유입니다. 모두 transformer.py의 함수로 만들었습니다. 이 파일 다음에 읽을
파일이고, 여기에는 달라지는 부분만 있습니다. 칸마다 원문 (N, S)와 지금까지 쓴 답 (N, L)에서 어휘의
모든 토큰에 다음 토큰으로서의 점수를 매기고, 점수 (N, L, V)와 그 역전파를 반환합니다.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

from transformer import (
    KOREAN,
    PAD,
    TARGET,
    N,
    adam,
    answer,
    arrays,
    attention,
    batch,
    decoder_layer,
    embed,
    encoder_layer,
    initial,
    linear,
    loss_and_gradients,
    transformer,
    words,
)

STEPS = 500


# ---- 1. 세기: 이 토큰 다음에는 무엇이 가장 자주 왔나?
def counts(p, source, target):
    """마지막 토큰 다음에 각 토큰이 온 횟수의 log. 원문은 전혀 읽지 않습니다."""
    return np.log(p["counts"] + 1e-3)[target], lambda dscores: {}


# ---- 2. 선형: 원문의 단어마다 다음 토큰에 투표합니다. 기울기와, 그 반대 방향의 스텝
def votes(p, source, target):
    """W (원문 벡터의 평균 + 마지막 토큰의 벡터) + b.

    처음으로 학습하는 칸입니다. 점수의 기울기 w − one_hot의 반대 방향으로 −log p가 줄어듭니다.
    평균은 어떤 단어가 있는지는 알지만 순서를 모릅니다. 45와 54가 같은 수입니다.
    """
    real = source[:, :, None] != PAD
    share = real / real.sum(axis=1, keepdims=True)
    x = (share * p["source"][source]).sum(axis=1, keepdims=True) + p["target"][target]
    scores, output_backward = linear(p["output"], x)

    def backward(dscores):
        dx, g_output = output_backward(dscores)
        g = {"output": g_output, **{side: np.zeros_like(p[side]) for side in ("source", "target")}}
        np.add.at(g["target"], target, dx)
        np.add.at(g["source"], source, share * dx.sum(axis=1, keepdims=True))
        return g

    return scores, backward


# ---- 3. 어텐션 헤드 하나: 평균에 가중치가 생기고, 지금까지 쓴 답이 그것을 고릅니다
def one_head(p, source, target):
    """W (attention(x, memory) + x) + b. x는 마지막 토큰, memory는 원문입니다.

    둘 다에 위치를 더하므로 토큰이 "방금 것의 다음 단어"를 찾을 수 있습니다. 그러나 쿼리는 답의 토큰
    하나만 알고, 그 앞에 무엇을 썼는지 모릅니다.
    """
    memory, source_backward = embed(p["source"], source)
    x, target_backward = embed(p["target"], target)
    q, q_backward = linear(p["q"], x)
    k, k_backward = linear(p["k"], memory)
    v, v_backward = linear(p["v"], memory)
    z, attention_backward = attention(q, k, v, (source == PAD)[:, None, :])
    scores, output_backward = linear(p["output"], z + x)

    def backward(dscores):
        g = {}
        dsum, g["output"] = output_backward(dscores)  # z의 기울기이자, 옆에 더한 x의 기울기
        dq, dk, dv = attention_backward(dsum)
        dx, g["q"] = q_backward(dq)
        dkeys, g["k"] = k_backward(dk)
        dvalues, g["v"] = v_backward(dv)
        g["target"], g["source"] = target_backward(dsum + dx), source_backward(dkeys + dvalues)
        return g

    return scores, backward


# ---- 4. 레이어 하나: 양쪽이 먼저 자기 자신을 읽습니다. 정규화와 잔차 연결이 그것을 지탱합니다
def one_layer(p, source, target):
    """transformer.py의 인코더 레이어와 디코더 레이어 하나씩: 헤드 네 개와 피드포워드 네트워크.

    이제 토큰이 이웃을 압니다. 원문의 단어는 어느 묶음에 속하는지, 답은 무엇을 써 왔는지 압니다.
    """
    padding = (source == PAD)[:, None, None, :]
    future = np.triu(np.ones((target.shape[1], target.shape[1]), dtype=bool), 1)
    x, source_backward = embed(p["source"], source)
    y, target_backward = embed(p["target"], target)
    memory, encoder_backward = encoder_layer(p["encoder"][0], x, padding)
    y, decoder_backward = decoder_layer(p["decoder"][0], y, memory, future, padding)
    scores, output_backward = linear(p["output"], y)

    def backward(dscores):
        g = {"encoder": {}, "decoder": {}}
        dy, g["output"] = output_backward(dscores)
        dy, dmemory, g["decoder"][0] = decoder_backward(dy)
        dx, g["encoder"][0] = encoder_backward(dmemory)
        g["target"], g["source"] = target_backward(dy), source_backward(dx)
        return g

    return scores, backward


# ---- 5와 6. 같은 레이어에 Adam, 그리고 양쪽에 레이어 두 개씩: transformer.py
def descend(p, g, step, rate):
    """기울기의 반대 방향으로 한 스텝: 모든 수에 같은 학습률, 웜업과 감쇠."""
    for w, dw in zip(arrays(p), arrays(g), strict=True):
        w -= rate * min(step / 100, 1 - step / STEPS) * dw


def parameters(random, rung):
    """한 칸의 파라미터를 뽑습니다: transformer.py의 것 가운데 그 칸에 있는 것."""
    p = initial(random)
    if rung is transformer:
        return p
    if rung is one_layer:
        return {**p, "encoder": {0: p["encoder"][0]}, "decoder": {0: p["decoder"][0]}}
    if rung is one_head:
        first = p["decoder"][0]["cross"]
        kept = {part: first[part] for part in ("q", "k", "v")}
        return {**kept, **{name: p[name] for name in ("source", "target", "output")}}
    return {name: p[name] for name in ("source", "target", "output")}


def counted(numbers):
    """어떤 수들의 답에서 토큰마다 그다음에 각 토큰이 온 횟수를 반환합니다."""
    _, target = batch(numbers)
    table = np.zeros((len(TARGET), len(TARGET)))
    np.add.at(table, (target[:, :-1], target[:, 1:]), target[:, 1:] != PAD)
    return {"counts": table}


def train(model, p, numbers, random, rate):
    """한 칸을 수 N개씩의 배치로 STEPS 스텝 학습합니다."""
    m, v = ([np.zeros_like(w) for w in arrays(p)] for _ in range(2))
    for step in range(1, STEPS + 1):
        _, g = loss_and_gradients(p, *batch(random.choice(numbers, N)), model)
        if rate is None:
            adam(p, g, m, v, step, 0.002 * min(step / 100, 1 - step / STEPS))
        else:
            descend(p, g, step, rate)
    return p


# 단순한 경사 하강의 학습률: 선형은 0.3, 3, 10, 헤드는 0.1, 0.3, 1 가운데 가장 좋은 것
RUNGS = (
    ("1 세기", counts, None),
    ("2 선형", votes, 10.0),
    ("3 헤드 하나", one_head, 0.3),
    ("4 레이어 하나", one_layer, 0.3),
    ("5 그리고 Adam", one_layer, None),
    ("6 레이어 둘", transformer, None),
)


def climb(rung, numbers, new, seed=0):
    """한 칸을 학습하고, 새로운 수에 대한 손실, 맞힌 개수, SHOWN의 답을 반환합니다."""
    _, model, rate = rung
    random = np.random.default_rng(seed)
    if model is counts:
        p = counted(numbers)
    else:
        p = train(model, parameters(random, model), numbers, random, rate)
    loss, _ = loss_and_gradients(p, *batch(new), model)
    right = sum(
        "".join(words(n, KOREAN)) == got for n, got in zip(new, answer(p, new, model), strict=True)
    )
    return loss, right, answer(p, [SHOWN], model)[0]


SHOWN = 456_788


def main():
    random = np.random.default_rng(0)
    digits = random.integers(1, 10, (40_000, 6)) * random.integers(0, 2, (40_000, 6))
    numbers = np.maximum(digits @ 10 ** np.arange(6), 1)  # 자릿수의 절반은 0
    new = np.unique(numbers[numbers % 7 == 3])[::4]  # 수 일곱 개 가운데 하나는 학습에 쓰지 않습니다
    print(f"칸            손실   {len(new)}개 중   {SHOWN:,} = {''.join(words(SHOWN, KOREAN))}")
    for rung in RUNGS:
        loss, right, shown = climb(rung, numbers[numbers % 7 != 3], new)
        print(f"{rung[0]:12}  {loss:.3f}  {right:12}   {shown}", flush=True)


if __name__ == "__main__":
    main()
