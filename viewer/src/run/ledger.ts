// Where an answer is decided: what the model would say after each part, and what each part adds to
// the answer's logit.

import type { Rows } from "../record.ts";
import { largest, loss, spread } from "./forward.ts";
import type { Run, Runner } from "./forward.ts";
import type { Linear, Norm } from "./model.ts";

/** After a part (a name as in `Off`; "" the embedding): the most likely token, and its probability. */
export interface Lens {
  part: string;
  says: number;
  p: number;
}

/** What a part adds to a logit. "" is the embedding, "bias" what no token changes. */
export interface Entry {
  part: string;
  logit: number;
}

/** The last norm and the output layer, applied to what each block leaves behind, in one row. */
export function lens(runner: Runner, run: Run, row: number): Lens[] {
  const { norm } = runner.record.stacks.decoder;
  return run.inputs.map((x, i) => {
    const one = rowOf(x, row);
    const logits = runner.logits(norm ? runner.norm(one, norm) : one).values;
    const says = largest(logits);
    return { part: i === 0 ? "" : `decoder.${i - 1}`, says, p: Math.exp(-loss(logits, says)) };
  });
}

/**
 * The logit of a token in one row of the decoder as a sum over parts: every head, every network, the
 * embedding, and biases. A norm divides the whole sum by its spread; with that number as it is in
 * this run the norm is linear, so every part has its share and the shares add up to the logit.
 */
export function ledger(runner: Runner, run: Run, row: number, token: number): Entry[] {
  const { blocks, norm } = runner.record.stacks.decoder;
  const parts = new Map<string, Float64Array>();
  const width = run.inputs[0]!.width;
  const add = (part: string, x: Float64Array) => {
    const sum = parts.get(part) ?? new Float64Array(width);
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
        add(`decoder.${i}.${h}`, product(runner, block.out, z, h * block.width, block.width));
      }
      if (block.out.bias !== null) add("bias", Float64Array.from(runner.tensors[block.out.bias]!.values));
    } else add(`decoder.${i}`, Float64Array.from(y));
    if (!block.norm_first) {
      const x = rowOf(run.inputs[i]!, row).values;
      through(x.map((value, at) => value + y[at]!), block.norm);
    }
  });
  if (norm) through(rowOf(run.inputs[blocks.length]!, row).values, norm);
  const { weight, bias } = runner.record.output;
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

function rowOf(x: Rows, row: number): Rows {
  return { values: x.values.subarray(row * x.width, (row + 1) * x.width), count: 1, width: x.width };
}
