// The figures that are panels of bars: softmax, layer norm, cross-entropy, dropout, linear.

import { el, worked } from "../dom.ts";
import { board, choice, range, short, subscript } from "./board.ts";
import type { Board } from "./board.ts";
import * as m from "./maths.ts";
import { t } from "./text.ts";

export function softmax(host: HTMLElement): void {
  board(host, {
    start: { x: [1, 2, -0.5, 0.5, -1.5], dp: [0.5, -1, 1, 0, 1.5] },
    panels: [
      { name: "x", title: `x: ${t.scores}`, range: [-3, 3], edit: true },
      { name: "p", title: `p = softmax(x): ${t.probabilities}`, range: [0, 1] },
      { name: "dp", title: `dp: ${t.upstream("p")}`, range: [-2, 2], edit: true },
      { name: "dx", title: `dx = p ⊙ (dp − Σ p dp): ${t.gradientOf("x")}`, range: [-1, 1] },
    ],
    compute({ x, dp }) {
      const p = m.softmax(x!);
      return { p, dx: m.softmaxBackward(dp!, p) };
    },
    loss: ({ x, dp }) => m.dot(m.softmax(x!), dp!),
    lossText: "Σ dp p",
    gradients: { x: "dx" },
    worked({ p, dp }, i) {
      const { texts, result } = worked([p![i]!, dp![i]!, m.dot(p!, dp!)], (a, b, c) => a! * (b! - c!));
      return `dx${subscript(i)} = p${subscript(i)} (dp${subscript(i)} − Σ p dp) = ${texts[0]} × (${texts[1]} − ${texts[2]}) = ${result}`;
    },
  });
}

export function layerNorm(host: HTMLElement): void {
  const statistics = el("p", { class: "pf-worked" });
  board(host, {
    start: { x: [1, 2.5, -1, 0.5, -2], gamma: [1, 1.5, 1, 0.5, 1], dy: [1, -0.5, 0, 0.5, -1] },
    panels: [
      { name: "x", title: `x: ${t.input}`, range: [-3, 3], edit: true },
      { name: "y", title: `y = γ ⊙ (x − μ) / √(σ² + ε): ${t.output}`, range: [-3, 3] },
      { name: "dy", title: `dy: ${t.upstream("y")}`, range: [-2, 2], edit: true },
      { name: "dx", title: `dx = (g − m(g) − x̂ m(g ⊙ x̂)) / √(σ² + ε): ${t.gradientOf("x")}`, range: [-1, 1] },
      { name: "gamma", title: `γ: ${t.gain}`, labels: [0, 1, 2, 3, 4].map((i) => `γ${subscript(i)}`), range: [-2, 2], edit: true },
      { name: "dgamma", title: `dγ = dy ⊙ x̂: ${t.gradientOf("γ")}`, labels: [0, 1, 2, 3, 4].map((i) => `dγ${subscript(i)}`), range: [-3, 3] },
    ],
    compute({ x, gamma, dy }) {
      const forward = m.layerNorm(x!, gamma!);
      return { y: forward.y, ...m.layerNormBackward(dy!, gamma!, forward) };
    },
    loss: ({ x, gamma, dy }) => m.dot(m.layerNorm(x!, gamma!).y, dy!),
    lossText: "Σ dy y",
    gradients: { x: "dx", gamma: "dgamma" },
    controls: () => [statistics],
    after({ x, gamma }) {
      const { mu, sigma } = m.layerNorm(x!, gamma!);
      statistics.textContent = `μ = ${short(mu)}, √(σ² + ε) = ${short(sigma)}`;
    },
    worked({ x, gamma, dy }, i) {
      const { xHat, sigma } = m.layerNorm(x!, gamma!);
      const g = dy!.map((d, j) => d * gamma![j]!);
      const [average, both] = [m.sum(g) / 5, m.dot(g, xHat) / 5];
      const numbers = [g[i]!, average, xHat[i]!, both, sigma];
      const { texts, result } = worked(numbers, (a, b, c, d, e) => (a! - b! - c! * d!) / e!);
      const [own, mean, hat, mixed, root] = texts;
      return `g = dy ⊙ γ, m: ∑ / 5. dx${subscript(i)} = (${own} − ${mean} − ${hat} × ${mixed}) / ${root} = ${result}`;
    },
  });
}

export function crossEntropy(host: HTMLElement): void {
  const classes = 5;
  let [target, epsilon] = [1, 0.1];
  const wanted = () => m.smoothed(target, classes, epsilon);
  const text = el("p", { class: "pf-worked" });
  const made: Board = {
    start: { x: [0.5, 1.5, -1, 2, -0.5] },
    panels: [
      { name: "x", title: `x: ${t.logits}`, range: [-4, 4], edit: true },
      { name: "p", title: "p = softmax(x)", range: [0, 1] },
      { name: "t", title: `t = (1 − ε) [v = ${t.target}] + ε / V`, range: [0, 1] },
      { name: "dx", title: `dx = p − t: ${t.gradientOf("x")}`, range: [-1, 1] },
    ],
    compute: ({ x }) => ({ p: m.softmax(x!), t: wanted(), dx: m.crossEntropyBackward(x!, wanted()) }),
    loss: ({ x }) => m.crossEntropy(x!, wanted()),
    lossText: "−Σ t log p",
    gradients: { x: "dx" },
    controls: (update) => [
      choice(
        t.correct,
        Array.from({ length: classes }, (_, v) => [String(v), String(v + 1)]),
        String(target),
        (name) => ((target = Number(name)), update()),
      ).root,
      range(t.smoothing, [0, 1, 0.01], epsilon, (value) => ((epsilon = value), update())).root,
      text,
    ],
    after: ({ x, t: soft }) => (text.textContent = `L = ${short(m.crossEntropy(x!, soft!))}`),
    worked({ p, t: soft }, i) {
      const { texts, result } = worked([p![i]!, soft![i]!], (a, b) => a! - b!);
      return `dx${subscript(i)} = p${subscript(i)} − t${subscript(i)} = ${texts[0]} − ${texts[1]} = ${result}`;
    },
  };
  board(host, made);
}

