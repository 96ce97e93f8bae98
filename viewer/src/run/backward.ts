// The backward pass of the page's forward pass: the gradient of Σ −log p of chosen tokens for every
// number of the model and every score. Each step is written by hand, below the step that it reverses
// in forward.ts; what the forward pass did not keep is computed again.

import { GATES, activationOf } from "../activations.ts";
import { slopeOf } from "../attention.ts";
import type { Rows } from "../record.ts";
import { NOTHING, activate, added, byHead, dot, loss, spread, turn } from "./forward.ts";
import type { Looks, Memory, Off, Run, Runner } from "./forward.ts";
import type { Attention, Linear, Network, Norm, Stack, StackName } from "./model.ts";

export interface Gradients {
  /** Of every tensor; of what distances add to the scores, which is no parameter itself, zeros. */
  tensors: Float64Array[];
  /** Of the scores of every block as they enter the softmax, (H, L, S). */
  scores: { [name in StackName]: (Float64Array | undefined)[] };
  passed: { [name in StackName]?: Passed };
}

/** Gradients on their way back through a stack. */
export interface Passed {
  /** Of its rows, and of what its first block was given. */
  last: Rows;
  first: Rows;
  /** Block by block: of what it returned, of the residual sum, of what the sublayer was given. */
  arrives: Rows[];
  sums: Rows[];
  given: Rows[];
}

/** `expected` are the tokens that the rows of the decoder should predict; null: not in the loss. */
export function gradients(
  runner: Runner,
  memory: Memory,
  run: Run,
  answer: readonly number[],
  expected: readonly (number | null)[],
  off: Off = NOTHING,
): Gradients {
  const { begin, stacks, output } = runner.record;
  const back = new Backward(runner, off);
  const dlogits = runner.logits(run.rows);
  for (let l = 0; l < dlogits.count; l++) {
    const row = dlogits.values.subarray(l * dlogits.width, (l + 1) * dlogits.width);
    const token = expected[l] ?? null;
    if (token === null) {
      row.fill(0);
      continue;
    }
    const [logit, own] = [row[token]!, loss(row, token)];
    for (let i = 0; i < row.length; i++) row[i] = Math.exp(row[i]! - logit - own);
    row[token]! -= 1;
  }
  const dmemory = zeros(memory.run.rows);
  const dx = back.layers("decoder", run, back.linear(run.rows, output, dlogits), memory, dmemory);
  back.embed(stacks.decoder, [begin, ...answer], dx);
  back.embed(stacks.encoder, memory.ids, back.layers("encoder", memory.run, dmemory, memory, dmemory));
  return back.gradients;
}

class Backward {
  readonly gradients: Gradients;
  private readonly runner: Runner;
  private readonly off: Off;

  constructor(runner: Runner, off: Off) {
    this.runner = runner;
    this.off = off;
    const tensors = runner.tensors.map(({ values }) => new Float64Array(values.length));
    this.gradients = { tensors, scores: { encoder: [], decoder: [] }, passed: {} };
  }

  layers(name: StackName, run: Run, dy: Rows, memory: Memory, dmemory: Rows): Rows {
    const { runner, off } = this;
    const { blocks, norm } = runner.record.stacks[name];
    let d = norm ? this.norm(run.inputs[blocks.length]!, norm, dy) : dy;
    const passed: Passed = { last: dy, first: d, arrives: [], sums: [], given: [] };
    this.gradients.passed[name] = passed;
    for (let i = blocks.length - 1; i >= 0; i--) {
      const block = blocks[i]!;
      const x = run.inputs[i]!;
      passed.arrives[i] = d;
      if (!block.norm_first) d = this.norm(added(x, run.outputs[i]!), block.norm, d);
      passed.sums[i] = d;
      if (off.has(`${name}.${i}`)) continue;
      const given = block.norm_first ? runner.norm(x, block.norm) : x;
      let through: Rows;
      if (block.kind === "network") through = this.network(given, block, d);
      else {
        const scores = (this.gradients.scores[name][i] = new Float64Array(run.looks[i]!.weights.length));
        through = this.attend(given, block, run.looks[i]!, scores, d, memory, dmemory);
      }
      passed.given[i] = through;
      d = added(d, block.norm_first ? this.norm(x, block.norm, through) : through);
    }
    return (passed.first = d);
  }

  embed(stack: Stack, ids: readonly number[], d: Rows): void {
    const { tokens, factor, table, position_factor, norm } = stack.embed;
    if (norm) d = this.norm(this.runner.embedded(stack, ids), norm, d);
    ids.forEach((id, t) => {
      for (let i = 0; i < d.width; i++) {
        const each = d.values[t * d.width + i]!;
        this.gradients.tensors[tokens]![id * d.width + i]! += factor * each;
        if (table !== null) this.gradients.tensors[table]![t * d.width + i]! += position_factor * each;
      }
    });
  }

  private network(x: Rows, { first, activation, second }: Network, dy: Rows): Rows {
    const inner = this.runner.linear(x, first);
    const dactive = this.linear(activate(inner, activation), second, dy);
    const gated = activation in GATES;
    const { y: f, slope } = activationOf(activation);
    const { width } = dactive;
    const d = zeros(inner);
    for (let t = 0; t < x.count; t++) {
      for (let i = 0; i < width; i++) {
        const at = t * inner.width + i;
        const [a, dy] = [inner.values[at]!, dactive.values[t * width + i]!];
        d.values[at] = dy * slope(a) * (gated ? inner.values[at + width]! : 1);
        if (gated) d.values[at + width] = dy * f(a);
      }
    }
    return this.linear(x, first, d);
  }

