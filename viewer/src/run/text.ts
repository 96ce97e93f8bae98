// The words of the tab that runs the model, in English and in Korean.

import type { Language } from "../text.ts";

const en = {
  ask: "Your own text",
  text: "Text",
  hint:
    "The model runs in this page, offline: its weights are here as 8-bit integers. Type, and the " +
    "answer follows, each token the most likely one.",
  empty: "Type something for the model to read.",
  tooLong: (tokens: number, most: number) => `${tokens} tokens, but the model reads at most ${most}.`,
  unknown: (units: string) => `Never seen in training: ${units}`,
  pieces: "The text is answered piece by piece; press one to look into it.",
  together: "All answers:",
  expected: "Expected answer",
  itsOwn: "the model’s own",
  unfit: (answer: string) => `The model cannot give “${answer}”: it has a token for each [MASK], or one of its labels.`,
  expectedAnswer: "The answer you expect:",
  rather: "rather than",
  decidedRather: (token: string, other: string) => `Why “${token}” rather than “${other}”`,
  keep: "Keep this change",
  forget: "As it was trained",
  whole: "With everything:",
  without: (part: string) => `Without ${part}:`,
  parts: (count: number) => `${count} parts`,
  loss: (nats: string) => `−log p = ${nats}`,
  stopped: "did not end",
  writesNothing: "(the model writes nothing)",
  took: (tokens: number, ms: string) => `${tokens} ${tokens === 1 ? "token" : "tokens"} in ${ms} ms`,
  same: "The answer stays.",
  firstAnswer: (before: string, after: string) =>
    `−log p of the first answer: ${before} → ${after}`,
  tokenLoss: (token: string, nats: string) => `“${token}”, −log p ${nats}`,
  answerTokens: "Tokens of the answer with −log p: choose one to see where it is decided",

  board: "Switch parts off",
  boardHint:
    "If not chosen otherwise, a head that is off returns 0; a network or a whole attention that is off adds nothing; a token " +
    "that is off is seen by nobody. The more orange a part, the less likely the answer without it.",
  replaced: "An off part returns",
  modes: { zero: "zeros", mean: "its mean here", text: "its rows in another text" },
  rankingRather: (token: string, other: string) =>
    `Each head, sublayer and token switched off in turn: by how much the logit of “${token}” minus that of “${other}” falls.`,
  everything: "Everything on",
  tokens: "Tokens read",
  stacks: { encoder: "Encoder", decoder: "Decoder" },
  layer: (n: number) => `Layer ${n}`,
  self: "Self-attention",
  cross: "Cross-attention",
  network: "Feed-forward",
  head: (n: number) => `head ${n}`,
  token: (n: number, token: string) => `Token ${n} “${token}”`,
  edge: (query: string, key: string) => `“${query}” → “${key}”`,

  ranking: "What matters most for this answer",
  rankingHint:
    "Each head, sublayer and token switched off in turn: by how much −log p of the answer grows. " +
    "Press one to switch off only that.",
  sorts: { all: "All", heads: "Heads", sublayers: "Sublayers", tokens: "Tokens" },
  measuring: (done: number, all: number) => `Switching off one part after another: ${done} of ${all} …`,
  becomes: (answer: string) => `answer: ${answer || "(empty)"}`,
  more: (count: number) => `Show all ${count}`,
  fewer: "Show fewer",

  edges: "One head’s map",
  edgesHint:
    "Rows are queries, columns keys. Arrow keys move. Cut: the query no longer looks at the key, and the " +
    "other weights of its row share what is left. Edit its score: the card below moves it.",
  presses: "What pressing a cell does",
  cut: "Cut",
  pick: "Edit its score",
  compare: "Beside it",
  besides: { none: "nothing", head: "another head", text: "another text", gradient: "the gradient of its scores" },
  gradientOf: (what: string) => `Gradient of the scores: ${what}`,
  otherText: "The other text",
  ofHead: "Head",
  cell: (query: string, key: string, weight: string, on: boolean) =>
    `${query} → ${key}: ${on ? `weight ${weight} %` : "✕ cut"}`,

  edit: "Edit a number",
  editHint:
    "Drag δ: the number moves, and the model runs again with it. The curve is the exact loss L = −log p at " +
    "41 points. The dashed tangent is the gradient that the page’s backward pass, written by hand, " +
    "computes at δ = 0 for this text. “All weights” steps by η against it.",
  kinds: { score: "A score", weight: "A weight", step: "All weights" },
  query: "Query",
  key: "Key",
  where: "In",
  matrix: "Matrix",
  row: "Row",
  column: "Column",
  largest: "Largest gradient",
  lossOf: "L of",
  ofWhole: "the whole answer",
  ofToken: (token: string) => `“${token}” alone`,
  output: "Output layer",
  transform: "Transform before the output",
  finalNorm: "Last norm",
  zero: "Back to 0",
  curveOf: (name: string, letter: string, loss: string, slope: string) =>
    `${letter} along: ${name}. ${letter} = ${loss} at 0, slope of the tangent ${slope}.`,
  along: (letter: string, before: string, after: string, slope: string, tangent: string) =>
    `${letter}: ${before} → ${after}. Gradient at 0: ${slope}; the tangent gives ${tangent}.`,
  apart: (token: string, other: string) => `logit “${token}” − logit “${other}”`,
  asLikely: (token: string, other: string, times: string) => `“${token}” is ${times} times as likely as “${other}”.`,
  probabilities: "Probability of each token of the answer",

  teach: "Teach it one answer",
  teachHint:
    "Give the right answer above as the expected one and press Learn: three steps of all weights against the gradient " +
    "of its −log p, each half as far as where the tangent reaches 0. Then see which other answers have changed.",
  learn: "Learn",
  lesson: (losses: string) => `−log p ${losses}`,
  others: "Other texts",
  othersHint: "yours, between commas; else the text without some of its letters",
  othersColumns: ["Text", "Before", "Now"],
  othersChanged: (changed: number, asked: number, all: number) =>
    `${changed} of ${asked} have another answer` + (asked < all ? ` (${all} to ask) …` : "."),
  linked: "The address of this page has the lessons: who opens a link to it has the same weights.",

  decided: (token: string) => `Where “${token}” is decided`,
  decidedHint:
    "Each part adds its bar to the token’s logit: with the norms’ spread held as it is in this run, the " +
    "bars add up to the logit exactly (an activation before the output layer counts likewise, as a factor). On the right: what the model would say if it stopped there.",
  columns: ["part", "adds to the logit", "by head", "would say"],
  attribution: "Tokens read: gradient times input",
  attributionHint:
    "The gradient of the logit above (of two tokens, of the difference of their logits) at each token’s row of the embedding, " +
    "times that row: to first order, what would be lost without it. Orange speaks for the token, blue against it.",
  embedding: "Token and position",
  biases: "Biases",
  total: "Logit",
};