const DRAWS = 1000;

export function dropout(host: HTMLElement): void {
  const size = 6;
  let [p, seed] = [0.3, 0];
  const keep = () => m.keepMask(seed, size, p);
  const note = el("p", { class: "pf-note" });
  board(host, {
    start: { x: [1, 2, -1, 1.5, -2, 0.5], dy: [1, 0.5, -1, 1, 0.5, -0.5] },
    panels: [
      { name: "x", title: `x: ${t.input}`, range: [-3, 3], edit: true },
      { name: "y", title: `y = x ⊙ m / (1 − p): ${t.output}`, range: [-6, 6] },
      { name: "dy", title: `dy: ${t.upstream("y")}`, range: [-2, 2], edit: true },
      { name: "dx", title: `dx = dy ⊙ m / (1 − p): ${t.gradientOf("x")}`, range: [-4, 4] },
      { name: "m", title: `m: ${t.mask}`, range: [0, 1] },
      { name: "mean", title: t.mean(DRAWS), labels: Array.from({ length: size }, (_, i) => `ȳ${subscript(i)}`), range: [-3, 3] },
    ],
    compute({ x, dy }) {
      const kept = keep();
      const mean = Array.from({ length: size }, () => 0);
      for (let draw = 0; draw < DRAWS; draw++) {
        m.dropout(x!, m.keepMask(draw, size, p), p).forEach((v, i) => (mean[i]! += v / DRAWS));
      }
      return { y: m.dropout(x!, kept, p), dx: m.dropout(dy!, kept, p), m: kept.map(Number), mean };
    },
    loss: ({ x, dy }) => m.dot(m.dropout(x!, keep(), p), dy!),
    lossText: "Σ dy y",
    gradients: { x: "dx" },
    controls: (update) => [
      range(t.rate, [0, 0.9, 0.05], p, (value) => ((p = value), update())).root,
      el("button", { type: "button", onclick: () => (seed++, update()) }, t.redraw),
      note,
    ],
    after: () => (note.textContent = `${t.seed(seed)} ${t.meanWhy}`),
    worked({ x, m: mask }, i) {
      const { texts, result } = worked([x![i]!, mask![i]!, 1 - p], (a, b, c) => (a! * b!) / c!);
      return `y${subscript(i)} = ${texts[0]} × ${mask![i]} / (1 − ${p.toFixed(2)}) = ${result}`;
    },
  });
}

export function linear(host: HTMLElement): void {
  const [rows, columns] = [2, 3];
  const matrix = (w: number[]) => Array.from({ length: rows }, (_, i) => w.slice(columns * i, columns * (i + 1)));
  const names = (name: string) => Array.from({ length: rows * columns }, (_, i) =>
    `${name}${subscript(Math.floor(i / columns))}${subscript(i % columns)}`);
  board(host, {
    start: { x: [1, -2, 0.5], w: [0.5, -1, 1.5, -0.5, 1, 2], b: [0.5, -1], dy: [1, -0.5] },
    panels: [
      { name: "x", title: `x: ${t.input}`, range: [-3, 3], edit: true },
      { name: "y", title: `y = W x + b: ${t.output}`, range: [-8, 8] },
      { name: "dy", title: `dy: ${t.upstream("y")}`, range: [-2, 2], edit: true },
      { name: "dx", title: `dx = Wᵀ dy: ${t.gradientOf("x")}`, range: [-4, 4] },
      { name: "w", title: `W: ${t.weight}`, labels: names("w"), range: [-3, 3], edit: true },
      { name: "dw", title: `dW = dy xᵀ: ${t.gradientOf("W")}`, labels: names("dw"), range: [-4, 4] },
      { name: "b", title: `b: ${t.bias}`, range: [-3, 3], edit: true },
      { name: "db", title: `db = dy: ${t.gradientOf("b")}`, range: [-2, 2] },
    ],
    compute({ x, w, b, dy }) {
      const { dx, dweight } = m.linearBackward(dy!, x!, matrix(w!));
      return { y: m.linear(x!, matrix(w!), b!), dx, dw: dweight.flat(), db: [...dy!] };
    },
    loss: ({ x, w, b, dy }) => m.dot(m.linear(x!, matrix(w!), b!), dy!),
    lossText: "Σ dy y",
    gradients: { x: "dx", w: "dw", b: "db" },
    worked({ x, w, dy }, i) {
      const [row, j] = [Math.floor(i / columns), i % columns];
      const through = [w![j]!, dy![0]!, w![columns + j]!, dy![1]!];
      const input = worked(through, (a, b, c, d) => a! * b! + c! * d!);
      const weight = worked([dy![row]!, x![j]!], (a, b) => a! * b!);
      const [a, b, c, d] = input.texts;
      return (
        `dx${subscript(j)} = ${a} × ${b} + ${c} × ${d} = ${input.result}; ` +
        `dw${subscript(row)}${subscript(j)} = ${weight.texts.join(" × ")} = ${weight.result}`
      );
    },
  });
}
