// The words of the story, in English and in Korean: one idea a screen.

import type { Language } from "../text.ts";

const en = {
  name: "A Transformer in eight screens",
  open: "Story",
  word: "Your text",
  right: "The right answer",
  itsOwn: "the model’s own",
  screens: "Screens",
  screen: (n: number, of: number) => `Screen ${n} of ${of}`,
  back: "Back",
  next: "Next",
  close: "Take the model apart",
  unread: "The model cannot read this: type a shorter text.",
  short: ["Letters", "Vectors", "One head", "All heads", "Answer", "Loss", "Backward", "One step"],
  titles: [
    "A text becomes numbers",
    "A number becomes a vector",
    "One head looks",
    "All heads look",
    "The answer is a choice",
    "The loss says how wrong it was",
    "The gradient goes back",
    "One step, and it has learnt",
  ],
  letters: (text: string, count: number, size: number) =>
    `A model does not read letters. “${text}” becomes ${count} numbers: each is a token’s place in a list of ${size}.`,
  vectors: (token: string, width: number, near: string, cosine: string) =>
    `Each number picks its row of a table: ${width} numbers, the token’s vector. The row most like that of “${token}” is that of “${near}” (cosine ${cosine}).`,
  vectorsHint: "Orange is above 0, blue below. Nobody wrote these numbers: training found them. Press a token.",
  oneHead: (written: string, token: string, w: string) =>
    `To write “${written}”, this head looks most at “${token}”: ${w}. It compares what it asks with what every token offers.`,
  oneHeadHint: "A band is as wide as the weight; the weights of a row add up to 100 %. Press what was written.",
  allHeads: (count: number, sharp: string, wide: string) =>
    `${count} heads do this, layer by layer, each with a question of its own. The most focused one looks at ${sharp} tokens at a time, the widest at ${wide}.`,
  allHeadsHint: "Rows look at columns; the darker, the more. What a head finds is added to the token’s vector, and the next layer reads that.",
  answer: (place: number, token: string, p: string) =>
    `At the end every possible token gets a probability. In place ${place}, “${token}” gets ${p}.`,
  answerHint: "The most likely one is written, read again, and so the answer grows. Press a place.",
  loss: (right: string, loss: string, p: string) =>
    `The loss is −log p of the right answer. For “${right}” it is ${loss}: the model gave it ${p}.`,
  lossHint: "A loss of 0 would mean that the model was certain. Type another right answer, and see its loss.",
  backward: (token: string, share: string) =>
    `How would the loss change if this number were a little larger? That is its gradient. It runs back through all layers; of what reaches the text, ${share} is at “${token}”.`,
  backwardHint: "A ribbon is as wide as the gradient is long, from the answer on top to the tokens below.",
  before: (count: string, right: string, p: string) =>
    `All ${count} numbers of the model move a little against their gradient. “${right}” has ${p} now. Take the step.`,
  after: (steps: number, right: string, before: string, p: string) =>
    `After ${steps === 1 ? "one step" : `${steps} steps`} “${right}” has ${p}; it had ${before}.`,
  step: "Take one step",
  forget: "As it was trained",
  writes: (answer: string) => `It writes “${answer}”.`,
  /** Of a model that guesses what is masked or gives labels, all places at once. */
  alone: {
    oneHead: (read: string, token: string, w: string) =>
      `While it reads “${read}”, this head looks most at “${token}”: ${w}. It compares what it asks with what every token offers.`,
    oneHeadHint: "A band is as wide as the weight; the weights of a row add up to 100 %. The text is above, and below again. Press a token.",
    answerHint: "The most likely one is the guess. All places are guessed at once, each from the whole text. Press a place.",
    label: (place: number | null, label: string, p: string) =>
      `In the end every label has a probability. “${label}” has ${p}${place === null ? "" : ` in place ${place}`}.`,
    labelHint: "The most likely label is the answer.",
    writes: (answer: string) => `Its answer is “${answer}”.`,
    steps: ["step", "p of the right answer", "the model’s answer"],
  },
  steps: ["step", "p of the right answer", "the model writes"],
  end: "That is training: this step, some thousand times, with many texts. With pairs of your own:",
  stacks: { encoder: "encoder", decoder: "decoder" },
  layer: (n: number) => `layer ${n}`,
  keys: "The arrow keys change the screen.",
};

type Words = typeof en;

