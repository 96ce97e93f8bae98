// The backward pass of the page's forward pass: the gradient of Σ −log p of chosen tokens for every
// number of the model and every score. Each step is written by hand, below the step that it reverses
// in forward.ts; what the forward pass did not keep is computed again.

import { GATES, activationOf } from "../activations.ts";
import { scores as scoring, slopeOf } from "../attention.ts";
import type { Rows } from "../record.ts";
import { NOTHING, activate, added, byHead, dot, loss, piecesOf, placesIn, rowOf, spread, turn } from "./forward.ts";
import type { Looks, Memory, Off, Run, Runner, Starts } from "./forward.ts";
import type { Attention, Linear, Network, Norm, StackName } from "./model.ts";

/** The derivatives that a reader may break, each a step by itself. */
export interface Derivatives {
  /** Of a score, from its weight, the weight's gradient and the sum of w dw over its row. */
  softmax: (w: number, dw: number, sum: number) => number;
  /** What each score is multiplied by. */
  scale: (factor: number) => number;
  /** Of a number before the norm is divided by its spread: d̂, and its row's means of d̂ and of d̂ x̂. */
  norm: (d: number, unit: number, mean: number, along: number) => number;
  activation: (slope: number) => number;
  /** What goes past a sublayer, and what went through it. */
  residual: (past: Rows, through: Rows) => Rows;
  /** What self-attention's queries pass to its input, and its keys and values. */
  shared: (ofQuery: Rows, ofKeyAndValue: Rows) => Rows;
}

export const RIGHT: Derivatives = {
  softmax: (w, dw, sum) => w * (dw - sum),
  scale: (factor) => factor,
  norm: (d, unit, mean, along) => d - mean - unit * along,
  activation: (slope) => slope,
  residual: added,
  shared: added,
};

export interface Gradients {
  /** Of every tensor; of what distances add to the scores, which is no parameter itself, zeros. */
  tensors: Float32Array[];
  /** Of the scores of every block as they enter the softmax, (H, L, S). */
  scores: { [name in StackName]: (Float64Array | undefined)[] };
  passed: { [name in StackName]?: Passed };
  /** Of what the output layer was given. */
  predicting: Rows;
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
  /** Of attention: of its heads' outputs, of the rows behind its queries, and of those behind its keys and values. */
  heads: (OfHeads | undefined)[];
  /** Of the sum of tokens and positions. */
  embedded: Rows;
}

export interface OfHeads {
  dz: Rows;
  dqueries: Rows;
  dkeys: Rows;
}

/** Why this token and not that: in one row of logits that of one minus that of the other, if there is one. */
export interface Between {
  row: number;
  token: number;
  other: number | null;
}

/** ℓ_token − ℓ_other. */
export function apart(runner: Runner, { rows }: Run, { row, token, other }: Between): number {
  const logits = runner.logits(runner.record.labels === "text" ? rows : rowOf(rows, row)).values;
  return logits[token]! - (other === null ? 0 : logits[other]!);
}

/**
 * The gradients, and −log p of each expected token. `read` is what the decoder reads; `expected` are the tokens that
 * the rows of logits should predict, null: not in the loss. In place of the loss it may be what stands between two
 * tokens. Of a batch all are packed.
 */
export function backward(
  runner: Runner,
  memory: Memory,
  run: Run,
  read: readonly number[],
  expected: readonly (number | null)[] | Between,
  off: Off = NOTHING,
  derivatives: Derivatives = RIGHT,
): { gradients: Gradients; losses: number[] } {
  const { output, stacks } = runner.record;
  const back = new Backward(runner, off, derivatives);
  const { dlogits, losses } = "token" in expected ? ofBetween(runner, run, expected) : ofLoss(runner, run, expected);
  back.gradients.predicting = back.linear(runner.predicting(run.rows), output, dlogits);
  let d = back.head(run.rows, back.gradients.predicting);
  const dmemory = zeros(memory.run.rows);
  if (stacks.decoder) {
    back.embed("decoder", read, back.layers("decoder", run, d, memory, dmemory), run.starts);
    d = dmemory;
  }
  if (stacks.encoder) {
    const dsource = back.layers("encoder", memory.run, d, memory, dmemory);
    back.embed("encoder", memory.ids, dsource, memory.run.starts);
  }
  const tensors = back.gradients.tensors.map((d) => d.slice()); // the next backward pass adds up in the same arrays
  return { gradients: { ...back.gradients, tensors }, losses };
}

/** +1 and −1. */
function ofBetween(runner: Runner, run: Run, { row, token, other }: Between): { dlogits: Rows; losses: number[] } {
  const width = runner.tensors[runner.record.output.weight]!.rows;
  const count = runner.rowsOfLogits(run);
  const values = new Float32Array(count * width);
  values[row * width + token]! += 1;
  if (other !== null) values[row * width + other]! -= 1;
  return { dlogits: { values, count, width }, losses: [] };
}

