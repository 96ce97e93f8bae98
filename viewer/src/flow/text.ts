// The words of the picture that follows one gradient back, in English and in Korean.

import type { Language } from "../text.ts";

const en = {
  title: "Follow one gradient back",
  hint:
    "The gradient d of one token’s −log p starts as p − y at the top and flows down, column by " +
    "column of tokens, to the embeddings. Every ribbon is as wide as ‖d‖ is long, on a linear scale; " +
    "only the first, above the final norm, is at most a column wide. " +
    "The straight ribbon takes the residual path around a sublayer; the curves go through it. What " +
    "attention sends to a token is divided among its queries by the gradients of its key and value " +
    "(and of the own query).",
  token: "Token of the answer",
  option: (n: number, token: string, p: string) => `${n} ${token} · p = ${p}`,
  rather: "rather than",
  alone: "– (its −log p)",
  between: (token: string, other: string, apart: string) =>
    `The logit of “${token}” is ${apart} above that of “${other}”: the gradient of this difference starts with +1 and −1.`,
  nears: (token: string, other: string, p: string, after: string, apart: string, apartAfter: string) =>
    `Logit of “${token}” minus that of “${other}”: ${apart} → ${apartAfter}; p of “${token}”: ${p} → ${after}.`,
  start: (token: string, loss: string, dlogits: string) =>
    `−log p of “${token}” is ${loss}: its gradient starts with ‖p − y‖ = ${dlogits}.`,
  reaches: (side: string, token: string, n: number, share: string, row: string) =>
    `Of what reaches the input of the ${side}, most arrives at “${token}” (token ${n}): ${share} of ` +
    `the lengths. As an input, the embedding’s row of “${token}” gets ‖d‖ = ${row}.`,
  sides: { source: "encoder", target: "decoder" },
  legend: { around: "around, on the residual path", through: "through a network or norm", between: "between tokens", cross: "to the encoder" },
  stacks: { encoder: "Encoder", decoder: "Decoder" },
  roles: {
    transform: "transform",
    norm: "norm",
    attention: "self-attention",
    cross: "cross-attention",
    feed_forward: "feed-forward",
  },
  short: { transform: "transform", norm: "norm", attention: "self", cross: "cross", feed_forward: "network" },
  layer: (n: number) => `layer ${n}`,
  picture:
    "The gradient’s way back. Arrow keys choose a step and a token; its numbers are read out below.",
  numbers: (around: string, through: string, leaves: string) =>
    `around ${around} + through ${through} → leaves ‖d‖ = ${leaves} (vectors add, lengths need not)`,
  arrives: (d: string) => `arrives ‖d‖ = ${d}`,
  leaves: (d: string) => `leaves ‖d‖ = ${d}`,
  heads: (list: string) => `heads ‖dz‖: ${list}`,
  edge: (query: string, length: string) => `most comes from the query “${query}”: ${length}`,
  memory: (token: string, d: string) => `to the encoder most at “${token}”: ‖d‖ = ${d}`,
  embedding: "embedding’s row",
  table: "All numbers: ‖d‖ that leaves each step",
  step: "Step",
  take: "Take the step",
  takeHint:
    "The parameters move by −η times this gradient, and the model in this page (its weights in int8) runs " +
    "again: p of the token rises. The tangent’s slope is −‖gradient‖², from the page’s own backward pass.",
  movers: {
    all: "all parameters",
    row: (token: string) => `the embedding’s row of “${token}” alone`,
  },
  rises: (token: string, p: string, after: string, loss: string, lossAfter: string) =>
    `p of “${token}”: ${p} → ${after}; −log p: ${loss} → ${lossAfter}.`,
};

type Words = typeof en;

