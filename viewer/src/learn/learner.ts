// Training: batches of a task, the loss, the backward pass written by hand, Adam.

import { RIGHT, backward } from "../run/backward.ts";
import type { Derivatives } from "../run/backward.ts";
import { Runner, packed } from "../run/forward.ts";
import type { RunRecord, Tensor } from "../run/model.ts";
import { Tokenizer } from "../run/tokens.ts";
import { fresh } from "./fresh.ts";
import type { Knobs } from "./fresh.ts";
import { Random } from "./random.ts";
import { idsOf, taskOf } from "./tasks.ts";
import type { Pair, Task, TaskName } from "./tasks.ts";

/** Mistakes that people make in these derivatives, each by its name. */
export const MISTAKES = {
  none: {},
  softmax: { softmax: (w, dw) => w * (1 - w) * dw },
  norm: { norm: (d) => d },
  mean: { norm: (d, unit, _, along) => d - unit * along },
  residual: { residual: (_, through) => through },
  shared: { shared: (ofQuery) => ofQuery },
  scale: { scale: () => 1 },
  activation: { activation: () => 1 },
} satisfies { [name: string]: Partial<Derivatives> };

export type Mistake = keyof typeof MISTAKES;

export interface Settings extends Knobs {
  task: TaskName;
  pairs: string;
  warmup: boolean;
  mistake: Mistake;
  steps: number;
}

export const BATCH = 32;
const [RATE, WARMUP] = [0.003, 60];

/** Adam (Kingma and Ba, 2015): m, v and the step in their letters. */
const [BETA1, BETA2, EPS] = [0.9, 0.99, 1e-8];

export class Adam {
  private readonly m: Float32Array[];
  private readonly v: Float32Array[];
  private count = 0;

  constructor(tensors: readonly Tensor[]) {
    this.m = tensors.map(({ values }) => new Float32Array(values.length));
    this.v = tensors.map(({ values }) => new Float32Array(values.length));
  }

  /** Step against the gradients, each multiplied by `by`. */
  step(tensors: readonly Tensor[], gradients: readonly Float32Array[], by: number, rate: number): void {
    this.count++;
    const [fix1, fix2] = [1 - BETA1 ** this.count, 1 - BETA2 ** this.count];
    tensors.forEach(({ values }, n) => {
      const [d, m, v] = [gradients[n]!, this.m[n]!, this.v[n]!];
      for (let i = 0; i < values.length; i++) {
        const g = d[i]! * by;
        m[i]! += (1 - BETA1) * (g - m[i]!);
        v[i]! += (1 - BETA2) * (g * g - v[i]!);
        values[i]! -= (rate * (m[i]! / fix1)) / (Math.sqrt(v[i]! / fix2) + EPS);
      }
    });
  }
}

/** A source, what the decoder reads, and what it should write. */
export type Example = readonly [source: number[], read: number[], expected: number[]];

/** The mean loss per token of some examples, and the gradients of the sum of their losses, by tensor. */
export interface Gradient {
  loss: number;
  tokens: number;
  gradients: Float32Array[];
}

export function lossOf(runner: Runner, batch: readonly Example[], derivatives: Derivatives = RIGHT): Gradient {
  const read = packed(batch.map(([, ids]) => ids));
  const memory = runner.encodeAll(packed(batch.map(([ids]) => ids)));
  const run = runner.decodeAll(memory, read);
  const expected = batch.flatMap(([, , ids]) => ids);
  const { gradients, losses } = backward(runner, memory, run, read.ids, expected, undefined, derivatives);
  const loss = losses.reduce((sum, x) => sum + x, 0) / losses.length;
  return { loss, tokens: losses.length, gradients: gradients.tensors };
}

export class Learner {
  readonly task: Task;
  readonly record: RunRecord;
  readonly runner: Runner;
  readonly source: Tokenizer;
  readonly target: Tokenizer;
  steps = 0;
  private readonly adam: Adam;
  private readonly random: Random;
  private readonly derivatives: Derivatives;

  constructor(readonly settings: Settings, plain = false) {
    this.task = taskOf(settings.task, settings.pairs);
    const { record, tensors } = fresh(this.task, settings);
    this.record = record;
    this.runner = new Runner(record, tensors, plain);
    this.source = new Tokenizer(record.tokenizers.source, record.unknown);
    this.target = new Tokenizer(record.tokenizers.target, record.unknown);
    this.adam = new Adam(this.runner.tensors);
    this.random = new Random(settings.seed + 1);
    this.derivatives = { ...RIGHT, ...MISTAKES[settings.mistake] };
  }

  /** The learning rate of a step: warm-up, then down to 0 in a line. */
  rate(step: number): number {
    const { warmup, steps } = this.settings;
    return RATE * Math.min(warmup ? step / WARMUP : 1, 1 - (step - 1) / steps);
  }

  /** The pairs of the next step, as ids. */
  batch(): Example[] {
    const pairs = Array.from({ length: BATCH }, () => this.task.draw(this.random));
    return pairs.map((pair) => idsOf(this.source, this.target, pair));
  }

  gradients(batch: readonly Example[]): Gradient {
    return lossOf(this.runner, batch, this.derivatives);
  }

  /** Step by the gradients of the parts of a batch; returns its mean loss, and their sizes by tensor. */
  apply(parts: readonly Gradient[]): { loss: number; sizes: number[] } {
    const tokens = parts.reduce((sum, part) => sum + part.tokens, 0);
    const loss = parts.reduce((sum, part) => sum + part.loss * part.tokens, 0) / tokens;
    const [first, ...others] = parts.map(({ gradients }) => gradients);
    for (const other of others) {
      other.forEach((d, n) => {
        const sum = first![n]!;
        for (let i = 0; i < d.length; i++) sum[i]! += d[i]!;
      });
    }
    this.steps++;
    this.adam.step(this.runner.tensors, first!, 1 / tokens, this.rate(this.steps));
    const sizes = first!.map((d) => Math.sqrt(d.reduce((sum, x) => sum + x * x, 0)) / tokens);
    return { loss, sizes };
  }

  step(): { loss: number; sizes: number[] } {
    return this.apply([this.gradients(this.batch())]);
  }

  answer(text: string): string {
    const ids = this.source.encode(text);
    if (ids.length === 0 || ids.length > this.record.longest.source) return "";
    return this.target.decode(this.runner.greedy(this.runner.encode(ids)).ids);
  }

  /** Whether an answer to a pair that was never trained on is right. */
  isRight([text, right]: Pair): boolean {
    return this.answer(text) === right;
  }
}