/** p − y in each row that is in the loss. */
function ofLoss(runner: Runner, run: Run, expected: readonly (number | null)[]): { dlogits: Rows; losses: number[] } {
  const dlogits = runner.logits(run.rows);
  const losses: number[] = [];
  for (let l = 0; l < dlogits.count; l++) {
    const row = dlogits.values.subarray(l * dlogits.width, (l + 1) * dlogits.width);
    const token = expected[l] ?? null;
    if (token === null) {
      row.fill(0);
      continue;
    }
    const [logit, own] = [row[token]!, loss(row, token)];
    losses.push(own);
    for (let i = 0; i < row.length; i++) row[i] = Math.exp(row[i]! - logit - own);
    row[token]! -= 1;
  }
  return { dlogits, losses };
}

class Backward {
  readonly gradients: Gradients;

  constructor(private readonly runner: Runner, private readonly off: Off, private readonly derivatives: Derivatives) {
    const tensors = runner.products.zeros();
    this.gradients = { tensors, scores: { encoder: [], decoder: [] }, passed: {}, predicting: { values: new Float32Array(0), count: 0, width: 0 } };
  }

  /** To the rows of the last stack, from what the output layer was given. */
  head(x: Rows, dy: Rows): Rows {
    const { runner } = this;
    const { head, labels } = runner.record;
    let d = dy;
    if (head) {
      const pooled = runner.pooled(x);
      const inner = runner.linear(pooled, head.first);
      if (head.norm) d = this.norm(activate(inner, head.activation), head.norm, d);
      d = this.linear(pooled, head.first, this.activated(inner, head.activation, d));
    }
    if (labels !== "text") return d;
    const drows = zeros(x);
    const [count, share] = head ? [1, 1] : [x.count, 1 / x.count];
    for (let i = 0; i < count * x.width; i++) drows.values[i] = share * d.values[i % x.width]!;
    return drows;
  }

  layers(name: StackName, run: Run, dy: Rows, memory: Memory, dmemory: Rows): Rows {
    const { runner, off } = this;
    const { blocks, norm } = runner.record.stacks[name]!;
    let d = norm ? this.norm(run.inputs[blocks.length]!, norm, dy) : dy;
    const passed: Passed = { last: dy, first: d, arrives: [], sums: [], given: [], heads: [], embedded: d };
    this.gradients.passed[name] = passed;
    for (let i = blocks.length - 1; i >= 0; i--) {
      const block = blocks[i]!;
      const x = run.inputs[i]!;
      passed.arrives[i] = d;
      const residual = block.residual !== false;
      const y = run.outputs[i]!;
      if (!block.norm_first) d = this.norm(residual ? added(x, y) : y, block.norm, d);
      passed.sums[i] = d;
      if (off.has(`${name}.${i}`)) continue;
      const given = block.norm_first ? runner.norm(x, block.norm) : x;
      let through: Rows;
      if (block.kind === "network") through = this.network(given, run.inners[i]!, block, d);
      else {
        const scores = (this.gradients.scores[name][i] = new Float64Array(run.looks[i]!.weights.length));
        const heads = this.attend(given, block, run.looks[i]!, run.starts, scores, d, memory);
        passed.heads[i] = heads;
        if (block.memory) for (let at = 0; at < dmemory.values.length; at++) dmemory.values[at]! += heads.dkeys.values[at]!;
        through = block.memory ? heads.dqueries : this.derivatives.shared(heads.dqueries, heads.dkeys);
      }
      passed.given[i] = through;
      if (block.norm_first) through = this.norm(x, block.norm, through);
      d = residual ? this.derivatives.residual(d, through) : through;
    }
    return (passed.first = d);
  }

  embed(name: StackName, ids: readonly number[], d: Rows, starts: Starts): void {
    const stack = this.runner.record.stacks[name]!;
    const { tokens, factor, table, position_factor, segments = null, norm } = stack.embed;
    if (norm) d = this.norm(this.runner.embedded(stack, ids, 0, starts), norm, d);
    this.gradients.passed[name]!.embedded = d;
    const places = placesIn(starts);
    ids.forEach((id, t) => {
      for (let i = 0; i < d.width; i++) {
        const each = d.values[t * d.width + i]!;
        this.gradients.tensors[tokens]![id * d.width + i]! += factor * each;
        if (table !== null) this.gradients.tensors[table]![places[t]! * d.width + i]! += position_factor * each;
        if (segments !== null) this.gradients.tensors[segments]![i]! += each;
      }
    });
  }

  private network(x: Rows, inner: Rows, { first, activation, second }: Network, dy: Rows): Rows {
    const dactive = this.linear(activate(inner, activation), second, dy);
    return this.linear(x, first, this.activated(inner, activation, dactive));
  }

  private activated(inner: Rows, activation: string, dactive: Rows): Rows {
    const gated = activation in GATES;
    const { y: f, slope } = activationOf(activation);
    const broken = this.derivatives.activation;
    const { width } = dactive;
    const d = zeros(inner);
    for (let t = 0; t < inner.count; t++) {
      for (let i = 0; i < width; i++) {
        const at = t * inner.width + i;
        const [a, dy] = [inner.values[at]!, dactive.values[t * width + i]!];
        d.values[at] = dy * broken(slope(a)) * (gated ? inner.values[at + width]! : 1);
        if (gated) d.values[at + width] = dy * f(a);
      }
    }
    return d;
  }

