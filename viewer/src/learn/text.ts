// The words of the page that trains a model, in English and in Korean.

import type { Language } from "../text.ts";

const en = {
  language: "한국어",
  title: "Watch a Transformer learn",
  opening:
    "A Transformer with random weights is in this page: an encoder and a decoder of two layers, width 64. " +
    "Press Train. It learns here, on your processor; every derivative is written by hand, and nothing is sent anywhere.",
  theme: "Theme: light or dark",
  task: "What it learns",
  tasks: { numbers: "English numbers → Korean", reverse: "Reverse a word", sort: "Sort letters", pairs: "Your own pairs" },
  pairsHint: (least: number, most: number) =>
    `One pair a line: source, tab, target. ${least} to ${most.toLocaleString("en")} pairs; the text never leaves this page.`,
  file: "From a file",
  counted: (pairs: number) => `${pairs} pairs.`,
  wrongLines: (lines: string) => `No pair (source, tab, target) in line ${lines}.`,
  tooFew: (least: number) => `At least ${least} pairs are needed.`,
  tooMany: (most: number) => `The first ${most} pairs are taken.`,
  knobs: "What if …",
  knobsHint: "Change one thing and train again; the runs before stay in the picture.",
  scale: "Scores are multiplied by",
  scales: { root: "1/√dₖ", one: "1 (not scaled)", width: "1/dₖ" },
  norm: "Layer norm",
  norms: { after: "after the residual sum", before: "before the sublayer" },
  residual: "Residual connections",
  positions: "Positions",
  warmup: "Warm-up",
  steps: "Steps",
  seed: "Random seed",
  mistake: "Break one derivative",
  mistakes: {
    none: "all are right",
    softmax: "softmax: w (1 − w) alone",
    norm: "layer norm: without both means",
    mean: "layer norm: without the mean of dx̂",
    residual: "residual: the sublayer’s part alone",
    shared: "self-attention: the queries’ part of dx alone",
    scale: "scores: 1/√dₖ forgotten in backward",
    activation: "GELU: its slope taken as 1",
  },
  train: "Train",
  pause: "Pause",
  one: "One step",
  again: "Start over",
  ready: "Untrained: it has random weights.",
  at: (step: number, steps: number, loss: string, seconds: string) =>
    `Step ${step} of ${steps} · loss ${loss} per token · ${seconds} s of computing`,
  unseen: (right: number, asked: number) =>
    `${right} of ${asked} right (${((100 * right) / asked).toFixed(1)} %) that it was never trained on`,
  curve: "Loss per token",
  curveAbout: (step: number, loss: string) => `Loss per token by step. Now: step ${step}, loss ${loss}.`,
  nowRun: "this run",
  film: "The film of its training",
  filmHint:
    "The page keeps the weights of up to 64 moments. Drag to go back: the answers, the gradients and the model " +
    "taken apart below are those of that step. Train goes on from the last one.",
  frame: "Moment",
  frameAt: (step: number) => `step ${step}`,
  play: "Play",
  examples: "Unseen examples, as it answers them",
  source: "Source",
  answer: "Its answer",
  wanted: "Right",
  empty: "(empty)",
  sizes: "Gradient by part",
  sizesHint: "Length of the loss’s gradient in the last step, on a logarithmic scale.",
  parts: {
    source: "Source embedding",
    target: "Target embedding",
    encoder: (layer: number) => `Encoder layer ${layer}`,
    decoder: (layer: number) => `Decoder layer ${layer}`,
    self: "self-attention",
    cross: "cross-attention",
    network: "feed-forward",
    output: "Output layer",
  },
  apart: "Take it apart, as it is now",
  apartHint:
    "These are the weights of this moment. Type a text; while it trains the answer and the maps follow. Pause " +
    "to see what every part matters, to switch parts off, and to follow gradients.",
  failed: (why: string) => `The training stopped: ${why}`,
  footer: (kernel: boolean) =>
    (kernel
      ? "Matrix products by the library’s own kernel, compiled to WebAssembly. "
      : "Matrix products in JavaScript: this browser allows the page no WebAssembly. ") +
    "This file makes no network request.",
};

