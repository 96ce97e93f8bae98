// The forward pass of a model, block by block as its record lists them. Sequences are
// packed end to end, without padding; one sequence is a batch of one. Any part can be switched off;
// what each block was given and returned is kept, so that a run in which a later part is off begins
// there.

import { GATES, activationOf } from "../activations.ts";
import { score, scores, span } from "../attention.ts";
import type { Rule } from "../attention.ts";
import type { Rows } from "../record.ts";
import { tensors } from "./model.ts";
import type { Attention, Linear, Norm, RunRecord, Stack, StackName, Tensor } from "./model.ts";
import { FREE } from "./prefix.ts";
import type { Opening, Prefix } from "./prefix.ts";
import { Products } from "./products.ts";

/** Where each sequence of packed rows begins, and where the last ends: cu_seqlens in the library. */
export type Starts = readonly number[];

/** Sequences end to end. */
export interface Packed {
  ids: readonly number[];
  starts: Starts;
}

export function packed(sequences: readonly (readonly number[])[]): Packed {
  const starts = [0];
  for (const ids of sequences) starts.push(starts.at(-1)! + ids.length);
  return { ids: sequences.flat(), starts };
}

/**
 * What is switched off, by name: "decoder.4" a block, whose sublayer then adds nothing;
 * "decoder.4.2" a head of it, whose output is then 0; "decoder.4.2.5.1" an edge, query 5 no longer
 * looking at key 1; "source.3" a source token, which nobody looks at.
 */
export type Off = ReadonlySet<string>;

export const NOTHING: Off = new Set();

/**
 * What parts that are off return instead of zeros, by stack and block: their sublayer's output and the
 * heads' z, row by row; past the last row, that of the last.
 */
export type Instead = { [name in StackName]: { y: Rows; z: Rows | null }[] };

/** A score of a head ("decoder.4.1"), as it enters the softmax, moved by a number. */
export interface MovedScore {
  head: string;
  query: number;
  key: number;
  by: number;
}

/** One stack's run: `rows` after its last norm, and block by block. */
export interface Run {
  rows: Rows;
  /** What each block was given; the last one more: what the stack's norm was given. */
  inputs: Rows[];
  /** What each sublayer returned. */
  outputs: Rows[];
  /** Of attention: the weights (H, L, S), sequence by sequence, and the heads' outputs (L, H · D). */
  looks: (Looks | undefined)[];
  /** Of networks: what their activation was given. */
  inners: (Rows | undefined)[];
  starts: Starts;
  /** The rows of logits that predict the answer, token by token. */
  places: readonly number[];
}

export interface Looks {
  weights: Float32Array;
  /** How many keys there are, and where those of each sequence begin. */
  keys: number;
  ofKeys: Starts;
  /** As they are multiplied: normalised and turned. */
  q: Rows;
  k: Rows;
  v: Rows;
  z: Rows;
}

/** A text that was read: the rows that cross-attention looks at, and each block's keys and values of them. */
export interface Memory {
  /** Without an encoder it has no rows. */
  run: Run;
  ids: readonly number[];
  /** What the decoder reads before the answer. */
  prompt: readonly number[];
  /** What the answer must begin with. */
  opening: Opening | null;
  kept: Map<number, [Rows, Rows]>;
}

/** Keys and values of the tokens so far, by block. */
type Past = Map<number, [Rows, Rows]>;

interface Given {
  memory?: Memory | undefined;
  past?: Past | undefined;
  starts?: Starts;
  /** How many tokens were before these. */
  offset?: number;
  from?: number;
  base?: Run | undefined;
}

export interface Answer {
  /** Without begin and end. */
  ids: number[];
  /** −log p of each token, of the end too if it ended. */
  losses: number[];
  ended: boolean;
}

export class Runner {
  readonly tensors: Tensor[];
  readonly products: Products;
  moved: MovedScore | null = null;
  instead: Instead | null = null;

  /** Without `values` the tensors are those of the record; `plain` is without compiled kernels. */
  constructor(readonly record: RunRecord, values: Tensor[] = tensors(record), plain = false) {
    this.products = new Products(values.map((tensor) => tensor.values.length), plain);
    this.tensors = values.map((tensor) => ({ ...tensor, values: this.products.place(tensor.values) }));
  }

