"""Are parts of speech in the vectors of a trained encoder? A linear probe, with its controls.

    python examples/parts_of_speech.py                      chat-ko, which comes trained: seconds
    python examples/parts_of_speech.py --model runs/bert    after `pellucid train bert-ko`

Article 001 imagines heads that find synonyms and parts of speech. Here are Korean sentences written
for this file, each word with its part of speech by hand: N noun or pronoun, V verb, A adjective,
D adverb, M determiner. A word's vector is that of its last piece after some layer of the encoder.
Least squares fits the five parts to the vectors of four fifths of the words, and is asked for the
rest. A probe that remembers words would prove nothing, so no word is in both: words that begin with
the same syllable, as 먹어요 and 먹는다, go together.

What would refute it, each fitted and asked in the same way: the same vectors with the tags of words
drawn anew (shuffled), an encoder of the same size that was never trained (random), the trained
token vectors before any layer (embedding), and no model at all, only the word's last syllable
(ending): Korean shows much of a part of speech there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import pellucid
from pellucid.core.batch import Packed
from pellucid.nn import Context

SENTENCES = """
나는/N 아주/D 매운/A 음식을/N 못/D 먹어요/V
우리/N 언니는/N 새/M 구두를/N 샀어요/V
그/M 영화는/N 생각보다/N 훨씬/D 재미있었어요/A
동생이/N 문을/N 살짝/D 열었다/V
이/M 사과는/N 무척/D 달다/A
친구가/N 나에게/N 긴/A 편지를/N 보냈다/V
아이들이/N 마당에서/N 신나게/A 뛰어요/V
하늘이/N 점점/D 어두워졌다/V
저/M 건물은/N 굉장히/D 높네요/A
할머니는/N 늘/D 따뜻한/A 차를/N 마셔요/V
모든/M 학생이/N 시험을/N 봤다/V
고양이가/N 조용히/D 방으로/N 들어왔다/V
두/M 사람은/N 서로/D 오래/D 바라보았다/V
너무/D 바쁜/A 하루를/N 보냈어/V
형은/N 드디어/D 꿈을/N 이루었다/V
어떤/M 노래를/N 자주/D 들어요/V
바람이/N 몹시/D 차갑다/A
엄마가/N 맛있는/A 국을/N 끓였어/V
나는/N 그녀를/N 아직/D 사랑해/V
여러/M 나라를/N 천천히/D 여행했어요/V
비가/N 갑자기/D 쏟아졌다/V
그/M 가게는/N 값이/N 싸고/A 친절해요/A
아버지는/N 헌/M 책을/N 모아요/V
물이/N 정말/D 맑고/A 시원하네/A
네가/N 먼저/D 사과해/V
꽃이/N 활짝/D 피었어요/V
세/M 친구가/N 함께/D 공원을/N 걸었다/V
마음이/N 괜히/D 슬프고/A 외로워요/A
선생님은/N 언제나/D 쉽게/A 설명하신다/V
무슨/M 말을/N 그렇게/D 빨리/D 하니/V
이모가/N 예쁜/A 옷을/N 골랐어요/V
강아지가/N 내/N 손을/N 자꾸/D 핥는다/V
첫/M 사랑은/N 쉽게/A 잊지/V 못한다/V
방이/N 좁지만/A 깨끗해요/A
그는/N 일부러/D 늦게/A 도착했다/V
온/M 가족이/N 식탁에/N 앉았다/V
커피가/N 너무/D 뜨거워서/A 천천히/D 마셨어/V
누나는/N 무거운/A 가방을/N 들었다/V
다른/M 방법을/N 다시/D 찾아보자/V
달이/N 유난히/D 밝다/A
우리는/N 가끔/D 바다를/N 보러/V 간다/V
작은/A 새가/N 나무에서/N 운다/V
몇/M 번/N 전화를/N 걸었지만/V 받지/V 않았다/V
그런/M 거짓말은/N 정말/D 나쁘다/A
배가/N 고파서/A 빵을/N 구웠어요/V
겨울이/N 곧/D 온다/V
오랜/M 친구를/N 역에서/N 만났다/V
머리가/N 조금/D 아프고/A 어지러워요/A
아기가/N 푹/D 잔다/V
저/M 아저씨는/N 목소리가/N 크다/A
나도/N 이미/D 숙제를/N 끝냈어/V
길이/N 미끄러우니/A 조심해라/V
한/M 여자가/N 창가에/N 서/V 있었다/V
새로운/A 직장은/N 꽤/D 편해요/A
동네/N 빵집은/N 일찍/D 닫아요/V
옛/M 사진을/N 보면/V 그리워요/A
시간이/N 거의/D 없다/A
아무/M 걱정을/N 하지/V 마세요/V
사람들이/N 줄을/N 길게/A 섰다/V
나무가/N 쑥쑥/D 자란다/V
이런/M 날씨는/N 별로/D 반갑지/A 않아요/A
오빠는/N 차를/N 아주/D 조심스럽게/A 몬다/V
연필이/N 짧아서/A 불편해요/A
그/M 아이는/N 마침내/D 웃었다/V
밤이/N 깊어도/A 도시는/N 밝네/A
온갖/M 꽃들이/N 들판을/N 덮었다/V
저는/N 매일/D 운동하고/V 씻어요/V
귀여운/A 토끼가/N 풀을/N 뜯는다/V
네/M 친구가/N 같이/D 춤추었다/V
국물이/N 좀/D 짜요/A
의사는/N 환자를/N 열심히/D 돌본다/V
젊은/A 부부가/N 집을/N 지었어요/V
어느/M 마을에/N 착한/A 농부가/N 살았다/V
기차가/N 벌써/D 떠났어/V
언덕이/N 매우/D 가파르다/A
노란/A 우산을/N 잃어버렸어요/V
왠지/D 기분이/N 이상해/A
그/M 소식을/N 듣고/V 깜짝/D 놀랐다/V
얼굴이/N 하얗고/A 눈이/N 동그랗다/A
각/M 반에서/N 대표를/N 뽑았다/V
선물을/N 미리/D 준비했어요/V
강물이/N 느리게/A 흐른다/V
저런/M 사람은/N 흔하지/A 않다/A
당신은/N 참/D 똑똑하군요/A
구름이/N 두둥실/D 떠다닌다/V
"""
PARTS = "NVADM"
PENALTY, FOLDS, CUTS, RANDOM = 1000.0, 5, 10, 3
"""Of least squares; parts that the words are cut into; how often they are cut; random encoders."""

WORDS = [
    [(word, part) for word, _, part in (each.partition("/") for each in line.split())]
    for line in SENTENCES.strip().splitlines()
]
"""The sentences as lists of (word, part of speech)."""


def by_layer(task: Any, model: Any) -> list[np.ndarray]:
    """Return every word's vector (words, E): its token vectors alone, then after each layer."""
    texts, last, row = [], [], 0  # last: of each word, the row of its last piece
    for sentence in WORDS:
        text = " ".join(word for word, _ in sentence)
        found = task.source.spans(text)
        texts.append([piece for piece, _, _ in found])
        begins = np.cumsum([0, *(len(word) + 1 for word, _ in sentence)])
        ends = [end for _, _, end in found]
        last += [row + n - 1 for n in np.searchsorted(ends, begins[1:] - 1, side="right")]
        row += len(found)
    packed, stack = Packed.of(texts), model.stacks()["encoder"]
    context = Context(cu_seqlens=packed.cu_seqlens, inference=True, path="encoder")
    x, _ = stack.embed.forward(packed.tokens, packed.positions, inference=True)
    states = [stack.embed.tokens.weight.data[packed.tokens]]
    for i, layer in enumerate(stack.body.layers):
        x, _ = layer.run(x, context.child(f"layers.{i}", site=i))
        states.append(x)
    return [state[last] for state in states]


