// One number moved by δ, or all of them against the gradient: the loss along it, its slope at 0.

import { apart, backward } from "./backward.ts";
import type { Between, Gradients } from "./backward.ts";
import type { Answer, Memory, MovedScore, Off, Run, Runner } from "./forward.ts";
import { lastOf, stacksOf } from "./model.ts";
import type { RunRecord, StackName } from "./model.ts";

/** A matrix or vector of the model; of q, k and v, which are one matrix, its rows. */
export interface Named {
  /** "encoder.embed", "encoder.2" a block, "encoder.norm", "head", "output". */
  where: string;
  symbol: string;
  tensor: number;
  first: number;
  rows: number;
  columns: number;
}

/** Numbers of a tensor from number `at`, which move by δ times `by`. */
export interface Part {
  tensor: number;
  at: number;
  by: ArrayLike<number>;
}

export type Edit = { score: Omit<MovedScore, "by"> } | { parts: Part[] };

/**
 * What is fed, and the run of it before the edit; `counted` tells which tokens are in the loss. With `between` the
 * loss is in its place: by how much one logit is above another.
 */
export interface Fed {
  memory: Memory;
  run: Run;
  answer: Answer;
  off: Off;
  counted: (token: number) => boolean;
  between?: Between | null;
}

/** Every matrix and vector, in the order of the forward pass; what a model shares comes again. */
export function parameters(record: RunRecord): Named[] {
  const { head, output, numbers } = record;
  const all: Named[] = [];
  const add = (where: string, symbol: string, tensor: number | null, first = 0, count?: number) => {
    if (tensor === null) return;
    const [rows, columns] = numbers.tensors[tensor]!.shape;
    all.push({ where, symbol, tensor, first, rows: count ?? rows!, columns: columns ?? 1 });
  };
  for (const [name, { embed, blocks, norm }] of stacksOf(record)) {
    add(`${name}.embed`, "E", embed.tokens);
    add(`${name}.embed`, "P", embed.table);
    add(`${name}.embed`, "S", embed.segments ?? null);
    add(`${name}.embed`, "γ", embed.norm?.weight ?? null);
    add(`${name}.embed`, "β", embed.norm?.bias ?? null);
    blocks.forEach((block, i) => {
      const where = `${name}.${i}`;
      if (block.kind === "attention") {
        const [ofQ, ofK] = [block.heads * block.width, block.groups * block.width];
        const slices = [["q", 0, ofQ], ["k", ofQ, ofK], ["v", ofQ + ofK, ofK]] as const;
        for (const [letter, first, count] of slices) {
          add(where, `W_${letter}`, block.in.weight, first, count);
          add(where, `b_${letter}`, block.in.bias, first, count);
        }
        add(where, "γ_q", block.q_norm?.weight ?? null);
        add(where, "γ_k", block.k_norm?.weight ?? null);
        add(where, "s", block.head_scale);
        add(where, "W_o", block.out.weight);
        add(where, "b_o", block.out.bias);
      } else {
        add(where, "W_1", block.first.weight);
        add(where, "b_1", block.first.bias);
        add(where, "W_2", block.second.weight);
        add(where, "b_2", block.second.bias);
      }
      add(where, "γ", block.norm.weight);
      add(where, "β", block.norm.bias);
    });
    add(`${name}.norm`, "γ", norm?.weight ?? null);
    add(`${name}.norm`, "β", norm?.bias ?? null);
  }
  add("head", "W", head?.first.weight ?? null);
  add("head", "b", head?.first.bias ?? null);
  add("head", "γ", head?.norm?.weight ?? null);
  add("head", "β", head?.norm?.bias ?? null);
  add("output", "W", output.weight);
  add("output", "b", output.bias);
  return all;
}

/** All parameters, each against its gradient: a training step of size δ. */
export function step({ tensors }: Gradients): Part[] {
  return tensors.map((d, tensor) => ({ tensor, at: 0, by: d.map((x) => -x) }));
}

export function gradientsOf(runner: Runner, { memory, run, answer, off, counted, between }: Fed): Gradients {
  const expected = between ?? expectedOf(runner, run, answer).map((token, row) => (counted(run.places.indexOf(row)) ? token : null));
  return backward(runner, memory, run, [...memory.prompt, ...answer.ids], expected, off).gradients;
}