  /** `base` is a run of the same, in which nothing of `changed` was different. */
  encode(ids: readonly number[], off: Off = NOTHING, base?: Memory, changed: Off = off): Memory {
    const from = base ? firstChanged("encoder", changed) : 0;
    if (base && from === Infinity) return base;
    const { stacks, begin, prompt } = this.record;
    if (!stacks.encoder) return base ?? { run: nothing(), ids, prompt: [...(prompt ?? []), ...ids], opening: null, kept: new Map() };
    const x = this.embed(stacks.encoder, ids, 0);
    const run = { ...this.layers("encoder", x, off, { from, base: base?.run }), places: stacks.decoder ? [] : this.predicted(ids) };
    return { run, ids, prompt: [begin], opening: null, kept: new Map() };
  }

  /** Sources of a batch, and the decoder over a begin token and each answer. */
  encodeAll({ ids, starts }: Packed): Memory {
    const x = this.embed(this.record.stacks.encoder!, ids, 0, starts);
    return { run: this.layers("encoder", x, NOTHING, { starts }), ids, prompt: [], opening: null, kept: new Map() };
  }

  decodeAll(memory: Memory, { ids, starts }: Packed): Run {
    const x = this.embed(this.record.stacks.decoder!, ids, 0, starts);
    return this.layers("decoder", x, NOTHING, { memory, starts });
  }

  /**
   * The decoder over a begin token, or the text, and an answer; `base` and `changed` as in `encode`. Without a
   * decoder the encoder's own run.
   */
  decode(memory: Memory, answer: readonly number[], off: Off = NOTHING, base?: Run, changed: Off = off): Run {
    const { decoder } = this.record.stacks;
    if (!decoder) return memory.run;
    const from = base ? firstChanged("decoder", changed) : 0;
    if (base && from === Infinity) return base;
    const x = this.embed(decoder, [...memory.prompt, ...answer], 0);
    const places = indices(x.count).slice(memory.prompt.length - 1);
    return { ...this.layers("decoder", x, off, { memory, from, base }), places };
  }

  /** The rows of logits that an encoder alone has an answer in: where the text is masked, else of all its tokens. */
  private predicted(ids: readonly number[]): number[] {
    const { labels, mask } = this.record;
    if (labels === "text") return [0];
    if (labels === "token") return indices(ids.length);
    const masked = indices(ids.length).filter((at) => ids[at] === mask);
    return masked.length > 0 ? masked : indices(ids.length).slice(1, -1);
  }

  /** What the output layer is given: the rows, or one for the label of a text, or what the head makes of them. */
  predicting(rows: Rows): Rows {
    const { head } = this.record;
    const pooled = this.pooled(rows);
    if (!head) return pooled;
    const made = activate(this.linear(pooled, head.first), head.activation);
    return head.norm ? this.norm(made, head.norm) : made;
  }

  /** The rows, or for the label of a text their mean, or where a head pools the first. */
  pooled(rows: Rows): Rows {
    if (this.record.labels !== "text") return rows;
    return this.record.head ? firstRows(rows, 1) : mean(rows);
  }

  rowsOfLogits({ rows }: Run): number {
    return this.record.labels === "text" ? 1 : rows.count;
  }

  /** Of labels those that are none have no probability. */
  logits(rows: Rows): Rows {
    const made = this.linear(this.predicting(rows), this.record.output);
    const never = this.record.labels ? this.record.suppressed! : [];
    for (let at = 0; at < made.values.length; at += made.width) for (const token of never) made.values[at + token] = -Infinity;
    return made;
  }

  /** The most likely token, of those that the model generates, or of `only` these. */
  choice(logits: Float32Array, only?: ReadonlyMap<number, number>): number {
    const allowed = only ? logits.map((logit, token) => (only.has(token) ? logit : -Infinity)) : logits.slice();
    for (const token of this.record.suppressed ?? []) allowed[token] = -Infinity;
    return largest(allowed);
  }