const ko: typeof en = {
  language: "English",
  title: "트랜스포머가 배우는 모습 보기",
  opening:
    "이 페이지에는 무작위 가중치로 시작하는 트랜스포머가 들어 있습니다. 인코더와 디코더가 각각 두 레이어, 차원은 64입니다. " +
    "학습을 누르면 이 컴퓨터에서 바로 배웁니다. 미분은 모두 손으로 유도했고, 아무것도 밖으로 보내지 않습니다.",
  theme: "테마: 밝게, 어둡게",
  task: "무엇을 배울까요?",
  tasks: { numbers: "영어 숫자 → 한국어", reverse: "단어 뒤집기", sort: "글자 정렬", pairs: "직접 넣은 쌍" },
  pairsHint: (least, most) =>
    `한 줄에 한 쌍: 원문, 탭, 답. ${least}~${most.toLocaleString("ko")}쌍을 넣을 수 있고, 내용은 이 페이지를 떠나지 않습니다.`,
  file: "파일에서 읽기",
  counted: (pairs) => `${pairs}쌍입니다.`,
  wrongLines: (lines) => `쌍(원문, 탭, 답)이 아닌 줄: ${lines}`,
  tooFew: (least) => `적어도 ${least}쌍이 필요합니다.`,
  tooMany: (most) => `앞의 ${most}쌍만 씁니다.`,
  knobs: "이것을 바꾸면?",
  knobsHint: "하나만 바꾸고 다시 학습해 보세요. 앞선 실행은 그림에 남습니다.",
  scale: "점수에 곱하는 수",
  scales: { root: "1/√dₖ", one: "1 (스케일링 없음)", width: "1/dₖ" },
  norm: "레이어 정규화",
  norms: { after: "잔차를 더한 뒤", before: "서브레이어 앞" },
  residual: "잔차 연결",
  positions: "위치 정보",
  warmup: "웜업",
  steps: "스텝 수",
  seed: "난수 시드",
  mistake: "미분 하나를 틀리게 하기",
  mistakes: {
    none: "모두 맞음",
    softmax: "소프트맥스: w (1 − w)만",
    norm: "레이어 정규화: 두 평균을 빼먹음",
    mean: "레이어 정규화: dx̂의 평균을 빼먹음",
    residual: "잔차: 서브레이어 쪽만",
    shared: "셀프 어텐션: dx에서 쿼리 쪽만",
    scale: "점수: 역전파에서 1/√dₖ를 빼먹음",
    activation: "GELU: 기울기를 1로",
  },
  train: "학습",
  pause: "멈춤",
  one: "한 스텝",
  again: "처음부터",
  ready: "아직 학습하지 않았습니다. 가중치가 무작위입니다.",
  at: (step, steps, loss, seconds) => `${steps}스텝 중 ${step}스텝 · 토큰당 손실 ${loss} · 계산 시간 ${seconds}초`,
  unseen: (right, asked) =>
    `학습하지 않은 ${asked}개 중 ${right}개 정답 (${((100 * right) / asked).toFixed(1)} %)`,
  curve: "토큰당 손실",
  curveAbout: (step, loss) => `스텝별 토큰당 손실. 지금 ${step}스텝, 손실 ${loss}.`,
  nowRun: "이번 실행",
  film: "학습을 담은 필름",
  filmHint:
    "학습하는 동안 가중치를 64장면까지 담아 둡니다. 슬라이더를 끌면 그 스텝으로 돌아가며, 답과 기울기, 아래에서 뜯어보는 " +
    "모델도 그 스텝의 것입니다. 학습을 누르면 마지막 스텝에서 이어 갑니다.",
  frame: "장면",
  frameAt: (step) => `${step}스텝`,
  play: "재생",
  examples: "학습하지 않은 예에 내는 답",
  source: "원문",
  answer: "모델의 답",
  wanted: "정답",
  empty: "(빈 답)",
  sizes: "부분별 기울기",
  sizesHint: "마지막 스텝에서 손실의 기울기 길이. 로그 눈금입니다.",
  parts: {
    source: "원문 임베딩",
    target: "답 임베딩",
    encoder: (layer) => `인코더 레이어 ${layer}`,
    decoder: (layer) => `디코더 레이어 ${layer}`,
    self: "셀프 어텐션",
    cross: "크로스 어텐션",
    network: "피드포워드",
    output: "출력 레이어",
  },
  apart: "지금 이 순간의 모델 뜯어보기",
  apartHint:
    "바로 이 순간의 가중치입니다. 텍스트를 입력하면 학습하는 동안에도 답과 지도가 따라옵니다. 멈추면 각 부분이 얼마나 " +
    "중요한지 보고, 부분을 끄고, 기울기를 따라가 볼 수 있습니다.",
  failed: (why) => `학습이 멈췄습니다: ${why}`,
  footer: (kernel) =>
    (kernel
      ? "행렬 곱은 라이브러리의 커널을 WebAssembly로 컴파일해 계산합니다. "
      : "행렬 곱은 JavaScript로 계산합니다. 이 브라우저에서는 페이지가 WebAssembly를 쓸 수 없습니다. ") +
    "이 파일은 네트워크에 아무것도 요청하지 않습니다.",
};

export const TEXTS: { [language in Language]: typeof en } = { en, ko };