/** The token that each row of logits should predict; null: none. */
export function expectedOf(runner: Runner, run: Run, { ids, ended }: Answer): (number | null)[] {
  const tokens = ended ? [...ids, runner.record.end] : ids;
  const expected = Array<number | null>(runner.rowsOfLogits(run)).fill(null);
  tokens.forEach((token, l) => (expected[run.places[l]!] = token));
  return expected;
}

/** dL/dδ at 0, from the gradients of all numbers. */
export function slope(edit: Edit, { tensors, scores }: Gradients, { run, memory }: Fed): number {
  if ("score" in edit) {
    const { head, query, key } = edit.score;
    const [stack, block, h] = head.split(".") as [StackName, string, string];
    const { looks } = stack === "encoder" ? memory.run : run;
    const [look, d] = [looks[Number(block)], scores[stack][Number(block)]];
    return look && d ? d[(Number(h) * look.z.count + query) * look.keys + key]! : 0;
  }
  let sum = 0;
  for (const { tensor, at, by } of edit.parts) {
    for (let i = 0; i < by.length; i++) sum += tensors[tensor]![at + i]! * by[i]!;
  }
  return sum;
}

/** −log p of every token of the answer, L (or what stands between two logits), and greedy's answer instead, if it is another. */
export interface Outcome {
  losses: number[];
  loss: number;
  other: Answer | null;
}

/** The model with an edit of a size; blocks before the edit are taken from the run before it. */
export class Edited {
  readonly runner: Runner;
  readonly fed: Fed;
  readonly edit: Edit;
  private readonly changed: Off;

  constructor(runner: Runner, fed: Fed, edit: Edit) {
    [this.runner, this.fed, this.edit] = [runner, fed, edit];
    this.changed = new Set("score" in edit ? [edit.score.head] : used(runner.record, edit.parts));
  }

  at(by: number, greedy = false): Outcome {
    const { runner, changed } = this;
    const { answer, off, counted, between, memory: before, run } = this.fed;
    return this.moved(by, () => {
      const encoded = runner.encode(before.ids, off, before, changed);
      // Keys and values of the encoder's rows are a cross-attention's, which may have changed.
      const memory = { ...encoded, kept: new Map() };
      const whole = runner.decode(memory, answer.ids, off, encoded === before ? run : undefined, changed);
      const { losses, same } = runner.losses(whole, answer, memory.opening?.prefix);
      const loss = between ? apart(runner, whole, between) : losses.reduce((sum, x, l) => sum + (counted(l) ? x : 0), 0);
      return { losses, loss, other: greedy && !same ? runner.greedy(memory, off, answer.ids) : null };
    });
  }

  private moved<T>(by: number, run: () => T): T {
    const { runner, edit } = this;
    const kept: [Float32Array, Float32Array][] = [];
    if ("score" in edit) runner.moved = { ...edit.score, by };
    else {
      for (const part of edit.parts) {
        const numbers = runner.tensors[part.tensor]!.values.subarray(part.at, part.at + part.by.length);
        kept.push([numbers, numbers.slice()]);
        for (let i = 0; i < numbers.length; i++) numbers[i]! += by * part.by[i]!;
      }
    }
    try {
      return run();
    } finally {
      runner.moved = null;
      for (const [numbers, before] of kept) numbers.set(before);
    }
  }
}

/** Up to where a step is drawn, which may go along the gradient: the tangent reaches 0 in the middle. */
export function stepRange(edited: Edited, slope: number): [number, number] {
  const end = (2 * edited.at(0).loss) / Math.max(-slope, 1e-12);
  return end < 0 ? [end, 0] : [0, end];
}

/** Where its slider opens: an eighth of the way. */
export function stepOpens([low, high]: [number, number]): number {
  return (low + high) / 8;
}

/** The blocks that read these tensors, as `Off` names them. */
function used(record: RunRecord, parts: readonly Part[]): string[] {
  const moved = new Set(parts.map(({ tensor }) => tensor));
  return parameters(record)
    .filter(({ tensor }) => moved.has(tensor))
    .map(({ where }) => {
      const [stack, block] = where === "output" || where === "head" ? [lastOf(record)[0], "norm"] : where.split(".");
      const last = record.stacks[stack as StackName]!.blocks.length;
      return `${stack}.${block === "embed" ? 0 : block === "norm" ? last : block}`;
    });
}