  /**
   * What a model without a decoder predicts: in each place the most likely token or label. Where nothing is masked
   * the answer is the text itself.
   */
  private guessed({ ids, run }: Memory): Answer {
    const { labels, mask } = this.record;
    const { values, width } = this.logits(run.rows);
    const rows = run.places.map((place) => values.subarray(place * width, (place + 1) * width));
    const own = labels || ids.includes(mask!) ? rows.map((row) => this.choice(row)) : ids.slice(1, -1);
    return { ids: own, losses: own.map((token, l) => loss(rows[l]!, token)), ended: false };
  }

  /**
   * The answer whose every token is the most likely one. A guess of it is read at once, which is
   * faster than token by token; from the first token that is another, it is read no further.
   */
  greedy(memory: Memory, off: Off = NOTHING, guess: readonly number[] = []): Answer {
    const { end, longest, positions, stacks: { decoder } } = this.record;
    if (!decoder) return this.guessed(memory);
    const first = memory.prompt.length - 1;
    const prefix = memory.opening?.prefix;
    let state = prefix ? 0 : FREE;
    const room = Math.min(longest.answer + (memory.opening?.again ?? 0), (positions ?? Infinity) - first - 1);
    const answer: Answer = { ids: [], losses: [], ended: false };
    const past: Past = new Map();
    let ahead = guess.slice(0, Math.max(0, room - 1));
    for (let read = memory.prompt; ; ahead = []) {
      if (answer.ids.length === room) return answer;
      const offset = answer.ids.length + first + 1 - read.length;
      const x = this.embed(decoder, [...read, ...ahead], offset);
      const { rows } = this.layers("decoder", x, off, { memory, past, offset });
      const { values, width } = this.logits(lastRows(rows, ahead.length + 1));
      for (let l = 0; l <= ahead.length; l++) {
        const logits = values.subarray(l * width, (l + 1) * width);
        const token = this.choice(logits, prefix?.[state]);
        state = prefix?.[state]?.get(token) ?? FREE;
        read = [token];
        answer.losses.push(loss(logits, token));
        if (token === end) return { ...answer, ended: true };
        answer.ids.push(token);
        if (token !== ahead[l]) break;
      }
      for (const [block, both] of past) past.set(block, both.map((x) => firstRows(x, first + answer.ids.length)) as [Rows, Rows]);
    }
  }

  /** −log p of each token of an answer in a run, and whether greedy gives it too. */
  losses(run: Run, { ids, ended }: Answer, prefix?: Prefix | null): { losses: number[]; same: boolean } {
    const expected = ended ? [...ids, this.record.end] : ids;
    let state = prefix ? 0 : FREE;
    const { values, width } = this.logits(run.rows);
    const rows = expected.map((_, l) => values.subarray(run.places[l]! * width, (run.places[l]! + 1) * width));
    return {
      losses: rows.map((row, l) => loss(row, expected[l]!)),
      same: rows.every((row, l) => {
        const only = prefix?.[state];
        state = only?.get(expected[l]!) ?? FREE;
        return this.choice(row, only) === expected[l];
      }),
    };
  }

  // the parts

  embed(stack: Stack, ids: readonly number[], offset: number, starts?: Starts): Rows {
    const x = this.embedded(stack, ids, offset, starts);
    return stack.embed.norm ? this.norm(x, stack.embed.norm) : x;
  }

  /** Tokens and positions, before the embedding's norm. */
  embedded(stack: Stack, ids: readonly number[], offset = 0, starts: Starts = [0, ids.length]): Rows {
    const tokens = this.tokenRows(stack, ids);
    const places = this.places(stack, ids.length, offset, starts);
    const placed = places ? added(tokens, places) : tokens;
    const segments = this.segments(stack, ids.length);
    return segments ? added(placed, segments) : placed;
  }

  /** The first segment's row for every token, of a model that has segments. */
  segments({ embed }: Stack, count: number): Rows | null {
    if ((embed.segments ?? null) === null) return null;
    const { values: table, columns: width } = this.tensors[embed.segments!]!;
    const values = new Float32Array(count * width);
    for (let t = 0; t < count; t++) values.set(table.subarray(0, width), t * width);
    return { values, count, width };
  }

