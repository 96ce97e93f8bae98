// The backward pass of norms, feed-forward networks and the loss, one number of it by hand, from the rows and
// gradients of the model's run. A finite difference is that of Σ dy ⊙ y, whose gradient is the loss's.

import { GATES, activationOf } from "../activations.ts";
import { unpackHead } from "../record.ts";
import type { Derivation, Derived, PackedArray, Part, Rows, Side } from "../record.ts";
import { furthest, indices, largest, loss, rowOf, spread } from "./forward.ts";
import { lastOf } from "./model.ts";
import type { Linear, Norm } from "./model.ts";
import { lazy } from "./recorded.ts";
import type { Fed } from "./recorded.ts";
import { sum } from "./trial.ts";

/** Step of the finite differences, in both directions. */
const MOVED = 1e-6;
/** Products of a sum that are kept. */
const TERMS = 3;

type Vector = ArrayLike<number>;

/** Every norm, feed-forward network and the loss, the last first; `chosen` is the row in view of each side. */
export function derivationsOf(fed: Fed, parts: Part[], chosen: { [side in Side]?: number }): Derivation[] {
  const { runner, expected } = fed;
  const places = new Places(fed);
  return parts
    .flatMap((part, n): Derivation[] => {
      const place = places.of(part);
      const { role, kind, stack, side, layer, block } = part;
      const about = { role, kind, stack, side, layer, block, name: part.tensors[0]?.[0] ?? "" };
      if (role === "output") {
        const pooled = runner.record.labels === "text";
        const own = pooled ? 0 : (chosen[side] ?? 0);
        const row = (expected[own] ?? null) !== null ? own : expected.findIndex((token) => token !== null);
        if (row < 0) return [];
        return [lazily(about, () => (pooled ? -1 : row), () => lossSteps(fed, row))];
      }
      const before = parts[n - 1]?.rows && rowsOf(parts[n - 1]!.rows!);
      if (!before || part.map || !["norm", "feed_forward"].includes(role) || !("drows" in part)) return [];
      const d = lazy(() => rowsOf(part.drows!));
      const row = lazy(() => {
        const lengths = unpackHead(part.drows_norms!, 0).values;
        const own = chosen[side] ?? 0;
        return lengths[own] ? own : largest(lengths);
      });
      if (role === "norm") {
        const norm = place as Norm;
        const gain = norm.weight === null ? null : runner.tensors[norm.weight]!.values;
        const shift = norm.bias === null ? null : runner.tensors[norm.bias]!.values;
        return [lazily(about, row, () => normSteps(norm, gain, shift, before, d(), row()))];
      }
      const { first, second, activation } = place as { first: Linear; second: Linear; activation: string };
      return [lazily(about, row, () => networkSteps(fed, first, second, activation, before, d(), row()))];
    })
    .reverse();
}

function lazily(about: Omit<Derivation, "row" | "steps">, row: () => number, steps: () => Derived[]): Derivation {
  return Object.defineProperties({ ...about } as Derivation, {
    row: { get: row, enumerable: true },
    steps: { get: lazy(steps), enumerable: true },
  });
}

/** The numbers of the model that each part of a strip has, in the strip's order. */
class Places {
  private readonly block = { encoder: -1, decoder: -1 };
  private last = "";

  constructor(private readonly fed: Fed) {}

  of({ role, stack, layer, block }: Part): Norm | { first: Linear; second: Linear; activation: string } | null {
    const place = `${stack} ${layer} ${block}`;
    if (layer !== null && place !== this.last) this.block[stack]++;
    this.last = place;
    const { embed, blocks, norm } = this.fed.runner.record.stacks[stack]!;
    const own = blocks[this.block[stack]];
    if (role === "norm") return layer === null ? (own ? norm : embed.norm) : own!.norm;
    return role === "feed_forward" && own?.kind === "network" ? own : null;
  }
}

/** Rows that are kept row by row. */
function rowsOf(packed: PackedArray): Rows {
  const { shape, values } = packed as { shape: [number, number, number]; values: Float32Array };
  return { values, count: shape[0], width: shape[2] };
}

const doubles = (x: Rows, row: number) => Float64Array.from(rowOf(x, row).values);