const ko: Words = {
  name: "여덟 장으로 보는 트랜스포머",
  open: "이야기",
  word: "텍스트",
  right: "맞는 답",
  itsOwn: "모델의 답",
  screens: "화면",
  screen: (n, of) => `화면 ${n}/${of}`,
  back: "이전",
  next: "다음",
  close: "모델 분해해 보기",
  unread: "모델이 읽을 수 없습니다. 더 짧은 텍스트를 입력해 주십시오.",
  short: ["글자", "벡터", "헤드 하나", "모든 헤드", "답", "손실", "역전파", "한 걸음"],
  titles: [
    "텍스트가 번호가 됩니다",
    "번호가 벡터가 됩니다",
    "헤드 하나가 봅니다",
    "모든 헤드가 봅니다",
    "답은 선택입니다",
    "손실은 얼마나 틀렸는지 말합니다",
    "기울기가 거슬러 갑니다",
    "한 걸음, 그리고 배웠습니다",
  ],
  letters: (text, count, size) => `모델은 글자를 그대로 읽지 않습니다. 텍스트 “${text}”의 토큰 ${count}개가 저마다 번호가 됩니다. 번호는 토큰 ${size}개의 목록에서 그 토큰이 몇 번째인지입니다.`,
  vectors: (token, width, near, cosine) =>
    `번호마다 임베딩 테이블에서 한 행을 고릅니다. 그 행의 숫자 ${width}개가 토큰의 벡터입니다. “${token}”의 행과 가장 비슷한 것은 “${near}”의 행입니다(코사인 ${cosine}).`,
  vectorsHint: "주황은 0보다 큰 값, 파랑은 작은 값입니다. 사람이 적은 숫자가 아니라 학습이 찾은 숫자입니다. 토큰을 눌러 보십시오.",
  oneHead: (written, token, w) => `“${written}”을(를) 쓸 때 이 헤드는 “${token}”을(를) 가장 많이 봅니다. ${w}입니다. 헤드가 찾는 것(쿼리)을 토큰마다 가진 것(키)과 비교한 결과입니다.`,
  oneHeadHint: "띠의 너비가 가중치이고, 한 행의 가중치를 더하면 100 %입니다. 쓴 토큰을 눌러 보십시오.",
  allHeads: (count, sharp, wide) => `레이어마다 헤드가 있고, 헤드 ${count}개가 저마다 다른 것을 찾습니다. 가장 좁게 보는 헤드는 한 번에 토큰 ${sharp}개를, 가장 넓게 보는 헤드는 ${wide}개를 봅니다.`,
  allHeadsHint: "행이 열을 봅니다. 진할수록 많이 봅니다. 헤드가 찾은 것은 토큰의 벡터에 더해지고, 다음 레이어가 그것을 읽습니다.",
  answer: (place, token, p) => `마지막에는 다음에 올 수 있는 모든 토큰에 확률이 매겨집니다. ${place}번째 자리에서 “${token}”의 확률은 ${p}입니다.`,
  answerHint: "가장 그럴듯한 것을 쓰고, 그것을 다시 읽으면서 답이 길어집니다. 자리를 눌러 보십시오.",
  loss: (right, loss, p) => `손실은 맞는 답의 −log p입니다. “${right}”의 손실은 ${loss}입니다. 모델이 준 확률은 ${p}입니다.`,
  lossHint: "모델이 확신하면 손실은 0입니다. 다른 답을 맞는 답으로 적고 손실이 얼마인지 보십시오.",
  backward: (token, share) =>
    `이 숫자가 조금 커지면 손실이 얼마나 달라질까요? 그것이 기울기입니다. 모든 레이어를 거슬러 올라가 입력 텍스트에 닿는 기울기 가운데 ${share}가 “${token}”에 모입니다.`,
  backwardHint: "띠의 너비가 기울기의 길이입니다. 맨 위의 답에서 아래의 토큰까지 내려갑니다.",
  before: (count, right, p) => `모델의 숫자 ${count}개가 모두 기울기 반대쪽으로 조금씩 움직입니다. 지금 “${right}”의 확률은 ${p}입니다. 한 걸음 내디뎌 보십시오.`,
  after: (steps, right, before, p) => `${steps}걸음 뒤 “${right}”의 확률은 ${p}입니다. 처음에는 ${before}였습니다.`,
  step: "한 걸음 내딛기",
  forget: "학습된 그대로",
  writes: (answer) => `모델의 답은 “${answer}”입니다.`,
  alone: {
    oneHead: (read, token, w) => `“${read}”을(를) 읽을 때 이 헤드는 “${token}”을(를) 가장 많이 봅니다. ${w}입니다. 헤드가 찾는 것(쿼리)을 토큰마다 가진 것(키)과 비교한 결과입니다.`,
    oneHeadHint: "띠의 너비가 가중치이고, 한 행의 가중치를 더하면 100 %입니다. 위와 아래가 같은 텍스트입니다. 토큰을 눌러 보십시오.",
    answerHint: "가장 그럴듯한 것이 추측입니다. 모든 자리를 텍스트 전체를 보고 한꺼번에 추측합니다. 자리를 눌러 보십시오.",
    label: (place, label, p) => `마지막에는 모든 레이블에 확률이 있습니다. ${place === null ? "" : `${place}번째 자리에서 `}“${label}”의 확률은 ${p}입니다.`,
    labelHint: "가장 그럴듯한 레이블이 답입니다.",
    writes: (answer) => `모델의 답은 “${answer}”입니다.`,
    steps: ["걸음", "맞는 답의 확률", "모델의 답"],
  },
  steps: ["걸음", "맞는 답의 확률", "모델이 쓰는 답"],
  end: "학습은 이 한 걸음을 여러 텍스트로 수천 번 되풀이하는 것입니다. 여러분의 데이터로 해 보려면:",
  stacks: { encoder: "인코더", decoder: "디코더" },
  layer: (n) => `레이어 ${n}`,
  keys: "방향키로 화면을 넘깁니다.",
};

export const TEXTS: { [language in Language]: Words } = { en, ko };