type Words = typeof en;

const ko: Words = {
  ask: "직접 입력",
  text: "텍스트",
  hint:
    "모델이 이 페이지 안에서 오프라인으로 실행됩니다. 가중치는 8비트 정수로 들어 있습니다. 입력하면 답이 " +
    "바로 나오며, 토큰마다 확률이 가장 높은 것을 고릅니다.",
  empty: "모델이 읽을 텍스트를 입력해 주십시오.",
  tooLong: (tokens, most) => `토큰이 ${tokens}개인데, 모델은 ${most}개까지 읽습니다.`,
  unknown: (units) => `학습에 없던 문자: ${units}`,
  pieces: "텍스트를 조각마다 답합니다. 조각을 누르면 그 안을 봅니다.",
  together: "답 전체:",
  expected: "바라는 답",
  itsOwn: "모델의 답",
  unfit: (answer) => `모델이 “${answer}”을(를) 낼 수 없습니다. [MASK]마다 토큰 하나, 또는 모델의 레이블이어야 합니다.`,
  expectedAnswer: "바라는 답:",
  rather: "대신",
  decidedRather: (token, other) => `“${other}” 대신 “${token}”인 까닭`,
  keep: "이 변화를 남기기",
  forget: "학습된 그대로",
  whole: "모두 켰을 때:",
  without: (part) => `끈 부분: ${part} →`,
  parts: (count) => `부분 ${count}개`,
  loss: (nats) => `손실 −log p = ${nats}`,
  stopped: "끝나지 않음",
  writesNothing: "(모델이 아무것도 쓰지 않습니다)",
  took: (tokens, ms) => `토큰 ${tokens}개, ${ms} ms`,
  same: "답이 그대로입니다.",
  firstAnswer: (before, after) => `처음 답의 −log p: ${before} → ${after}`,
  tokenLoss: (token, nats) => `“${token}”의 −log p ${nats}`,
  answerTokens: "답의 토큰과 −log p, 고르면 어디에서 정해지는지 보입니다",

  board: "부분 끄기",
  boardHint:
    "따로 고르지 않으면 끈 헤드의 출력은 0이고, 끈 피드포워드나 어텐션은 아무것도 더하지 않습니다. 끈 토큰은 아무도 보지 " +
    "못합니다. 주황색이 짙을수록 그 부분이 없을 때 답의 확률이 더 떨어집니다.",
  replaced: "끈 부분이 내는 값",
  modes: { zero: "영(0)", mean: "이 텍스트에서의 평균", text: "다른 텍스트에서의 행" },
  rankingRather: (token, other) =>
    `헤드, 서브레이어, 토큰을 하나씩 꺼 보고 “${token}”의 로짓에서 “${other}”의 로짓을 뺀 값이 얼마나 줄어드는지 잽니다.`,
  everything: "모두 켜기",
  tokens: "읽은 토큰",
  stacks: { encoder: "인코더", decoder: "디코더" },
  layer: (n) => `레이어 ${n}`,
  self: "셀프 어텐션",
  cross: "크로스 어텐션",
  network: "피드포워드",
  head: (n) => `${n}번 헤드`,
  token: (n, token) => `${n}번 토큰 “${token}”`,
  edge: (query, key) => `“${query}” → “${key}” 연결`,

  ranking: "이 답에 가장 중요한 부분",
  rankingHint:
    "헤드, 서브레이어, 토큰을 하나씩 꺼 보고 답의 −log p가 얼마나 커지는지 잽니다. 누르면 그 부분만 끕니다.",
  sorts: { all: "전체", heads: "헤드", sublayers: "서브레이어", tokens: "토큰" },
  measuring: (done, all) => `부분을 하나씩 꺼 보고 있습니다: ${all}개 중 ${done}개 …`,
  becomes: (answer) => `바뀐 답: ${answer || "(없음)"}`,
  more: (count) => `${count}개 모두 보기`,
  fewer: "줄여 보기",

  edges: "헤드 하나의 지도",
  edgesHint:
    "행은 쿼리, 열은 키이며 방향키로 움직입니다. 끊기: 그 쿼리가 그 키를 보지 못하고, 같은 행의 나머지가 가중치를 " +
    "나눠 갖습니다. 점수 바꾸기: 아래 카드에서 그 점수를 움직입니다.",
  presses: "칸을 누르면 하는 일",
  cut: "끊기",
  pick: "점수 바꾸기",
  compare: "나란히",
  besides: { none: "없음", head: "다른 헤드", text: "다른 텍스트", gradient: "점수의 기울기" },
  gradientOf: (what) => `점수의 기울기: ${what}`,
  otherText: "다른 텍스트",
  ofHead: "헤드",
  cell: (query, key, weight, on) => `${query} → ${key}: ${on ? `가중치 ${weight} %` : "✕ 끊음"}`,

  edit: "숫자 하나 바꾸기",
  editHint:
    "δ를 끌면 숫자가 바뀌고 모델이 그 숫자로 다시 실행됩니다. 곡선은 점 41개에서 정확히 계산한 손실 " +
    "L = −log p입니다. 점선은 δ = 0에서의 접선으로, 손으로 유도한 이 페이지의 역전파가 지금 텍스트에 대해 계산한 기울기입니다. “모든 가중치”는 기울기 반대로 η만큼 움직입니다.",
  kinds: { score: "점수 하나", weight: "가중치 하나", step: "모든 가중치" },
  query: "쿼리",
  key: "키",
  where: "위치",
  matrix: "행렬",
  row: "행",
  column: "열",
  largest: "기울기가 가장 큰 곳",
  lossOf: "손실 L",
  ofWhole: "답 전체",
  ofToken: (token) => `“${token}”만`,
  output: "출력 레이어",
  transform: "출력 앞의 변환",
  finalNorm: "마지막 정규화",
  zero: "0으로",
  curveOf: (name, letter, loss, slope) => `${letter}의 곡선: ${name}. 0에서 ${letter} = ${loss}, 접선의 기울기 ${slope}.`,
  along: (letter, before, after, slope, tangent) =>
    `${letter}: ${before} → ${after}. 0에서의 기울기 ${slope}, 접선의 값 ${tangent}.`,
  apart: (token, other) => `“${token}”의 로짓 − “${other}”의 로짓`,
  asLikely: (token, other, times) => `“${token}”의 확률은 “${other}”의 ${times}배입니다.`,
  probabilities: "답의 토큰별 확률",

  teach: "답 하나 가르치기",
  teachHint:
    "위에 바라는 답을 적고 가르치기를 누르면, 그 답의 −log p를 줄이는 쪽으로 모든 가중치가 세 스텝 움직입니다. 스텝마다 접선이 " +
    "0에 닿는 거리의 절반만큼 갑니다. 그다음 다른 텍스트의 답이 얼마나 바뀌었는지 봅니다.",
  learn: "가르치기",
  lesson: (losses) => `손실 −log p ${losses}`,
  others: "다른 텍스트",
  othersHint: "쉼표로 나누어 적습니다. 비워 두면 글자를 뺀 텍스트",
  othersColumns: ["텍스트", "전", "지금"],
  othersChanged: (changed, asked, all) => `${asked}개 가운데 ${changed}개의 답이 바뀜` + (asked < all ? ` (모두 ${all}개) …` : "."),
  linked: "이 페이지의 주소에 가르친 것이 들어 있습니다. 링크를 열면 같은 가중치가 됩니다.",

  decided: (token) => `“${token}”이(가) 정해지는 곳`,
  decidedHint:
    "각 부분은 이 토큰의 로짓에 막대만큼 더합니다. 정규화가 나누는 값(출력 앞의 활성화 함수는 곱하는 값)을 이 실행의 값으로 고정하면 막대의 " +
    "합이 로짓과 정확히 같습니다. 오른쪽은 거기에서 멈춘다면 모델이 고를 토큰입니다.",
  columns: ["부분", "로짓에 더하는 값", "헤드별", "고를 토큰"],
  attribution: "읽은 토큰: 기울기 × 입력",
  attributionHint:
    "위 로짓(토큰 둘을 견줄 때는 두 로짓의 차)을 각 토큰의 임베딩 행으로 미분한 기울기에 그 행을 곱한 값입니다. 그 행이 없다면 " +
    "로짓이 얼마나 줄어들지를 1차로 어림합니다. 주황은 그 토큰을 고르게 하는 쪽, 파랑은 막는 쪽입니다.",
  embedding: "토큰과 위치",
  biases: "바이어스",
  total: "로짓",
};

export const TEXTS: { [language in Language]: Words } = { en, ko };