/** dy → g = dy ⊙ γ → dx, dγ, dβ. */
function normSteps(norm: Norm, gain: Float32Array | null, shift: Float32Array | null, x: Rows, dy: Rows, row: number): Derived[] {
  const { kind, eps } = norm;
  const width = x.width;
  const gamma = Float64Array.from({ length: width }, (_, i) => gain?.[i] ?? 1);
  const units = indices(x.count).map((t) => normed(doubles(x, t), kind, eps));
  const dys = indices(x.count).map((t) => doubles(dy, t));
  const [own, dyOwn, unit] = [doubles(x, row), dys[row]!, units[row]!];
  const g = dyOwn.map((d, i) => d * gamma[i]!);
  const inverse = spread(own as unknown as Float32Array, 0, width, kind, eps).inverse;
  const [meanG, along] = [kind === "rms_norm" ? 0 : sum([...g]) / width, dot(g, unit) / width];
  const dx = g.map((d, i) => inverse * (d - meanG - unit[i]! * along));
  const steps: Derived[] = [];
  let e = furthest(g);
  steps.push(step("g", g, e, (moved) => sum(indices(width).map((i) => dyOwn[i]! * gamma[i]! * moved[i]!)), unit, [dyOwn[e]!, gamma[e]!]));
  e = furthest(dx);
  const numbers = kind === "layer_norm" ? [g[e]!, meanG, unit[e]!, along, inverse] : [g[e]!, unit[e]!, along, inverse];
  steps.push(step("dx", dx, e, (moved) => dot(g, normed(Float64Array.from(moved), kind, eps)), own, numbers));
  if (gain) {
    const d = indices(width).map((i) => sum(units.map((unit, t) => unit[i]! * dys[t]![i]!)));
    const by = furthest(d);
    const f = (moved: Vector) => sum(units.map((unit, t) => unit[by]! * dys[t]![by]! * moved[by]!));
    steps.push(step("dweight", d, by, f, gamma, [], [dys.map((d) => d[by]!), units.map((unit) => unit[by]!)]));
  }
  if (shift) {
    const d = indices(width).map((i) => sum(dys.map((dy) => dy[i]!)));
    const by = furthest(d);
    const f = (moved: Vector) => sum(dys.map((dy) => dy[by]! * moved[by]!));
    steps.push(step("dbias", d, by, f, Float64Array.from(shift), [], [dys.map((d) => d[by]!), dys.map(() => 1)]));
  }
  return steps;
}

function normed(x: Float64Array, kind: Norm["kind"], eps: number): Float64Array {
  const { mean, inverse } = spread(x as unknown as Float32Array, 0, x.length, kind, eps);
  return x.map((one) => (one - mean) * inverse);
}

/** dy → da = dy W₂ → dh = da ⊙ φ′(h) → dx = dh W₁, dW₁ = dhᵀ x. */
function networkSteps({ runner }: Fed, first: Linear, second: Linear, activation: string, x: Rows, dy: Rows, row: number): Derived[] {
  const { values: w1, rows: inner, columns: width } = runner.tensors[first.weight]!;
  const { values: w2, rows: out, columns: wide } = runner.tensors[second.weight]!;
  const b1 = first.bias === null ? null : runner.tensors[first.bias]!.values;
  const gated = activation in GATES;
  const { y: f, slope } = activationOf(activation);
  const active = (h: Vector, j: number) => f(h[j]! + (b1?.[j] ?? 0)) * (gated ? h[j + wide]! + (b1?.[j + wide] ?? 0) : 1);
  const before = (x: Vector) => Float64Array.from({ length: inner }, (_, j) => sumOf(width, (e) => w1[j * width + e]! * x[e]!));
  const column = (dy: Vector, j: number) => sumOf(out, (o) => dy[o]! * w2[o * wide + j]!);
  const slopeAt = (h: Vector, j: number) => {
    const [own, gate] = [j % wide, (j % wide) + wide];
    const a = h[own]! + (b1?.[own] ?? 0);
    if (!gated) return slope(a);
    return j < wide ? slope(a) * (h[gate]! + (b1?.[gate] ?? 0)) : f(a);
  };
  const xs = indices(x.count).map((t) => doubles(x, t));
  const hs = xs.map(before);
  const das = indices(x.count).map((t) => {
    const d = doubles(dy, t);
    return Float64Array.from({ length: wide }, (_, j) => column(d, j));
  });
  const dhs = das.map((da, t) => Float64Array.from({ length: inner }, (_, j) => da[j % wide]! * slopeAt(hs[t]!, j)));
  const [own, h, da, dh] = [doubles(dy, row), hs[row]!, das[row]!, dhs[row]!];
  // Σ dy ⊙ y of the row, up to a constant: y is W₂ a + b₂.
  const through = (h: Vector) => sumOf(wide, (j) => da[j]! * active(h, j));
  const a = Float64Array.from({ length: wide }, (_, j) => active(h, j));
  let j = furthest(da);
  const steps = [step("da", da, j, (moved) => dot(da, moved), a, [], [own, indices(out).map((o) => w2[o * wide + j]!)])];
  j = furthest(dh);
  steps.push(step("dh", dh, j, through, h, [da[j % wide]!, slopeAt(h, j)]));
  const dx = Float64Array.from({ length: width }, (_, e) => sumOf(inner, (j) => dh[j]! * w1[j * width + e]!));
  const e = furthest(dx);
  steps.push(step("dx", dx, e, (moved) => through(before(moved)), xs[row]!, [], [dh, indices(inner).map((j) => w1[j * width + e]!)]));
  let [best, at] = [-1, [0, 0] as [number, number]];
  const dw = (j: number, e: number) => sumOf(xs.length, (t) => dhs[t]![j]! * xs[t]![e]!);
  for (let j = 0; j < inner; j++) {
    for (let e = 0; e < width; e++) {
      const size = Math.abs(dw(j, e));
      if (size > best) [best, at] = [size, [j, e]];
    }
  }
  const [r, c] = at;
  const moves = (moved: Vector) =>
    sumOf(xs.length, (t) => {
      const changed = { ...hs[t]!, [r]: dot(moved, xs[t]!) };
      return das[t]![r % wide]! * active(changed, r % wide);
    });
  const weights = Float64Array.from(w1.subarray(r * width, (r + 1) * width));
  const found = step("dW1", indices(width).map((e) => dw(r, e)), c, moves, weights, [], [dhs.map((dh) => dh[r]!), xs.map((x) => x[c]!)]);
  return [...steps, { ...found, entry: at }];
}

