// The pages of pellucid.ops once more, in float64 and for one row: each forward with its backward.
// tests/website/test_figures.py compares every function with the library's.

import { GOLDEN, mix } from "../learn/random.ts";

export { ACTIVATIONS, erf } from "../activations.ts";

export type Row = readonly number[];

export const sum = (x: Row): number => x.reduce((total, v) => total + v, 0);
export const dot = (a: Row, b: Row): number => sum(a.map((v, i) => v * b[i]!));
const mean = (x: Row): number => sum(x) / x.length;

/** p_j = exp(x_j) / Σ exp(x); a row of nothing but −∞ gives zeros. */
export function softmax(x: Row): number[] {
  const top = Math.max(...x);
  const e = x.map((v) => (top === -Infinity ? 0 : Math.exp(v - top)));
  const total = sum(e) || 1;
  return e.map((v) => v / total);
}

/** dx = p ⊙ (dp − Σ p dp) */
export function softmaxBackward(dp: Row, p: Row): number[] {
  const average = dot(p, dp);
  return p.map((v, i) => v * (dp[i]! - average));
}

export interface Attention {
  scores: number[][];
  weights: number[][];
  z: number[][];
}

/** A = scale · Q Kᵀ, W = softmax(A) over the allowed keys, Z = W V. */
export function attention(q: Row[], k: Row[], v: Row[], scale: number, allowed: boolean[][]): Attention {
  const scores = q.map((query, l) =>
    k.map((key, s) => (allowed[l]![s] ? scale * dot(query, key) : -Infinity)),
  );
  const weights = scores.map(softmax);
  const z = weights.map((w) => v[0]!.map((_, j) => dot(w, v.map((value) => value[j]!))));
  return { scores, weights, z };
}

export interface AttentionGradients {
  dw: number[][];
  da: number[][];
  dq: number[][];
  dk: number[][];
  dv: number[][];
}

/** dV = Wᵀ dZ, dW = dZ Vᵀ, dA = W ⊙ (dW − Σ W dW), dQ = scale · dA K, dK = scale · dAᵀ Q. */
export function attentionBackward(
  dz: Row[],
  q: Row[],
  k: Row[],
  v: Row[],
  scale: number,
  weights: Row[],
): AttentionGradients {
  const dv = v.map((value, s) => value.map((_, j) => sum(weights.map((w, l) => w[s]! * dz[l]![j]!))));
  const dw = dz.map((d) => v.map((value) => dot(d, value)));
  const da = dw.map((d, l) => softmaxBackward(d, weights[l]!));
  const dq = da.map((d) => k[0]!.map((_, j) => scale * sum(d.map((a, s) => a * k[s]![j]!))));
  const dk = k.map((key, s) => key.map((_, j) => scale * sum(da.map((d, l) => d[s]! * q[l]![j]!))));
  return { dw, da, dq, dk, dv };
}

export interface Normalised {
  y: number[];
  mu: number;
  sigma: number;
  xHat: number[];
}

/** x̂ = (x − μ) / √(σ² + ε), y = γ ⊙ x̂; sigma is that root. */
export function layerNorm(x: Row, gamma: Row, eps = 1e-5): Normalised {
  const mu = mean(x);
  const sigma = Math.sqrt(mean(x.map((v) => (v - mu) ** 2)) + eps);
  const xHat = x.map((v) => (v - mu) / sigma);
  return { mu, sigma, xHat, y: xHat.map((v, i) => v * gamma[i]!) };
}

/** With g = dy ⊙ γ: dx = (g − mean(g) − x̂ mean(g ⊙ x̂)) / σ, dγ = dy ⊙ x̂. */
export function layerNormBackward(
  dy: Row,
  gamma: Row,
  { xHat, sigma }: Normalised,
): { dx: number[]; dgamma: number[] } {
  const g = dy.map((d, i) => d * gamma[i]!);
  const both = mean(g.map((v, i) => v * xHat[i]!));
  const average = mean(g);
  return {
    dx: g.map((v, i) => (v - average - xHat[i]! * both) / sigma),
    dgamma: dy.map((d, i) => d * xHat[i]!),
  };
}

/** t = (1 − ε) [v = target] + ε / V */
export function smoothed(target: number, classes: number, epsilon: number): number[] {
  return Array.from({ length: classes }, (_, v) => (v === target ? 1 - epsilon : 0) + epsilon / classes);
}

/** −Σ t log softmax(x) */
export function crossEntropy(x: Row, t: Row): number {
  const top = Math.max(...x);
  const norm = top + Math.log(sum(x.map((v) => Math.exp(v - top))));
  return -sum(t.map((wanted, v) => wanted * (x[v]! - norm)));
}

/** dx = p − t: softmax and the logarithm together. */
export function crossEntropyBackward(x: Row, t: Row): number[] {
  return softmax(x).map((p, v) => p - t[v]!);
}

/** The elements that dropout keeps of one row: bit for bit those of `pellucid.Rng(seed)`. */
export function keepMask(seed: number, count: number, p: number): boolean[] {
  const start = mix(mix(mix(1)) ^ mix(seed));
  const threshold = Math.min(Math.round(p * 2 ** 32), 2 ** 32 - 1);
  return Array.from({ length: count }, (_, i) => p < 1 && mix(start + Math.imul(i, GOLDEN)) >= threshold);
}

/** y = x ⊙ m / (1 − p); its backward is the same with dy. */
export function dropout(x: Row, keep: readonly boolean[], p: number): number[] {
  return x.map((v, i) => (keep[i] ? v / (1 - p) : 0));
}

/** y = W x + b, W as its rows. */
export function linear(x: Row, weight: Row[], bias: Row): number[] {
  return weight.map((row, i) => dot(row, x) + bias[i]!);
}

/** dx = Wᵀ dy, dW = dy xᵀ; db is dy itself. */
export function linearBackward(dy: Row, x: Row, weight: Row[]): { dx: number[]; dweight: number[][] } {
  return {
    dx: x.map((_, j) => dot(dy, weight.map((row) => row[j]!))),
    dweight: dy.map((d) => x.map((v) => d * v)),
  };
}

/** (f(x + ε) − f(x − ε)) / 2ε for each number of x. */
export function differences(f: (x: number[]) => number, x: Row, step = 1e-4): number[] {
  return x.map((_, i) => {
    const moved = (by: number) => f(x.map((v, j) => (j === i ? v + by : v)));
    return (moved(step) - moved(-step)) / (2 * step);
  });
}
