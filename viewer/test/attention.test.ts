import assert from "node:assert/strict";
import { test } from "node:test";

import {
  output,
  PLAIN,
  products,
  score,
  scoreGradient,
  sees,
  softmax,
  summarise,
  weightGradient,
} from "../src/attention.ts";
import type { Matrix, Rule } from "../src/attention.ts";
import type { Rows } from "../src/record.ts";

function rows(...values: number[][]): Rows {
  return { values: Float32Array.from(values.flat()), count: values.length, width: values[0]!.length };
}

function matrix(...values: number[][]): Matrix {
  return {
    values: Float32Array.from(values.flat()),
    rows: values.length,
    columns: values[0]!.length,
  };
}

function near(actual: ArrayLike<number>, expected: number[], within = 1e-6): void {
  assert.equal(actual.length, expected.length);
  expected.forEach((x, i) => assert.ok(Math.abs(actual[i]! - x) < within, `${actual[i]} ≠ ${x}`));
}

const CAUSAL: Rule = { ...PLAIN, parts: [{ part: "Causal" }] };
const near2 = { part: "Window", size: 2 };

const [q, k] = [rows([1, 2], [0, -1], [3, 1]), rows([2, 0], [1, 1], [0, 5])];

test("products are q·k", () => {
  near(products(q, k).values, [2, 3, 10, 0, -1, -5, 6, 4, 5]);
});

test("each row of the softmax adds up to one, whatever the scale", () => {
  for (const scale of [0, 1, -3, 1e4]) {
    const raw = products(q, k);
    const weights = new Float32Array(9);
    softmax(raw, scale, PLAIN, weights);
    for (let l = 0; l < 3; l++) {
      const sum = weights.slice(3 * l, 3 * l + 3).reduce((a, b) => a + b);
      assert.ok(Math.abs(sum - 1) < 1e-6);
    }
  }
});

test("softmax by hand", () => {
  const weights = new Float32Array(3);
  softmax(matrix([2, 4, 0]), 0.5, PLAIN, weights);
  const terms = [Math.exp(1), Math.exp(2), 1];
  const sum = terms.reduce((a, b) => a + b);
  near(weights, terms.map((t) => t / sum));
});

test("a causal query sees no key ahead", () => {
  const weights = new Float32Array(9).fill(7);
  softmax(products(q, k), 0, CAUSAL, weights);
  near(weights, [1, 0, 0, 0.5, 0.5, 0, 1 / 3, 1 / 3, 1 / 3]);
});

test("a window hides keys on both sides, a causal one those behind only", () => {
  const seen = (rule: Rule) => [0, 1, 2, 3, 4].map((s) => sees(2, s, 5, rule));
  assert.deepEqual(seen({ ...PLAIN, parts: [near2] }), [false, true, true, true, false]);
  assert.deepEqual(seen({ ...PLAIN, parts: [...CAUSAL.parts, near2] }), [false, true, true, false, false]);
  const weights = new Float32Array(9).fill(7);
  softmax(products(q, k), 0, { ...PLAIN, parts: [{ part: "Window", size: 1 }] }, weights);
  near(weights, [1, 0, 0, 0, 1, 0, 0, 0, 1]);
});

test("scores stay within a soft cap, and get what their distance adds", () => {
  const rule = { parts: [{ part: "SoftCap", cap: 2 }], added: Float32Array.from([5, 6, 7, 8, 9]) };
  assert.ok(Math.abs(score(3, -1, rule) - (2 * Math.tanh(1.5) + 6)) < 1e-12);
  assert.equal(score(3, -1, PLAIN), 3);
});

test("the output mixes the values", () => {
  near(output(matrix([0.25, 0.75]), rows([4, 0], [8, -4]), 0), [7, -3]);
});

test("gradients by finite differences", () => {
  // L = Σ dz ⊙ (softmax(A) V)
  const [a, v] = [matrix([0.3, -0.2, 0.9]), rows([1, 2], [-1, 0.5], [0.25, -3])];
  const dz = rows([0.7, -0.4]);
  const loss = (scores: Matrix) => {
    const weights = new Float32Array(3);
    softmax(scores, 1, PLAIN, weights);
    const z = output({ ...scores, values: weights }, v, 0);
    return z[0]! * 0.7 - z[1]! * 0.4;
  };
  const weights = new Float32Array(3);
  softmax(a, 1, PLAIN, weights);
  const dw = weightGradient(dz, v, PLAIN);
  near(dw.values, [0.7 - 0.8, -0.7 - 0.2, 0.175 + 1.2]);
  const da = scoreGradient(weights, dw).values;
  const step = 1e-2;
  a.values.forEach((_, i) => {
    const moved = (by: number) => ({ ...a, values: a.values.map((x, j) => (i === j ? x + by : x)) });
    const slope = (loss(moved(step)) - loss(moved(-step))) / (2 * step);
    assert.ok(Math.abs(slope - da[i]!) < 1e-4);
  });
});

test("no gradient reaches a forbidden key", () => {
  near(weightGradient(rows([1], [1]), rows([2], [3]), CAUSAL).values, [2, 0, 2, 3]);
});

test("an even row has the entropy of its keys, a sure one none", () => {
  const { entropy, peak } = summarise(matrix([0.25, 0.25, 0.25, 0.25], [0, 1, 0, 0]));
  assert.ok(Math.abs(entropy - Math.log(4) / 2) < 1e-6);
  assert.equal(peak, 0.625);
});
