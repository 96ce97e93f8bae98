// The questions of every tab, three at most, made of the record in view.

import { span } from "./attention.ts";
import { number, percent } from "./dom.ts";
import type { Model } from "./model.ts";
import type { Chapter, Question } from "./opening.ts";
import { unpackHead } from "./record.ts";
import type { Label, Part, Side } from "./record.ts";
import { largest } from "./run/forward.ts";
import type { Language } from "./text.ts";

const en = {
  ordinals: ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"],
  nth: (ordinal: string, token: string) => `the ${ordinal} “${token}”`,
  write: (token: string) => `To write ${token}`,
  end: "To end the answer",
  read: (token: string) => `To understand ${token}`,
  looks: (when: string, key: string, weight: string) => `${when}, this head looks at ${key}: ${weight}.`,
  which: (head: string) => `${head}. Other heads look elsewhere; choose another row or head, and the sentence follows.`,
  ask: (when: string) => `${when}, which token does this head look at most?`,
  wrong: (guess: string, weight: string) => `Not ${guess} (${weight}).`,
  asks: "Questions about this text, answered from the numbers below: guess before you look.",
  ratio: (a: string, b: string, more: string) =>
    `The score of ${a} is ${more} above that of ${b}. How many times larger is its weight?`,
  ratioWhy: (more: string, times: string) => `e to ${more} is ${times}: softmax turns differences into ratios.`,
  count: (query: string, keys: number) => `As if to how many of its ${keys} keys does query ${query} attend?`,
  countWhy: (entropy: string, count: string) => `The entropy of its row is ${entropy} nats, and e to that is ${count}.`,
  unscaled: "Were the scores of this head not scaled (multiplied by 1), what would the largest weight of a row be, on average?",
  unscaledWhy: (own: string, now: string) => `It is ${own} with the model’s scale and ${now} without.`,
  raises: "Of which of these tokens would a training step raise the logit?",
  raisesWhy: (token: string, d: string) =>
    `Only the expected token’s p − y is below 0 (${d} for ${token}), and a step goes against it.`,
  arrives: (token: string, side: string) => `Follow the gradient of ${token} back: which token of the ${side} does most of it reach?`,
  arrivesWhy: (token: string, share: string) => `${share} of the lengths arrive at ${token}.`,
  sides: { source: "encoder", target: "decoder" } as { [side in Side]: string },
  score: (query: string) => `For query ${query}: which key’s score would a step raise most?`,
  scoreWhy: (key: string, da: string) => `${key} has the lowest ∂L/∂A, ${da}.`,
  unsure: "Of which token of the answer is the model least sure?",
  unsureWhy: (token: string, p: string) => `It gives ${token} p = ${p}.`,
  rival: (n: number, token: string) => `What would it rather have written in place ${n} than ${token}, or as the next best?`,
  rivalWhy: (token: string, p: string) => `${token} has p = ${p} there.`,
  whole: "How likely is the whole answer to the model?",
  wholeWhy: (tokens: number, loss: string) => `The ${tokens} probabilities multiply: e to −${loss}.`,
  most: "Which of these have most of the model’s parameters?",
  mostWhy: (name: string, count: string, share: string) => `${name}: ${count}, ${share} of all.`,
  groups: { embedding: "embeddings and output", attention: "attention", network: "feed-forward networks" },
  longest: (token: string, stack: string) => `Where is the row of ${token} longest on its way through the ${stack}?`,
  layer: (n: number) => `after layer ${n}`,
  longestWhy: (lengths: string) => `Its lengths, layer by layer: ${lengths}.`,
  shape: "How many weights does the softmax of one cross- or self-attention in view return?",
  shapeWhy: (shape: string) => `Heads × queries × keys = ${shape}.`,
};

type Words = typeof en;

/** A word with the particle that its last syllable asks for; both where it is no Hangul. */
function josa(word: string, after: string, open: string): string {
  const code = word.replace(/[”’)]+$/u, "").charCodeAt(word.replace(/[”’)]+$/u, "").length - 1) - 0xac00;
  return word + (code < 0 || code > 11171 ? `${after}(${open})` : code % 28 > 0 ? after : open);
}