def asked(x: np.ndarray, parts: np.ndarray, groups: np.ndarray, random: Any) -> float:
    """Fit least squares on all groups but a fifth, ask for the fifth; return the share right."""
    order = random.permutation(groups.max() + 1)
    fold = order[groups] % FOLDS
    right = 0
    for each in range(FOLDS):
        seen, new = fold != each, fold == each
        mean, std = x[seen].mean(axis=0), x[seen].std(axis=0) + 1e-6
        a = np.column_stack([(x - mean) / std, np.ones(len(x))])
        one_hot = np.eye(len(PARTS))[parts]
        square = a[seen].T @ a[seen] + PENALTY * np.eye(a.shape[1])
        w = np.linalg.solve(square, a[seen].T @ one_hot[seen])
        right += int(((a[new] @ w).argmax(axis=1) == parts[new]).sum())
    return right / len(x)


def probe(task: Any) -> dict[str, list[float]]:
    """Return the shares right of the probe and of its controls, one for each cut of the words."""
    every = [pair for sentence in WORDS for pair in sentence]
    parts = np.array([PARTS.index(part) for _, part in every])
    _, groups = np.unique([word[0] for word, _ in every], return_inverse=True)
    _, forms = np.unique([word for word, _ in every], return_inverse=True)
    last = np.array([word[-1] for word, _ in every])
    model = task.model
    inputs = {"ending": [(last[:, None] == np.unique(last)).astype(float)]}
    for i, x in enumerate(by_layer(task, model)):
        inputs[f"layer {i}" if i else "embedding"] = [x]
    drawn = [type(model)(model.config, seed).eval() for seed in range(RANDOM)]
    for i, xs in enumerate(zip(*(by_layer(task, each) for each in drawn), strict=True)):
        inputs[f"random, layer {i}" if i else "random, embedding"] = list(xs)
    found = {"most frequent": [float(np.bincount(parts).max() / len(parts))]}
    for name, xs in inputs.items():
        found[name] = [
            asked(x, parts, groups, np.random.default_rng(cut)) for x in xs for cut in range(CUTS)
        ]
    top = inputs[f"layer {len(drawn[0].stacks()['encoder'].body.layers)}"][0]
    found["shuffled"] = []
    for cut in range(CUTS):
        random = np.random.default_rng(cut)
        of_form = random.permutation(parts[np.unique(forms, return_index=True)[1]])
        found["shuffled"].append(asked(top, of_form[forms], groups, random))
    return found


def row(name: str, shares: list[float]) -> str:
    """Format a mean share right, with its range."""
    return f"{name:<20} {np.mean(shares):4.0%}   ({min(shares):.1%} to {max(shares):.1%})"


def main() -> None:
    """Print the shares right, and write them if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="chat-ko", help="a trained model with an encoder")
    parser.add_argument("--write", type=Path, help="also write the shares to this JSON file")
    given = parser.parse_args()
    found = probe(pellucid.load(given.model))
    every = [word for sentence in WORDS for word, _ in sentence]
    print(f"{len(WORDS)} sentences, {len(every)} words, {len(set(every))} of them different")
    for name, shares in found.items():
        print(row(name, shares))
    if given.write:
        rounded = {name: [round(share, 4) for share in shares] for name, shares in found.items()}
        given.write.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
