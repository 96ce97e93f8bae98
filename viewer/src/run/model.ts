// A model that the page can run, as pellucid.apps.view.runnable describes it, and its numbers.

import type { RulePart } from "../attention.ts";

export interface Linear {
  weight: number;
  bias: number | null;
}

export interface Norm {
  kind: "layer_norm" | "rms_norm";
  eps: number;
  weight: number | null;
  bias: number | null;
}

interface Step {
  layer: number;
  norm: Norm;
  /** x + f(norm(x)), else norm(x + f(x)). */
  norm_first: boolean;
  /** false: without "x +", as a reader may train it. */
  residual?: boolean;
}

export interface Attention extends Step {
  kind: "attention";
  memory: boolean;
  rule: RulePart[];
  heads: number;
  groups: number;
  width: number;
  scale: number;
  head_scale: number | null;
  /** q, k and v, one above the other. */
  in: Linear;
  out: Linear;
  q_norm: Norm | null;
  k_norm: Norm | null;
  /** Rotary positions: the angle per position of every pair. */
  turns: number[] | null;
  /** What distances −reach … reach add to the scores, head by head. */
  distances: { table: number; reach: number } | null;
}

export interface Network extends Step {
  kind: "network";
  first: Linear;
  activation: string;
  second: Linear;
}

export type Block = Attention | Network;

export interface Stack {
  embed: {
    tokens: number;
    factor: number;
    positions: string | null;
    table: number | null;
    position_factor: number;
    /** A table of segments, of which the first is everywhere. */
    segments?: number | null;
    norm: Norm | null;
  };
  blocks: Block[];
  norm: Norm | null;
}

/** A tokenizer.json of BERT's, and what pellucid.apps.view.runnable adds to it. */
export interface BertRecord {
  normalizer: { clean_text: boolean; handle_chinese_chars: boolean; strip_accents: boolean | null; lowercase: boolean };
  model: { vocab: { [piece: string]: number }; unk_token: string; continuing_subword_prefix: string; max_input_chars_per_word: number };
  decoder: { prefix: string; cleanup: boolean };
  added_tokens: { id: number; content: string; special: boolean }[];
  /** Characters that are left out, accents, and characters that are a word each. */
  unseen: string;
  marks: string;
  alone: string;
  /** Names of tokens that pictures show as special. */
  specials: { [token: number]: string };
  /** Tokens before and behind every text. */
  around: [number[], number[]];
}

export interface TokenizerRecord {
  kind: string;
  /** Of kind "pieces", which has nothing else. */
  pieces?: BertRecord;
  vocabulary: string[];
  /** Comes before `normalise`: see pellucid.data.appearance. */
  reading: { unseen: string; form: "NFC" | "NFD" | ""; replaced: { [c: string]: string }; edges: string } | null;
  normalise: string[];
  composes: boolean;
  /** Of byte-level pieces, the pairs to join, the first first. */
  merges: [string, string][];
}

/** How a text is split before it is answered: see pellucid.tasks.passage. */
export interface PassageRecord {
  /** How many are read together; null: as many as fit. */
  sentences: number | null;
  /** Whether the model reads single words. */
  words: boolean;
  columns: number;
  sentence: string;
  no_end: string;
  unseen: string;
  lines: string;
}

export type StackName = "encoder" | "decoder";

/**
 * Between the last stack and the output layer: of an encoder that predicts what is masked, and BERT's pooler, which
 * takes the first row for the label of a text.
 */
export interface Head {
  first: Linear;
  activation: string;
  norm: Norm | null;
}

export interface RunRecord {
  format: number;
  text: string;
  begin: number;
  end: number;
  unknown: number;
  /** Tokens that are never generated; without it any may be. */
  suppressed?: number[];
  longest: { source: number; answer: number };
  tokenizers: { source: TokenizerRecord; target: TokenizerRecord };
  /** Without it a text is answered whole. */
  passage?: PassageRecord;
  /** Without an encoder the decoder reads the text itself, and continues it; one of them there is. */
  stacks: { encoder?: Stack; decoder?: Stack };
  /** Of an encoder alone that predicts what is masked: the token of a mask. */
  mask?: number;
  head?: Head;
  /** Of an encoder alone that gives labels: whether a text has one, by the mean of its rows or by a head, or each token. */
  labels?: "text" | "token";
  /** What is read before a text that is continued: a begin token, or nothing. */
  prompt?: number[];
  /** How many tokens such a text and what follows may have together. */
  positions?: number;
  output: Linear;
  numbers: {
    /** Without a name: made of parameters, such as what distances add. */
    tensors: { name: string | null; shape: number[]; floats?: number; ints?: number; scales?: number }[];
    ints: string;
    floats: string;
  };
}

export interface Tensor {
  values: Float32Array;
  rows: number;
  columns: number;
}

/** The stacks that a model has, the encoder first. */
export function stacksOf({ stacks }: RunRecord): [StackName, Stack][] {
  return (["encoder", "decoder"] as const).flatMap((name) => (stacks[name] ? [[name, stacks[name]]] : []));
}

/** The stack whose rows the answer is made of. */
export function lastOf(record: RunRecord): [StackName, Stack] {
  return stacksOf(record).at(-1)!;
}

/** The arrays of a model as float32: a matrix is its int8 numbers times the scale of their row. */
export function tensors({ numbers }: RunRecord): Tensor[] {
  const ints = new Int8Array(bytes(numbers.ints));
  const floats = new Float32Array(bytes(numbers.floats));
  return numbers.tensors.map(({ shape, floats: at, ints: from, scales }) => {
    const [rows, columns] = [shape[0]!, shape[1] ?? 1];
    if (from === undefined || scales === undefined) {
      return { values: floats.subarray(at, at! + rows * columns), rows, columns };
    }
    const values = new Float32Array(rows * columns);
    for (let r = 0, i = 0; r < rows; r++) {
      const scale = floats[scales + r]!;
      for (let c = 0; c < columns; c++, i++) values[i] = ints[from + i]! * scale;
    }
    return { values, rows, columns };
  });
}

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64);
  const made = new Uint8Array(text.length);
  for (let i = 0; i < made.length; i++) made[i] = text.charCodeAt(i);
  return made.buffer;
}