const ko: Words = {
  ordinals: ["첫", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉"],
  nth: (ordinal, token) => `${ordinal} 번째 “${token}”`,
  write: (token) => `${josa(token, "을", "를")} 쓸 때`,
  end: "답을 끝낼 때",
  read: (token) => `${josa(token, "을", "를")} 이해할 때`,
  looks: (when, key, weight) => `${when} 이 헤드는 ${josa(key, "을", "를")} 봅니다: ${weight}.`,
  which: (head) => `${head}입니다. 다른 헤드는 다른 곳을 봅니다. 행이나 헤드를 바꾸면 문장도 바뀝니다.`,
  ask: (when) => `${when} 이 헤드가 가장 많이 보는 토큰은 무엇일까요?`,
  wrong: (guess, weight) => `${josa(guess, "이", "가")} 아닙니다(${weight}).`,
  asks: "이 텍스트에 대한 문제입니다. 답은 아래의 값으로 계산합니다. 보기 전에 맞혀 보세요.",
  ratio: (a, b, more) => `키 ${a}의 점수가 키 ${b}의 점수보다 ${more} 높습니다. 가중치는 몇 배일까요?`,
  ratioWhy: (more, times) => `e의 ${more}제곱은 ${times}입니다. softmax는 차이를 비율로 바꿉니다.`,
  count: (query, keys) => `쿼리 ${josa(query, "은", "는")} 키 ${keys}개 가운데 몇 개에 집중하는 것과 같을까요?`,
  countWhy: (entropy, count) => `행의 엔트로피는 ${entropy} nat이고, e를 이만큼 거듭제곱하면 ${count}입니다.`,
  unscaled: "이 헤드의 점수에 스케일 대신 1을 곱하면, 행에서 가장 큰 가중치는 평균 얼마가 될까요?",
  unscaledWhy: (own, now) => `모델의 스케일에서는 ${own}, 스케일이 없으면 ${now}입니다.`,
  raises: "학습 한 스텝은 어느 토큰의 로짓을 올릴까요?",
  raisesWhy: (token, d) => `정답 토큰의 p − y만 음수이고(${token}: ${d}), 스텝은 기울기의 반대로 갑니다.`,
  arrives: (token, side) => `${token}의 기울기를 거슬러 따라가면 ${side}의 어느 토큰에 가장 많이 도착할까요?`,
  arrivesWhy: (token, share) => `길이의 ${share}가 ${token}에 도착합니다.`,
  sides: { source: "인코더", target: "디코더" },
  score: (query) => `쿼리 ${query}에서 학습 한 스텝은 어느 키의 점수를 가장 많이 올릴까요?`,
  scoreWhy: (key, da) => `${key}의 ∂L/∂A가 ${da}로 가장 낮습니다.`,
  unsure: "모델이 가장 자신 없어 하는 답의 토큰은 무엇일까요?",
  unsureWhy: (token, p) => `${token}의 확률은 ${p}입니다.`,
  rival: (n, token) => `${n}번째 자리에서 ${token} 말고 가장 그럴듯하다고 본 토큰은 무엇일까요?`,
  rivalWhy: (token, p) => `그 자리에서 ${token}의 확률은 ${p}입니다.`,
  whole: "모델이 보기에 답 전체의 확률은 얼마일까요?",
  wholeWhy: (tokens, loss) => `토큰 ${tokens}개의 확률을 곱합니다: e의 −${loss}제곱.`,
  most: "모델의 파라미터는 어디에 가장 많을까요?",
  mostWhy: (name, count, share) => `${name}: ${count}개, 전체의 ${share}입니다.`,
  groups: { embedding: "임베딩과 출력 레이어", attention: "어텐션", network: "피드포워드 네트워크" },
  longest: (token, stack) => `${token}의 행은 ${stack}의 어디에서 가장 길까요?`,
  layer: (n) => `레이어 ${n} 뒤`,
  longestWhy: (lengths) => `레이어마다 길이: ${lengths}.`,
  shape: "지금 보는 어텐션 하나의 softmax는 가중치를 몇 개 돌려줄까요?",
  shapeWhy: (shape) => `헤드 × 쿼리 × 키 = ${shape}.`,
};

export const TEXTS: { [language in Language]: Words } = { en, ko };
const QUESTIONS = 3;
/** More tokens than this are no choice for a guess. */
const CHOICES = 16;
/** A weight that is worth a question. */
const CLEAR = 0.4;

/** The chapters of the tabs that have one. */
export function chapters(model: Model): { [tab in "whole" | "attention" | "steps" | "backward" | "generation"]: Chapter } {
  const t = TEXTS[model.state.language];
  const of = (questions: () => (Question | null)[]): Chapter => ({
    idle: () => "",
    hint: () => t.asks,
    questions: () => questions().filter((one) => one !== null),
  });
  return {
    attention: {
      always: true,
      idle: () => looks(model, t, model.state.query),
      hint: () => t.which(model.headName),
      questions: () => attention(model, t),
    },
    whole: of(() => whole(model, t)),
    steps: of(() => steps(model, t)),
    backward: of(() => backward(model, t)),
    generation: of(() => generation(model, t)),
  };
}

/** A token, and which of several that look the same. */
function named(t: Words, labels: Label[], at: number): string {
  const text = labels[at]![0];
  const same = labels.flatMap(([other], i) => (other === text ? [i] : []));
  const ordinal = t.ordinals[same.indexOf(at)];
  return same.length > 1 && ordinal !== undefined ? t.nth(ordinal, text) : `“${text}”`;
}

/** The row of a query among a head's weights, scores or gradients. */
function row(model: Model, values: Float32Array, query: number): Float32Array {
  const [first, end] = span(query, model.keys.length, model.head.rule);
  return values.subarray(query * model.keys.length + first, query * model.keys.length + end);
}

/** A question with choices of numbers, the right one first; none where two of them look the same. */
function numeric(ask: string, values: number[], write: (x: number) => string, why: string): Question | null {
  const texts = values.map(write);
  if (new Set(texts).size < texts.length || values.some((x) => !Number.isFinite(x))) return null;
  const order = values.map((_, i) => i).sort((a, b) => values[a]! - values[b]!);
  return { ask, choices: order.map((i) => texts[i]!), right: order.indexOf(0), why };
}

// Attention: where a head looks

function strongest(model: Model, query: number): { key: number; weight: number } {
  const { values } = model.head.own;
  const weights = row(model, values, query);
  const at = largest(weights);
  return { key: at + span(query, model.keys.length, model.head.rule)[0], weight: weights[at]! };
}

/** What the model does at a query. */
function when(model: Model, t: Words, query: number): string {
  if (model.head.map.queries === "source") return t.read(named(t, model.queries, query));
  const written = model.record.target;
  return query + 1 < written.length ? t.write(named(t, written, query + 1)) : t.end;
}

function looks(model: Model, t: Words, query: number): string {
  const { key, weight } = strongest(model, query);
  return t.looks(when(model, t, query), named(t, model.keys, key), percent(weight));
}

/** The rows that are worth a question, the clearest first. */
function attention(model: Model, t: Words): Question[] {
  const { queries, keys, head } = model;
  if (keys.length < 3 || keys.length > CHOICES) return [];
  const found = queries.map((_, query) => ({ query, ...strongest(model, query) }));
  const clear = found.filter(({ query, weight }) => weight >= CLEAR && weight < 1 && query > 0);
  clear.sort((a, b) => b.weight - a.weight);
  return clear.slice(0, QUESTIONS).map(({ query, key }) => {
    const [first, end] = span(query, keys.length, head.rule);
    const weights = row(model, head.own.values, query);
    return {
      ask: t.ask(when(model, t, query)),
      choices: keys.slice(first, end).map(([text]) => text),
      right: key - first,
      wrong: (guess) => t.wrong(named(t, keys, first + guess), percent(weights[guess]!)),
      why: looks(model, t, query),
      query,
      key,
    };
  });
}

// Step by step: what softmax and the scale do

function steps(model: Model, t: Words): (Question | null)[] {
  const { head, keys, queries, state: { query } } = model;
  const weights = row(model, head.own.values, query);
  const first = span(query, keys.length, head.rule)[0];
  const order = [...weights.keys()].sort((a, b) => weights[b]! - weights[a]!);
  const name = named(t, queries, query);
  const entropy = weights.reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);
  const count = Math.exp(entropy);
  const short = (x: number) => (x < 100 ? number(x, 2) : Math.round(x).toLocaleString("en"));
  const made: (Question | null)[] = [];
  if (order.length > 1) {
    const times = weights[order[0]!]! / weights[order[1]!]!;
    const more = Math.log(times);
    const [a, b] = order.map((at) => named(t, keys, first + at));
    made.push(
      numeric(t.ratio(a!, b!, short(more)), [times, more, 2 * more], short, t.ratioWhy(short(more), short(times))),
      numeric(
        t.count(name, order.length),
        [count, order.length, (count + 3 * order.length) / 4],
        (x) => x.toFixed(1),
        t.countWhy(entropy.toFixed(2), count.toFixed(1)),
      ),
    );
  }
  const [own, now] = [head.ownSummary.peak, head.summary(1).peak];
  const [x, y] = [own.toFixed(2), now.toFixed(2)];
  made.push(numeric(t.unscaled, [now, own, own ** 2], (p) => p.toFixed(2), t.unscaledWhy(x, y)));
  return made;
}

