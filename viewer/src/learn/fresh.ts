// A Transformer with random weights, as the page runs it: examples/transformer.py, with knobs.

import type { Attention, Block, Linear, Network, Norm, RunRecord, Stack, Tensor } from "../run/model.ts";
import { Random } from "./random.ts";
import { BEGIN, END, UNKNOWN, tokenizersOf } from "./tasks.ts";
import type { Task } from "./tasks.ts";

export interface Knobs {
  /** What scores are multiplied by: 1, 1 / √d_k or 1 / d_k. */
  scale: "one" | "root" | "width";
  positions: boolean;
  residual: boolean;
  /** x + f(norm(x)), else norm(x + f(x)). */
  normFirst: boolean;
  seed: number;
}

const [E, H, F, LAYERS] = [64, 4, 128, 2];
/** Tokens that a source has at most, and after which an answer is not continued. */
const LONGEST = { source: 64, answer: 40 };

export interface Fresh {
  record: RunRecord;
  tensors: Tensor[];
}

export function fresh(task: Task, knobs: Knobs): Fresh {
  const random = new Random(knobs.seed);
  const made: Tensor[] = [];
  const add = (rows: number, columns: number, value: (i: number) => number): number => {
    made.push({ values: Float32Array.from({ length: rows * columns }, (_, i) => value(i)), rows, columns });
    return made.length - 1;
  };
  /** Xavier's uniform weights: `parts` matrices of the same bound, one above the other. */
  const linear = (rows: number, columns: number, parts = 1): Linear => {
    const bound = Math.sqrt(6 / (rows + columns));
    return {
      weight: add(parts * rows, columns, () => bound * (2 * random.next() - 1)),
      bias: add(parts * rows, 1, () => 0),
    };
  };
  const norm = (): Norm => ({ kind: "layer_norm", eps: 1e-5, weight: add(E, 1, () => 1), bias: add(E, 1, () => 0) });
  const width = E / H;
  const attention = (layer: number, memory: boolean, causal: boolean): Attention => ({
    kind: "attention",
    layer,
    norm: norm(),
    norm_first: knobs.normFirst,
    residual: knobs.residual,
    memory,
    rule: causal ? [{ part: "Causal" }] : [],
    heads: H,
    groups: H,
    width,
    scale: { one: 1, root: width ** -0.5, width: 1 / width }[knobs.scale],
    head_scale: null,
    in: linear(E, E, 3),
    out: linear(E, E),
    q_norm: null,
    k_norm: null,
    turns: null,
    distances: null,
  });
  const network = (layer: number): Network => ({
    kind: "network",
    layer,
    norm: norm(),
    norm_first: knobs.normFirst,
    residual: knobs.residual,
    first: linear(F, E),
    activation: "gelu_tanh",
    second: linear(E, F),
  });
  const stack = (entries: number, blocks: (layer: number) => Block[]): Stack => ({
    embed: {
      tokens: add(entries, E, () => E ** -0.5 * random.normal()),
      factor: E ** 0.5,
      positions: knobs.positions ? "sinusoidal" : null,
      table: null,
      position_factor: 1,
      norm: null,
    },
    blocks: Array.from({ length: LAYERS }, (_, layer) => blocks(layer)).flat(),
    norm: knobs.normFirst ? norm() : null,
  });
  const tokenizers = tokenizersOf(task);
  const [source, target] = [tokenizers.source.vocabulary.length, tokenizers.target.vocabulary.length];
  const record: RunRecord = {
    format: 1,
    text: task.example,
    begin: BEGIN,
    end: END,
    unknown: UNKNOWN,
    longest: LONGEST,
    tokenizers,
    stacks: {
      encoder: stack(source, (layer) => [attention(layer, false, false), network(layer)]),
      decoder: stack(target, (layer) => [
        attention(layer, false, true),
        attention(layer, true, false),
        network(layer),
      ]),
    },
    output: linear(target, E),
    numbers: { tensors: [], ints: "", floats: "" },
  };
  record.numbers.tensors = made.map(({ rows, columns }) => ({
    name: null,
    shape: columns === 1 ? [rows] : [rows, columns],
  }));
  return { record, tensors: made };
}