const ko: Words = {
  title: "기울기 하나를 거슬러 따라가기",
  hint:
    "답의 토큰 하나의 −log p에 대한 기울기 d는 맨 위에서 p − y로 시작하여 토큰의 열을 따라 임베딩까지 " +
    "내려갑니다. 띠의 너비는 ‖d‖에 비례합니다(선형 척도). 마지막 정규화 위의 첫 띠만 열보다 넓어지지 않습니다. 곧은 띠는 서브레이어를 비켜 가는 잔차 경로이고, " +
    "굽은 띠는 서브레이어를 지납니다. 어텐션이 토큰 하나에 보내는 몫은 그 토큰의 키와 값(그리고 자신의 " +
    "쿼리)의 기울기에 따라 쿼리별로 나눕니다.",
  token: "답의 토큰",
  option: (n, token, p) => `${n} ${token} · p = ${p}`,
  rather: "견줄 토큰",
  alone: "없음(−log p)",
  between: (token, other, apart) =>
    `“${token}”의 로짓은 “${other}”의 로짓보다 ${apart}만큼 큽니다. 이 차의 기울기는 +1과 −1에서 시작합니다.`,
  nears: (token, other, p, after, apart, apartAfter) =>
    `“${token}”의 로짓 − “${other}”의 로짓: ${apart} → ${apartAfter}, “${token}”의 p: ${p} → ${after}`,
  start: (token, loss, dlogits) =>
    `“${token}”의 −log p는 ${loss}이며, 기울기는 ‖p − y‖ = ${dlogits}에서 시작합니다.`,
  reaches: (side, token, n, share, row) =>
    `${side} 입력에 닿는 기울기는 “${token}”(${n}번 토큰)에 가장 많이 모여 길이의 합 가운데 ${share}를 ` +
    `차지합니다. 입력으로서 임베딩의 “${token}” 행이 받는 기울기는 ‖d‖ = ${row}입니다.`,
  sides: { source: "인코더", target: "디코더" },
  legend: { around: "잔차 경로", through: "네트워크나 정규화를 지남", between: "토큰 사이", cross: "인코더로" },
  stacks: { encoder: "인코더", decoder: "디코더" },
  roles: {
    transform: "변환",
    norm: "정규화",
    attention: "셀프 어텐션",
    cross: "크로스 어텐션",
    feed_forward: "피드포워드",
  },
  short: { transform: "변환", norm: "정규화", attention: "셀프", cross: "크로스", feed_forward: "피드포워드" },
  layer: (n) => `레이어 ${n}`,
  picture: "기울기가 거슬러 가는 길. 방향키로 단계와 토큰을 고르면 아래에 숫자가 나옵니다.",
  numbers: (around, through, leaves) =>
    `잔차 경로 ${around} + 서브레이어 ${through} → 나가는 ‖d‖ = ${leaves} (벡터의 합이므로 길이는 그대로 더해지지 않습니다)`,
  arrives: (d) => `들어오는 ‖d‖ = ${d}`,
  leaves: (d) => `나가는 ‖d‖ = ${d}`,
  heads: (list) => `헤드별 ‖dz‖: ${list}`,
  edge: (query, length) => `쿼리 “${query}”에서 가장 많이 옵니다: ${length}`,
  memory: (token, d) => `인코더에서는 “${token}”에 가장 많이 갑니다: ‖d‖ = ${d}`,
  embedding: "임베딩의 행",
  table: "모든 숫자: 각 단계에서 나가는 ‖d‖",
  step: "단계",
  take: "한 걸음 내딛기",
  takeHint:
    "파라미터가 이 기울기의 −η배만큼 움직이고, 이 페이지의 모델(int8 가중치)이 다시 실행됩니다. 그러면 토큰의 p가 " +
    "커집니다. 접선의 기울기는 이 페이지의 역전파가 계산한 −‖기울기‖²입니다.",
  movers: {
    all: "모든 파라미터",
    row: (token) => `임베딩의 “${token}” 행만`,
  },
  rises: (token, p, after, loss, lossAfter) =>
    `“${token}”의 p: ${p} → ${after}, −log p: ${loss} → ${lossAfter}`,
};

export const TEXTS: { [language in Language]: Words } = { en, ko };