  tokenRows({ embed }: Stack, ids: readonly number[]): Rows {
    const { values: table, columns: width } = this.tensors[embed.tokens]!;
    const values = new Float32Array(ids.length * width);
    ids.forEach((id, t) => {
      for (let i = 0; i < width; i++) values[t * width + i] = table[id * width + i]! * embed.factor;
    });
    return { values, count: ids.length, width };
  }

  /** What positions add, if they add anything. */
  places({ embed }: Stack, count: number, offset = 0, starts: Starts = [0, count]): Rows | null {
    if (embed.positions === null) return null;
    const { columns: width } = this.tensors[embed.tokens]!;
    const learned = embed.table === null ? null : this.tensors[embed.table]!.values;
    const halves = embed.positions === "sinusoidal_halves";
    const values = new Float32Array(count * width);
    const made: number[] = []; // the first row of each position, which is there again for the next sequence
    placesIn(starts, offset).forEach((place, row) => {
      const first = (made[place] ??= row);
      if (first < row) {
        values.copyWithin(row * width, first * width, (first + 1) * width);
        return;
      }
      for (let i = 0; i < width; i++) {
        const p = learned ? learned[place * width + i]! : sinusoid(place, i, width, halves);
        values[row * width + i] = p * embed.position_factor;
      }
    });
    return { values, count, width };
  }

  /** The blocks of a stack; those before `from` are taken from another run of the same rows. */
  private layers(
    name: StackName,
    x: Rows,
    off: Off,
    { memory, past, starts = [0, x.count], offset = 0, from = 0, base }: Given,
  ): Run {
    const { blocks, norm } = this.record.stacks[name]!;
    const run: Run = { rows: x, inputs: [], outputs: [], looks: [], inners: [], starts, places: [] };
    if (base && from > 0) {
      run.inputs = base.inputs.slice(0, from);
      run.outputs = base.outputs.slice(0, from);
      run.looks = base.looks.slice(0, from);
      run.inners = base.inners.slice(0, from);
      x = base.inputs[from]!;
    }
    for (let i = from; i < blocks.length; i++) {
      const block = blocks[i]!;
      run.inputs[i] = x;
      const given = block.norm_first ? this.norm(x, block.norm) : x;
      let y: Rows;
      if (off.has(`${name}.${i}`)) {
        y = { ...x, values: new Float32Array(x.values.length) };
        fill(y, this.instead?.[name][i]?.y, offset, 0, x.width);
      } else if (block.kind === "network") {
        const inner = (run.inners[i] = this.linear(given, block.first));
        y = this.linear(activate(inner, block.activation), block.second);
      } else [y, run.looks[i]] = this.attend(given, block, `${name}.${i}`, off, starts, offset, i, memory, past);
      run.outputs[i] = y;
      x = block.residual === false ? y : added(x, y);
      if (!block.norm_first) x = this.norm(x, block.norm);
    }
    run.inputs[blocks.length] = x;
    run.rows = norm ? this.norm(x, norm) : x;
    return run;
  }