  private attend(
    x: Rows,
    block: Attention,
    { weights, ofKeys, q, k, v, z }: Looks,
    starts: Starts,
    scores: Float64Array,
    dy: Rows,
    memory: Memory,
  ): OfHeads {
    const { runner } = this;
    const { heads, groups, width } = block;
    const [ofQ, ofK] = [heads * width, groups * width];
    const from = block.memory ? memory.run.rows : x;
    const { softmax, scale } = this.derivatives;
    const dz = this.linear(z, block.out, dy);
    const [dq, dk, dv] = [zeros(q), zeros(k), zeros(v)];
    const [ofQuery, ofKey, ofValue, ofZ] = [q.values, k.values, v.values, dz.values];
    const [dquery, dkey, dvalue] = [dq.values, dk.values, dv.values];
    const pieces = piecesOf(starts, ofKeys);
    const dw = new Float64Array(Math.max(...pieces.map(({ keys }) => keys)));
    for (let h = 0; h < heads; h++) {
      const [factor, rule] = [runner.factor(block, h), runner.rule(block, h)];
      const scored = scoring(rule);
      const back = scale(factor);
      const shift = Math.floor((h * groups) / heads) * width;
      for (const { query, queries, key, keys, before } of pieces) {
        for (let l = 0; l < queries; l++) {
          const row = heads * before + (h * queries + l) * keys;
          const ofRow = (query + l) * ofQ + h * width;
          let sum = 0;
          for (let s = 0; s < keys; s++) {
            dw[s] = dot(ofZ, ofRow, ofValue, (key + s) * ofK + shift, width);
            sum += weights[row + s]! * dw[s]!;
          }
          for (let s = 0; s < keys; s++) {
            const w = weights[row + s]!;
            if (w === 0) continue;
            const from = (key + s) * ofK + shift;
            let da = (scores[row + s] = softmax(w, dw[s]!, sum));
            if (scored || block.head_scale !== null) {
              const product = dot(ofQuery, ofRow, ofKey, from, width);
              da *= slopeOf(factor * product, rule);
              if (block.head_scale !== null) this.gradients.tensors[block.head_scale]![h]! += da * block.scale * product;
            }
            da *= back;
            for (let i = 0; i < width; i++) {
              dvalue[from + i]! += w * ofZ[ofRow + i]!;
              dquery[ofRow + i]! += da * ofKey[from + i]!;
              dkey[from + i]! += da * ofQuery[ofRow + i]!;
            }
          }
        }
      }
    }
    const dqueries = this.projected(x, block, 0, ofQ, block.q_norm, dq, starts);
    const dkeys = added(
      this.projected(from, block, ofQ, ofQ + ofK, block.k_norm, dk, ofKeys),
      this.linear(from, block.in, dv, ofQ + ofK, ofQ + 2 * ofK),
    );
    return { dz, dqueries, dkeys };
  }

  private projected(
    x: Rows,
    { in: linear, width, turns }: Attention,
    first: number,
    end: number,
    norm: Norm | null,
    d: Rows,
    starts: Starts,
  ): Rows {
    if (turns) turn(d, turns, width, placesIn(starts), -1);
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
    const { norm } = this.derivatives;
    const [units, ds] = [new Float64Array(width), new Float64Array(width)];
    for (let at = 0; at < x.values.length; at += width) {
      const { mean, inverse } = spread(x.values, at, width, kind, eps);
      let sum = 0;
      let along = 0;
      for (let i = 0; i < width; i++) {
        let d = dy.values[at + i]!;
        const unit = (units[i] = (x.values[at + i]! - mean) * inverse);
        if (dgain) dgain[i]! += d * unit;
        if (dshift) dshift[i]! += d;
        if (gain) d *= gain[i]!;
        ds[i] = d;
        sum += d;
        along += d * unit;
      }
      if (kind === "rms_norm") sum = 0;
      [sum, along] = [sum / width, along / width];
      for (let i = 0; i < width; i++) dx.values[at + i] = inverse * norm(ds[i]!, units[i]!, sum, along);
    }
    return dx;
  }

  linear(x: Rows, { weight, bias }: Linear, dy: Rows, first = 0, end?: number): Rows {
    const { values: w, rows, columns } = this.runner.tensors[weight]!;
    const [dweight, dbias] = [weight, bias].map((at) => (at === null ? null : this.gradients.tensors[at]!));
    const width = (end ?? rows) - first;
    const inside = [first * columns, (first + width) * columns] as const;
    if (dbias) {
      for (let at = 0; at < dy.values.length; at += width) {
        for (let i = 0; i < width; i++) dbias[first + i]! += dy.values[at + i]!;
      }
    }
    this.runner.products.addOuter(dy.values, x.values, x.count, dweight!.subarray(...inside), columns);
    const dx = this.runner.products.timesRows(dy.values, x.count, w.subarray(...inside), columns);
    return { values: dx, count: x.count, width: columns };
  }
}

function zeros(x: Rows): Rows {
  return { ...x, values: new Float32Array(x.values.length) };
}
