// Attention once more, in the letters of pellucid.ops.attention: what the page draws is computed
// here from q, k and v, so that it can be computed again under another scale.

import type { Rows } from "./record.ts";

/** A matrix (L, S), row by row. */
export interface Matrix {
  values: Float32Array;
  rows: number;
  columns: number;
}

/** Q Kᵀ, before any scale or mask. */
export function products(q: Rows, k: Rows): Matrix {
  const values = new Float32Array(q.count * k.count);
  const width = q.width;
  for (let l = 0; l < q.count; l++) {
    for (let s = 0; s < k.count; s++) {
      let sum = 0;
      for (let d = 0; d < width; d++) sum += q.values[l * width + d]! * k.values[s * width + d]!;
      values[l * k.count + s] = sum;
    }
  }
  return { values, rows: q.count, columns: k.count };
}

/** A part of a rule, by the name of its class in pellucid.ops.rules, and its number. */
export interface RulePart {
  part: string;
  size?: number;
  cap?: number;
}

/** What becomes of scaled products before the softmax. */
export interface Rule {
  parts: RulePart[];
  /** What distances −(n − 1) … n − 1 of query from key add to the scores, (2 n − 1); the last go for all beyond. */
  added: Float32Array | null;
}

export const PLAIN: Rule = { parts: [], added: null };

/** Which keys a part leaves to the query of row l: from the first up to the end. */
const BOUNDS: { [part: string]: (l: number, part: RulePart) => [number, number] } = {
  Causal: (l) => [0, l + 1],
  Window: (l, { size }) => [l - size! + 1, l + size!],
};

/** What a part makes of a score, and the derivative. */
const SCORES: { [part: string]: [(a: number, part: RulePart) => number, (a: number, part: RulePart) => number] } = {
  SoftCap: [(a, { cap }) => cap! * Math.tanh(a / cap!), (a, { cap }) => 1 - Math.tanh(a / cap!) ** 2],
};

export function partOf({ parts }: Rule, name: string): RulePart | undefined {
  return parts.find(({ part }) => part === name);
}

/** Whether the rule changes the scores of the keys that it leaves. */
export function scores({ parts, added }: Rule): boolean {
  return added !== null || parts.some(({ part }) => part in SCORES);
}

/** Whether scores are more than scaled products. */
export function changes(rule: Rule): boolean {
  return scores(rule) || rule.parts.some(({ part }) => part in BOUNDS);
}

/** The keys that the query of row l may look at, from the first up to the end. */
export function span(l: number, columns: number, { parts }: Rule): [number, number] {
  let [first, end] = [0, columns];
  for (const each of parts) {
    const [low, high] = BOUNDS[each.part]?.(l, each) ?? [first, end];
    [first, end] = [Math.max(first, low), Math.min(end, high)];
  }
  return [first, end];
}

/** Whether the query of row l may look at key s. */
export function sees(l: number, s: number, columns: number, rule: Rule): boolean {
  const [first, end] = span(l, columns, rule);
  return first <= s && s < end;
}

/** The score of a key so many places before the query, of their scaled product. */
export function score(scaled: number, distance: number, { parts, added }: Rule): number {
  const a = parts.reduce((x, each) => SCORES[each.part]?.[0](x, each) ?? x, scaled);
  if (added === null) return a;
  const reach = (added.length - 1) / 2;
  return a + added[reach + Math.max(-reach, Math.min(reach, distance))]!;
}

/** How fast a score grows with its scaled product. */
export function slopeOf(scaled: number, { parts }: Rule): number {
  let [a, slope] = [scaled, 1];
  for (const each of parts) {
    const [value, derivative] = SCORES[each.part] ?? [(x: number) => x, () => 1];
    [a, slope] = [value(a, each), slope * derivative(a, each)];
  }
  return slope;
}

/** softmax(score(scale · products)), row by row, into `out`; forbidden keys weigh nothing. */
export function softmax(raw: Matrix, scale: number, rule: Rule, out: Float32Array): void {
  const { values, rows, columns } = raw;
  const plain = !scores(rule);
  for (let l = 0; l < rows; l++) {
    const start = l * columns;
    const [first, end] = span(l, columns, rule).map((s) => start + s) as [number, number];
    let peak = -Infinity;
    for (let i = first; i < end; i++) {
      const a = plain ? values[i]! * scale : score(values[i]! * scale, l - (i - start), rule);
      out[i] = a;
      peak = Math.max(peak, a);
    }
    let sum = 0;
    for (let i = first; i < end; i++) sum += out[i] = Math.exp(out[i]! - peak);
    for (let i = first; i < end; i++) out[i]! /= sum;
    out.fill(0, start, first);
    out.fill(0, end, start + columns);
  }
}

/** Z = W V for one query: what the head hands on, (D). */
export function output(weights: Matrix, v: Rows, l: number): Float32Array {
  const z = new Float32Array(v.width);
  for (let s = 0; s < v.count; s++) {
    const w = weights.values[l * weights.columns + s]!;
    for (let d = 0; d < v.width; d++) z[d]! += w * v.values[s * v.width + d]!;
  }
  return z;
}