  private attend(
    x: Rows,
    block: Attention,
    name: string,
    off: Off,
    starts: Starts,
    offset: number,
    number: number,
    memory: Memory | undefined,
    past: Past | undefined,
  ): [Rows, Looks] {
    const { heads, groups, width } = block;
    const [ofQ, ofK] = [heads * width, groups * width];
    const q = this.projected(x, block, 0, ofQ, block.q_norm, offset, starts);
    const keysValues = (rows: Rows, offset: number, starts: Starts): [Rows, Rows] => [
      this.projected(rows, block, ofQ, ofQ + ofK, block.k_norm, offset, starts),
      this.linear(rows, block.in, ofQ + ofK, ofQ + 2 * ofK),
    ];
    let [k, v]: [Rows, Rows] = [q, q];
    if (block.memory) {
      const kept = memory!.kept.get(number) ?? keysValues(memory!.run.rows, 0, memory!.run.starts);
      memory!.kept.set(number, kept);
      [k, v] = kept;
    } else {
      [k, v] = keysValues(x, offset, starts);
      const before = past?.get(number);
      if (before) [k, v] = [joined(before[0], k), joined(before[1], v)];
      past?.set(number, [k, v]);
    }
    const ofKeys = block.memory ? memory!.run.starts : past ? [0, k.count] : starts;
    const alone = !this.record.stacks.encoder;
    const before = alone ? (this.record.prompt?.length ?? 0) : 0;
    const hidden = alone || block.memory || name.startsWith("encoder") ? hiddenTokens(off).map((token) => before + token) : [];
    const z = { values: new Float32Array(x.count * ofQ), count: x.count, width: ofQ };
    const pieces = piecesOf(starts, ofKeys);
    const weights = new Float32Array(heads * pieces.reduce((all, { queries, keys }) => all + queries * keys, 0));
    const [ofKey, ofValue, ofZ] = [k.values, v.values, z.values];
    for (let h = 0; h < heads; h++) {
      if (off.has(`${name}.${h}`)) {
        const stack = name.split(".")[0] as StackName;
        fill(z, this.instead?.[stack][number]?.z, offset, h * width, width);
        continue;
      }
      const rule = this.rule(block, h);
      const scored = scores(rule);
      const cut = cutEdges(off, `${name}.${h}.`);
      const shift = Math.floor((h * groups) / heads) * width;
      const factor = this.factor(block, h);
      const moved = this.moved?.head === `${name}.${h}` ? this.moved : null;
      // One sequence after another: its queries are rows `query` on, its keys rows `key` on.
      for (const { query, queries, key, keys, before } of pieces) {
        for (let l = 0; l < queries; l++) {
          const place = offset + l;
          const [first, end] = span(place, keys, rule);
          const at = heads * before + (h * queries + l) * keys;
          const row = weights.subarray(at, at + keys).fill(-Infinity);
          const ofRow = (query + l) * ofQ + h * width;
          const unseen = [...hidden, ...(cut.get(place) ?? [])];
          let most = -Infinity;
          for (let s = first; s < end; s++) {
            if (unseen.length > 0 && unseen.includes(s)) continue;
            const scaled = factor * dot(q.values, ofRow, ofKey, (key + s) * ofK + shift, width);
            let a = scored ? score(scaled, place - s, rule) : scaled;
            if (moved?.query === place && moved.key === s) a += moved.by;
            row[s] = a;
            most = Math.max(most, a);
          }
          softmax(row, most);
          for (let s = first; s < end; s++) {
            const w = row[s]!;
            const from = (key + s) * ofK + shift;
            for (let d = 0; d < width; d++) ofZ[ofRow + d]! += w * ofValue[from + d]!;
          }
        }
      }
    }
    return [this.linear(z, block.out), { weights, keys: k.count, ofKeys, q, k, v, z }];
  }

  /** What becomes of a head's scaled products. */
  rule({ rule, distances }: Attention, head: number): Rule {
    if (distances === null) return { parts: rule, added: null };
    const width = 2 * distances.reach + 1;
    const { values } = this.tensors[distances.table]!;
    return { parts: rule, added: values.subarray(head * width, (head + 1) * width) };
  }

  /** What q · k of a head is multiplied by. */
  factor({ scale, head_scale }: Attention, head: number): number {
    return scale * (head_scale === null ? 1 : this.tensors[head_scale]!.values[head]!);
  }

  /** Queries or keys: projected, normalised head by head, turned by their positions. */
  projected(
    x: Rows,
    { in: linear, width, turns }: Attention,
    first: number,
    end: number,
    norm: Norm | null,
    offset: number,
    starts: Starts,
  ): Rows {
    let y = this.linear(x, linear, first, end);
    if (norm) y = { ...y, values: this.norm(byHead(y, width), norm).values };
    if (turns) turn(y, turns, width, placesIn(starts, offset));
    return y;
  }

  norm(x: Rows, { kind, eps, weight, bias }: Norm): Rows {
    const { width } = x;
    const values = new Float32Array(x.values.length);
    const [gain, shift] = [weight, bias].map((at) => (at === null ? null : this.tensors[at]!.values));
    const given = x.values;
    for (let at = 0; at < values.length; at += width) {
      const { mean, inverse } = spread(given, at, width, kind, eps);
      for (let i = 0; i < width; i++) {
        const unit = (given[at + i]! - mean) * inverse;
        values[at + i] = (gain ? gain[i]! * unit : unit) + (shift ? shift[i]! : 0);
      }
    }
    return { ...x, values };
  }