// Backward: which way a step goes

function backward(model: Model, t: Words): (Question | null)[] {
  const { record, state, head, keys, queries } = model;
  const step = record.steps[state.step];
  if (!step) return [];
  const token = `“${step.label[0]}”`;
  const shown = step.candidates.slice(0, 4).map((one): [string, number] => [one[0], one[2]]);
  if (!shown.some(([text]) => text === step.label[0])) shown[3] = [step.label[0], step.probability];
  shown.sort(([a], [b]) => (a < b ? -1 : 1));
  const made: (Question | null)[] = [
    {
      ask: t.raises,
      choices: shown.map(([text]) => text),
      right: shown.findIndex(([text]) => text === step.label[0]),
      why: t.raisesWhy(token, number(step.probability - 1, 2)),
    },
  ];
  const last = record.flows?.find((one) => one.step === state.step)?.stages.at(-1);
  if (last && record[last.side].length <= CHOICES) {
    const lengths = unpackHead(last.lengths, 3).values;
    const [at, sum] = [largest(lengths), lengths.reduce((a, b) => a + b, 0)];
    const labels = record[last.side];
    made.push({
      ask: t.arrives(token, t.sides[last.side]),
      choices: labels.map(([text]) => text),
      right: at,
      why: t.arrivesWhy(named(t, labels, at), percent(lengths[at]! / sum)),
    });
  }
  const first = span(state.query, keys.length, head.rule)[0];
  const scores = row(model, head.scoreGradient.values, state.query);
  const lowest = largest(scores, (x) => -x);
  if (scores[lowest]! < 0 && scores.length > 1 && scores.length <= CHOICES) {
    made.push({
      ask: t.score(named(t, queries, state.query)),
      choices: [...scores.keys()].map((at) => keys[first + at]![0]),
      right: lowest,
      why: t.scoreWhy(named(t, keys, first + lowest), number(scores[lowest]!, 2)),
    });
  }
  return made;
}