/** −log p → d log p = −y → dℓ = p − y → dx = dℓ W, for one row. */
function lossSteps({ runner, runs, expected }: Fed, row: number): Derived[] {
  const { output } = runner.record;
  const { rows } = runs[lastOf(runner.record)[0]];
  const x = doubles(runner.predicting(rows), row);
  const { values, width } = runner.logits(rows);
  const { values: w, columns } = runner.tensors[output.weight]!;
  const logits = Float64Array.from(values.subarray(row * width, (row + 1) * width));
  const token = expected[row]!;
  const of = (logits: Vector) => loss(logits as Float32Array, token);
  const logP = logits.map((_, i) => -loss(logits as unknown as Float32Array, i));
  const dlogits = logP.map((log, i) => Math.exp(log) - (i === token ? 1 : 0));
  const dx = Float64Array.from({ length: columns }, (_, e) => sumOf(width, (i) => dlogits[i]! * w[i * columns + e]!));
  const e = furthest(dx);
  const moved = (to: Vector) => of(Float64Array.from({ length: width }, (_, i) => logits[i]! + w[i * columns + e]! * (to[e]! - x[e]!)));
  return [
    { ...step("dlog_p", logP.map((_, i) => (i === token ? -1 : 0)), token, (moved) => -moved[token]!, logP, [1]), gradient: null },
    { ...step("dlogits", dlogits, token, of, logits, [Math.exp(logP[token]!), 1]), gradient: null },
    step("dx", dx, e, moved, x, [], [dlogits, indices(width).map((i) => w[i * columns + e]!)]),
  ];
}

/** A gradient with one number of it, checked by moving that of x, which f takes. */
function step(
  name: string,
  gradient: Vector,
  entry: number,
  f: (x: Vector) => number,
  x: Vector,
  numbers: number[],
  terms?: [Vector, Vector],
): Derived {
  const at = (by: number) => f(Float64Array.from(x, (one, i) => (i === entry ? one + by : one)));
  const products = terms ? Array.from(terms[0], (a, i): [number, number] => [a, terms[1][i]!]) : [];
  return {
    name,
    gradient: { shape: [1, 1, gradient.length], values: Float32Array.from(gradient) },
    entry: [entry],
    value: gradient[entry]!,
    difference: (at(MOVED) - at(-MOVED)) / (2 * MOVED),
    terms: products.sort(([a, b], [c, d]) => Math.abs(c * d) - Math.abs(a * b)).slice(0, TERMS),
    rest: Math.max(0, (terms?.[0].length ?? 0) - TERMS),
    numbers,
  };
}

function sumOf(count: number, of: (i: number) => number): number {
  let total = 0;
  for (let i = 0; i < count; i++) total += of(i);
  return total;
}

const dot = (a: Vector, b: Vector) => sumOf(a.length, (i) => a[i]! * b[i]!);