  /** x Wᵀ + b by rows `first` to `end` of W. */
  linear(x: Rows, { weight, bias }: Linear, first = 0, end?: number): Rows {
    const { values: w, rows, columns } = this.tensors[weight]!;
    const b = bias === null ? null : this.tensors[bias]!.values;
    const width = (end ?? rows) - first;
    const made = this.products.rowsTimes(x.values, x.count, w.subarray(first * columns, (first + width) * columns), columns);
    if (b !== null) {
      for (let at = 0; at < made.length; at += width) {
        for (let i = 0; i < width; i++) made[at + i]! += b[first + i]!;
      }
    }
    return { values: made, count: x.count, width };
  }
}

/** softmax of one query's scores, of which `most` is the largest, in place; zeros where it sees nothing. */
function softmax(row: Float32Array, most: number): void {
  if (most === -Infinity) {
    row.fill(0);
    return;
  }
  let sum = 0;
  for (let s = 0; s < row.length; s++) sum += row[s] = Math.exp(row[s]! - most);
  for (let s = 0; s < row.length; s++) row[s]! /= sum;
}

/** Some columns of rows, from those of other rows; `offset` rows were before these. */
function fill(x: Rows, other: Rows | null | undefined, offset: number, first: number, count: number): void {
  if (!other) return;
  for (let t = 0; t < x.count; t++) {
    const from = Math.min(offset + t, other.count - 1) * other.width + first;
    x.values.set(other.values.subarray(from, from + count), t * x.width + first);
  }
}

export const indices = (count: number) => Array.from({ length: count }, (_, i) => i);

/** The mean of rows, as one. */
export function mean({ values, count, width }: Rows): Rows {
  const one = new Float32Array(width);
  for (let i = 0; i < values.length; i++) one[i % width]! += values[i]! / count;
  return { values: one, count: 1, width };
}

/** The position of each row in its sequence. */
export function placesIn(starts: Starts, offset = 0): number[] {
  return starts.slice(1).flatMap((end, n) => {
    return Array.from({ length: end - starts[n]! }, (_, place) => offset + place);
  });
}

/** A sequence's rows of queries and of keys, and how many pairs of both come before it. */
interface Piece {
  query: number;
  queries: number;
  key: number;
  keys: number;
  before: number;
}

export function piecesOf(starts: Starts, ofKeys: Starts): Piece[] {
  let before = 0;
  return starts.slice(1).map((end, n) => {
    const [query, key] = [starts[n]!, ofKeys[n]!];
    const piece = { query, queries: end - query, key, keys: ofKeys[n + 1]! - key, before };
    before += piece.queries * piece.keys;
    return piece;
  });
}

/** The rows of all heads, one below the other. */
export function byHead({ values, count, width: all }: Rows, width: number): Rows {
  return { values, count: (count * all) / width, width };
}

/** Turn the pairs of every head by the angles of its row's position, in place; `by` −1 turns them back. */
export function turn(x: Rows, turns: number[], width: number, places: readonly number[], by = 1): void {
  const half = width / 2;
  for (let at = 0; at < x.values.length; at += width) {
    const place = by * places[Math.floor(at / x.width)]!;
    for (let i = 0; i < half; i++) {
      const [cos, sin] = [Math.cos(place * turns[i]!), Math.sin(place * turns[i]!)];
      const [a, b] = [x.values[at + i]!, x.values[at + half + i]!];
      x.values[at + i] = a * cos - b * sin;
      x.values[at + half + i] = b * cos + a * sin;
    }
  }
}

/** The mean that a norm takes away from a row, and what it multiplies the rest by. */
export function spread(
  x: Float32Array,
  at: number,
  width: number,
  kind: Norm["kind"],
  eps: number,
): { mean: number; inverse: number } {
  let [mean, square] = [0, 0];
  if (kind === "layer_norm") {
    for (let i = 0; i < width; i++) mean += x[at + i]!;
    mean /= width;
  }
  for (let i = 0; i < width; i++) square += (x[at + i]! - mean) ** 2;
  return { mean, inverse: 1 / Math.sqrt(square / width + eps) };
}