// Generation: how sure the model is

function generation(model: Model, t: Words): (Question | null)[] {
  const { record: { steps, loss } } = model;
  if (steps.length < 2 || steps.length > CHOICES) return [];
  const probabilities = steps.map(({ probability }) => probability);
  const at = largest(probabilities, (p) => -p);
  const { label, candidates, probability } = steps[at]!;
  const rivals = candidates.filter(([text]) => text !== label[0]).slice(0, 4);
  const rival = rivals[0];
  rivals.sort(([a], [b]) => (a < b ? -1 : 1));
  const mean = probabilities.reduce((a, b) => a + b, 0) / steps.length;
  return [
    {
      ask: t.unsure,
      choices: steps.map((step) => step.label[0]),
      right: at,
      why: t.unsureWhy(`“${label[0]}”`, percent(probability)),
    },
    rival
      ? {
          ask: t.rival(at + 1, `“${label[0]}”`),
          choices: rivals.map(([text]) => text),
          right: rivals.indexOf(rival),
          why: t.rivalWhy(`“${rival[0]}”`, percent(rival[2])),
        }
      : null,
    numeric(t.whole, [Math.exp(-loss), probability, mean], percent, t.wholeWhy(steps.length, loss.toFixed(2))),
  ];
}

// The whole model: where its numbers are

function whole(model: Model, t: Words): (Question | null)[] {
  const { parts, head, queries, keys, state, record } = model;
  const sizes = { embedding: 0, attention: 0, network: 0 };
  for (const part of parts) {
    const group = part.role === "feed_forward" ? "network" : part.map || part.role === "projection" ? "attention" : "embedding";
    if (part.role === "norm") continue;
    for (const [, shape, same] of part.tensors) if (!same) sizes[group] += shape.reduce((a, b) => a * b, 1);
  }
  const names = Object.keys(sizes) as (keyof typeof sizes)[];
  const counts = names.map((name) => sizes[name]);
  const at = largest(counts);
  const all = counts.reduce((a, b) => a + b, 0);
  const { map: { queries: side }, q, v } = head;
  const stack = head.map.kind === "encoder" ? "encoder" : "decoder";
  const ends = new Map<number, Part>();
  for (const part of parts) {
    if (part.stack === stack && part.layer !== null && part.rows_norms) ends.set(part.layer, part);
  }
  const lengths = [...ends.values()].map((part) => unpackHead(part.rows_norms!, 0).values[state.query]!);
  const [heads, L, S, D] = [model.all[0]!.length, queries.length, keys.length, v.width];
  return [
    {
      ask: t.most,
      choices: names.map((name) => t.groups[name]),
      right: at,
      why: t.mostWhy(t.groups[names[at]!], counts[at]!.toLocaleString("en"), percent(counts[at]! / all)),
    },
    lengths.length > 1
      ? {
          ask: t.longest(named(t, record[side], state.query), t.sides[side]),
          choices: lengths.map((_, n) => t.layer(n + 1)),
          right: largest(lengths),
          why: t.longestWhy(lengths.map((x) => number(x, 3)).join(", ")),
        }
      : null,
    numeric(t.shape, [heads * L * S, L * S, heads * q.count * D], String, t.shapeWhy(`${heads} × ${L} × ${S}`)),
  ];
}