/** dW = dZ Vᵀ: by how much the loss grows with each weight. Forbidden keys get none. */
export function weightGradient(dz: Rows, v: Rows, rule: Rule): Matrix {
  const gradient = products(dz, v);
  for (let l = 0; l < gradient.rows; l++) {
    const start = l * gradient.columns;
    const [first, end] = span(l, gradient.columns, rule);
    gradient.values.fill(0, start, start + first);
    gradient.values.fill(0, start + end, start + gradient.columns);
  }
  return gradient;
}

/** dA of the scaled products: times the slope of what the rule makes of them. */
export function uncapped(da: Matrix, raw: Matrix, scale: number, rule: Rule): Matrix {
  return { ...da, values: da.values.map((x, i) => x * slopeOf(scale * raw.values[i]!, rule)) };
}

/** dA = W ⊙ (dW − Σ W dW): the same for each score. */
export function scoreGradient(weights: Float32Array, dw: Matrix): Matrix {
  const values = new Float32Array(dw.values.length);
  for (let l = 0; l < dw.rows; l++) {
    const start = l * dw.columns;
    const end = start + dw.columns;
    let mean = 0;
    for (let i = start; i < end; i++) mean += weights[i]! * dw.values[i]!;
    for (let i = start; i < end; i++) values[i] = weights[i]! * (dw.values[i]! - mean);
  }
  return { values, rows: dw.rows, columns: dw.columns };
}

/** dV = Wᵀ dZ. */
export function valueGradient(weights: Matrix, dz: Rows): Rows {
  return product(weights, dz, 1, true);
}

/** dQ = c dA K. */
export function queryGradient(da: Matrix, k: Rows, scale: number): Rows {
  return product(da, k, scale, false);
}

/** dK = c dAᵀ Q. */
export function keyGradient(da: Matrix, q: Rows, scale: number): Rows {
  return product(da, q, scale, true);
}

/** scale · m x, or scale · mᵀ x. */
function product(m: Matrix, x: Rows, scale: number, transposed: boolean): Rows {
  const count = transposed ? m.columns : m.rows;
  const values = new Float32Array(count * x.width);
  for (let i = 0; i < m.rows; i++) {
    for (let j = 0; j < m.columns; j++) {
      const a = scale * m.values[i * m.columns + j]!;
      const [to, from] = transposed ? [j, i] : [i, j];
      for (let d = 0; d < x.width; d++) values[to * x.width + d]! += a * x.values[from * x.width + d]!;
    }
  }
  return { values, count, width: x.width };
}

/** A number of one head's attention that a finite difference moves: w_ij, a_ij, q_id, k_jd, v_jd. */
export interface Moved {
  what: "w" | "a" | "q" | "k" | "v";
  row: number;
  column: number;
}

export interface HeadArrays {
  q: Rows;
  k: Rows;
  v: Rows;
  dz: Rows;
  scale: number;
  rule: Rule;
}

/** (f(x + ε) − f(x − ε)) / 2ε for f = Σ dZ ⊙ Z, whose gradient is that of the loss. */
export function finiteDifference(head: HeadArrays, moved: Moved, step: number): number {
  return (surrogate(head, moved, step) - surrogate(head, moved, -step)) / (2 * step);
}

/** Σ dZ ⊙ Z in float64 with one number moved, over the queries that it has an effect on. */
function surrogate({ q, k, v, dz, scale, rule }: HeadArrays, moved: Moved, step: number): number {
  const { what, row, column } = moved;
  const byQuery = what === "w" || what === "a" || what === "q";
  const [first, last] = byQuery ? [row, row + 1] : [0, q.count];
  const at = (name: Moved["what"], r: number, c: number) =>
    what === name && row === r && column === c ? step : 0;
  let total = 0;
  for (let i = first; i < last; i++) {
    const [from, open] = span(i, k.count, rule);
    const a: number[] = [];
    for (let j = from; j < open; j++) {
      let sum = 0;
      for (let d = 0; d < q.width; d++) {
        const queries = q.values[i * q.width + d]! + at("q", i, d);
        sum += queries * (k.values[j * k.width + d]! + at("k", j, d));
      }
      a.push(score(scale * sum, i - j, rule) + at("a", i, j));
    }
    const peak = Math.max(...a);
    const e = a.map((x) => Math.exp(x - peak));
    const norm = e.reduce((sum, x) => sum + x, 0);
    for (let j = from; j < open; j++) {
      const w = e[j - from]! / norm + at("w", i, j);
      for (let d = 0; d < v.width; d++) {
        total += w * (v.values[j * v.width + d]! + at("v", j, d)) * dz.values[i * v.width + d]!;
      }
    }
  }
  return total;
}

/** What a map of weights comes to. */
export interface Summary {
  /** Mean entropy of the rows, in nats. */
  entropy: number;
  /** Mean of the largest weight of each row. */
  peak: number;
}

export function summarise(weights: Matrix): Summary {
  let entropy = 0;
  let peak = 0;
  for (let l = 0; l < weights.rows; l++) {
    let most = 0;
    for (let i = l * weights.columns; i < (l + 1) * weights.columns; i++) {
      const w = weights.values[i]!;
      if (w > 0) entropy -= w * Math.log(w);
      if (w > most) most = w;
    }
    peak += most;
  }
  return { entropy: entropy / weights.rows, peak: peak / weights.rows };
}