export function loss(logits: Float32Array, token: number): number {
  const most = logits[largest(logits)]!;
  let sum = 0;
  for (const x of logits) sum += Math.exp(x - most);
  return Math.log(sum) + most - logits[token]!;
}

export function largest(values: ArrayLike<number>, size = (x: number) => x): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (size(values[i]!) > size(values[best]!)) best = i;
  return best;
}

/** The place of the number furthest from 0. */
export const furthest = (values: ArrayLike<number>) => largest(values, Math.abs);

export function rowOf({ values, width }: Rows, row: number): Rows {
  return { values: values.subarray(row * width, (row + 1) * width), count: 1, width };
}

/** The length of every row. */
export function norms({ values, count, width }: Rows): Float32Array {
  return Float32Array.from({ length: count }, (_, t) => Math.hypot(...values.subarray(t * width, (t + 1) * width)));
}

/** Two sums at a time do not wait for each other. */
export function dot(a: Float32Array, i: number, b: Float32Array, j: number, width: number): number {
  let [even, odd] = [0, 0];
  let d = 0;
  for (; d + 1 < width; d += 2) {
    even += a[i + d]! * b[j + d]!;
    odd += a[i + d + 1]! * b[j + d + 1]!;
  }
  return d < width ? even + odd + a[i + d]! * b[j + d]! : even + odd;
}

export function added(a: Rows, b: Rows): Rows {
  const values = new Float32Array(a.values.length);
  for (let i = 0; i < values.length; i++) values[i] = a.values[i]! + b.values[i]!;
  return { ...a, values };
}

function joined(a: Rows, b: Rows): Rows {
  const values = new Float32Array(a.values.length + b.values.length);
  values.set(a.values);
  values.set(b.values, a.values.length);
  return { values, count: a.count + b.count, width: a.width };
}

function firstRows({ values, width }: Rows, count: number): Rows {
  return { values: values.subarray(0, count * width), count, width };
}

function lastRows({ values, count, width }: Rows, some: number): Rows {
  return { values: values.subarray((count - some) * width, count * width), count: some, width };
}

/** The run of an encoder that a model does not have. */
function nothing(): Run {
  return { rows: { values: new Float32Array(0), count: 0, width: 0 }, inputs: [], outputs: [], looks: [], inners: [], starts: [0, 0], places: [] };
}

function hiddenTokens(off: Off): number[] {
  return [...off].filter((name) => name.startsWith("source.")).map((name) => Number(name.slice(7)));
}

/** The keys that each query of a head no longer looks at. */
function cutEdges(off: Off, head: string): Map<number, number[]> {
  const cut = new Map<number, number[]>();
  for (const name of off) {
    if (!name.startsWith(head)) continue;
    const [query, key] = name.slice(head.length).split(".").map(Number) as [number, number];
    cut.set(query, [...(cut.get(query) ?? []), key]);
  }
  return cut;
}

/** The first block of a stack that is changed. */
function firstChanged(stack: StackName, changed: Off): number {
  const blocks = [...changed].map((name) => {
    const [where, block] = name.split(".");
    if (where === "source") return 0;
    return where === stack ? Number(block) : Infinity;
  });
  return Math.min(Infinity, ...blocks);
}

function sinusoid(place: number, i: number, width: number, halves: boolean): number {
  const evens = Math.ceil(width / 2);
  const [pair, cosine] = halves ? [i % evens, i >= evens] : [i >> 1, i % 2 === 1];
  const angle = place / 10000 ** ((2 * pair) / width);
  return cosine ? Math.cos(angle) : Math.sin(angle);
}

export function activate(x: Rows, name: string): Rows {
  const f = activationOf(name).y;
  if (!(name in GATES)) return { ...x, values: x.values.map(f) };
  const width = x.width / 2;
  const values = new Float32Array(x.count * width);
  for (let t = 0, at = 0; t < x.count; t++) {
    for (let i = 0; i < width; i++, at++) {
      values[at] = f(x.values[t * x.width + i]!) * x.values[t * x.width + width + i]!;
    }
  }
  return { values, count: x.count, width };
}