  private attend(
    x: Rows,
    block: Attention,
    { weights, keys, z }: Looks,
    scores: Float64Array,
    dy: Rows,
    memory: Memory,
    dmemory: Rows,
  ): Rows {
    const { runner } = this;
    const { heads, groups, width } = block;
    const [ofQ, ofK] = [heads * width, groups * width];
    const from = block.memory ? memory.run.rows : x;
    const q = runner.projected(x, block, 0, ofQ, block.q_norm, 0);
    const k = runner.projected(from, block, ofQ, ofQ + ofK, block.k_norm, 0);
    const v = runner.linear(from, block.in, ofQ + ofK, ofQ + 2 * ofK);
    const dz = this.linear(z, block.out, dy);
    const [dq, dk, dv] = [zeros(q), zeros(k), zeros(v)];
    const dw = new Float64Array(keys);
    for (let h = 0; h < heads; h++) {
      const [factor, rule] = [runner.factor(block, h), runner.rule(block, h)];
      const shift = Math.floor((h * groups) / heads) * width;
      for (let l = 0; l < x.count; l++) {
        const [row, ofRow] = [(h * x.count + l) * keys, l * ofQ + h * width];
        let mean = 0;
        for (let s = 0; s < keys; s++) {
          dw[s] = dot(dz.values, ofRow, v.values, s * ofK + shift, width);
          mean += weights[row + s]! * dw[s]!;
        }
        for (let s = 0; s < keys; s++) {
          const w = weights[row + s]!;
          if (w === 0) continue;
          const ofKey = s * ofK + shift;
          let da = (scores[row + s] = w * (dw[s]! - mean));
          const product = dot(q.values, ofRow, k.values, ofKey, width);
          da *= slopeOf(factor * product, rule);
          if (block.head_scale !== null) {
            this.gradients.tensors[block.head_scale]![h]! += da * block.scale * product;
          }
          for (let i = 0; i < width; i++) {
            dv.values[ofKey + i]! += w * dz.values[ofRow + i]!;
            dq.values[ofRow + i]! += da * factor * k.values[ofKey + i]!;
            dk.values[ofKey + i]! += da * factor * q.values[ofRow + i]!;
          }
        }
      }
    }
    const dx = this.projected(x, block, 0, ofQ, block.q_norm, dq);
    const dfrom = added(
      this.projected(from, block, ofQ, ofQ + ofK, block.k_norm, dk),
      this.linear(from, block.in, dv, ofQ + ofK, ofQ + 2 * ofK),
    );
    if (!block.memory) return added(dx, dfrom);
    dmemory.values.forEach((d, i) => (dmemory.values[i] = d + dfrom.values[i]!));
    return dx;
  }

  private projected(
    x: Rows,
    { in: linear, width, turns }: Attention,
    first: number,
    end: number,
    norm: Norm | null,
    d: Rows,
  ): Rows {
    if (turns) turn(d, turns, width, (place) => -place);
    if (norm) {
      const y = byHead(this.runner.linear(x, linear, first, end), width);
      d = { ...d, values: this.norm(y, norm, byHead(d, width)).values };
    }
    return this.linear(x, linear, d, first, end);
  }

  private norm(x: Rows, { kind, eps, weight, bias }: Norm, dy: Rows): Rows {
    const { width } = x;
    const gain = weight === null ? null : this.runner.tensors[weight]!.values;
    const [dgain, dshift] = [weight, bias].map((at) => (at === null ? null : this.gradients.tensors[at]!));
    const dx = zeros(x);
    for (let at = 0; at < x.values.length; at += width) {
      const { mean, inverse } = spread(x.values, at, width, kind, eps);
      let [sum, along] = [0, 0];
      for (let i = 0; i < width; i++) {
        const [d, unit] = [dy.values[at + i]!, (x.values[at + i]! - mean) * inverse];
        if (dgain) dgain[i]! += d * unit;
        if (dshift) dshift[i]! += d;
        sum += d * (gain?.[i] ?? 1);
        along += d * (gain?.[i] ?? 1) * unit;
      }
      if (kind === "rms_norm") sum = 0;
      for (let i = 0; i < width; i++) {
        const unit = (x.values[at + i]! - mean) * inverse;
        dx.values[at + i] = inverse * (dy.values[at + i]! * (gain?.[i] ?? 1) - (sum + along * unit) / width);
      }
    }
    return dx;
  }

  linear(x: Rows, { weight, bias }: Linear, dy: Rows, first = 0, end?: number): Rows {
    const { values: w, rows, columns } = this.runner.tensors[weight]!;
    const [dweight, dbias] = [weight, bias].map((at) => (at === null ? null : this.gradients.tensors[at]!));
    const width = (end ?? rows) - first;
    const dx = { values: new Float32Array(x.count * columns), count: x.count, width: columns };
    for (let t = 0; t < x.count; t++) {
      for (let o = 0; o < width; o++) {
        const [d, row, start] = [dy.values[t * width + o]!, (first + o) * columns, t * columns];
        if (d === 0) continue;
        if (dbias) dbias[first + o]! += d;
        for (let i = 0; i < columns; i++) {
          dweight![row + i]! += d * x.values[start + i]!;
          dx.values[start + i]! += d * w[row + i]!;
        }
      }
    }
    return dx;
  }
}

function zeros(x: Rows): Rows {
  return { ...x, values: new Float32Array(x.values.length) };
}
