// Where an answer is decided: what the model would say after each part, and what each part adds to
// the answer's logit.

import { GATES, activationOf } from "../activations.ts";
import { indices, largest, loss, rowOf, spread } from "./forward.ts";
import type { Run, Runner } from "./forward.ts";
import { lastOf } from "./model.ts";
import type { Linear, Norm } from "./model.ts";

/** After a part (a name as in `Off`; "" the embedding): the most likely token, and its probability. */
interface Lens {
  part: string;
  says: number;
  p: number;
}

/** What a part adds to a logit. "" is the embedding, "bias" what no token changes. */
interface Entry {
  part: string;
  logit: number;
}

/** The last norm and the output layer, applied to what each block leaves behind, in one row of logits. */
export function lens(runner: Runner, run: Run, row: number): Lens[] {
  const [name, { norm }] = lastOf(runner.record);
  return run.inputs.map((x, i) => {
    const one = runner.record.labels === "text" ? x : rowOf(x, row);
    const logits = runner.logits(norm ? runner.norm(one, norm) : one).values;
    const says = largest(logits);
    return { part: i === 0 ? "" : `${name}.${i - 1}`, says, p: Math.exp(-loss(logits, says)) };
  });
}

/**
 * The logit of a token in one row of logits as a sum over parts: every head, every network, the
 * embedding, and biases. A norm divides the whole sum by its spread, an activation multiplies each number by
 * f(h) / h; with those as they are in this run both are linear, so every part has its share and the shares
 * add up to the logit. A label of a text has the mean of its rows' shares.
 */
export function ledger(runner: Runner, run: Run, row: number, token: number): Entry[] {
  if (runner.record.labels !== "text" || runner.record.head) return shares(runner, run, row, token);
  const all = indices(run.rows.count).map((one) => shares(runner, run, one, token));
  return all[0]!.map(({ part }, i) => ({ part, logit: all.reduce((sum, own) => sum + own[i]!.logit, 0) / all.length }));
}

function shares(runner: Runner, run: Run, row: number, token: number): Entry[] {
  const [name, { blocks, norm }] = lastOf(runner.record);
  const parts = new Map<string, Float64Array>();
  const width = run.inputs[0]!.width;
  const add = (part: string, x: Float64Array) => {
    const sum = parts.get(part) ?? new Float64Array(x.length);
    parts.set(part, sum.map((value, i) => value + x[i]!));
  };
  const through = (whole: Float32Array, { kind, eps, weight, bias }: Norm) => {
    const { inverse } = spread(whole, 0, width, kind, eps);
    const gain = weight === null ? null : runner.tensors[weight]!.values;
    for (const [part, x] of parts) {
      const mean = kind === "layer_norm" ? x.reduce((sum, value) => sum + value, 0) / width : 0;
      parts.set(part, x.map((value, i) => (value - mean) * inverse * (gain?.[i] ?? 1)));
    }
    if (bias !== null) add("bias", Float64Array.from(runner.tensors[bias]!.values));
  };
  add("", Float64Array.from(rowOf(run.inputs[0]!, row).values));
  blocks.forEach((block, i) => {
    const y = rowOf(run.outputs[i]!, row).values;
    const look = run.looks[i];
    if (block.kind === "attention" && look) {
      const z = rowOf(look.z, row).values;
      for (let h = 0; h < block.heads; h++) {
        add(`${name}.${i}.${h}`, product(runner, block.out, z, h * block.width, block.width));
      }
      if (block.out.bias !== null) add("bias", Float64Array.from(runner.tensors[block.out.bias]!.values));
    } else add(`${name}.${i}`, Float64Array.from(y));
    if (!block.norm_first) {
      const x = rowOf(run.inputs[i]!, row).values;
      through(x.map((value, at) => value + y[at]!), block.norm);
    }
  });
  if (norm) through(rowOf(run.inputs[blocks.length]!, row).values, norm);
  const { head, output: { weight, bias } } = runner.record;
  if (head) {
    const h = runner.linear(rowOf(run.rows, row), head.first).values;
    for (const [part, x] of parts) parts.set(part, product(runner, head.first, Float32Array.from(x), 0, width));
    if (head.first.bias !== null) add("bias", Float64Array.from(runner.tensors[head.first.bias]!.values));
    const { y: f } = activationOf(head.activation);
    const gated = head.activation in GATES;
    const a = Float32Array.from({ length: width }, (_, i) => f(h[i]!) * (gated ? h[width + i]! : 1));
    for (const [part, x] of parts) {
      parts.set(part, Float64Array.from(a, (y, i) => (gated ? f(h[i]!) * x[width + i]! : h[i] === 0 ? 0 : (y / h[i]!) * x[i]!)));
    }
    if (head.norm) through(a, head.norm);
  }
  const direction = runner.tensors[weight]!.values.subarray(token * width, (token + 1) * width);
  const entries = [...parts].map(([part, x]) => ({
    part,
    logit: x.reduce((sum, value, i) => sum + value * direction[i]!, 0),
  }));
  const own = bias === null ? 0 : runner.tensors[bias]!.values[token]!;
  const biases = entries.find(({ part }) => part === "bias");
  if (biases) biases.logit += own;
  else entries.push({ part: "bias", logit: own });
  return entries;
}

/** W z for one head: its columns of W times its part of z. */
function product(runner: Runner, { weight }: Linear, z: Float32Array, first: number, count: number): Float64Array {
  const { values, rows, columns } = runner.tensors[weight]!;
  return Float64Array.from({ length: rows }, (_, o) => {
    let sum = 0;
    for (let i = first; i < first + count; i++) sum += values[o * columns + i]! * z[i]!;
    return sum;
  });
}
