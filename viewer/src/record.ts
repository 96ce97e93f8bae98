// What the page is given: the record that pellucid.apps.view.page writes, and its arrays as numbers.

import type { RulePart } from "./attention.ts";
import type { Tab } from "./store.ts";
import type { Language } from "./text.ts";

export type Label = [text: string, kind: "text" | "special" | "unknown"];
export type Kind = "encoder" | "decoder" | "cross";
export type Side = "source" | "target";
/** A page that runs its model also has the token's number. */
export type Candidate = [...Label, probability: number, id?: number];
export type TreeNode = [
  parent: number,
  ...label: Label,
  probability: number,
  logP: number,
  state: "kept" | "dropped" | "end",
  rank: number,
];

/** An array (heads, rows, width) as base64 of whole numbers; one factor for each head. */
interface Base64Array {
  shape: [number, number, number];
  bits: number;
  factors: number[];
  data: string;
}

/** An array that the page computed. */
export interface PlainArray {
  shape: [number, number, number];
  values: Float32Array;
}

export type PackedArray = Base64Array | PlainArray;

export interface AttentionMap {
  name: string;
  kind: Kind;
  layer: number;
  queries: Side;
  keys: Side;
  /** Who may look at whom, and what becomes of a score. */
  rule: RulePart[];
  /** What the scores of each head are multiplied by; they differ where each has learned its own. */
  scales: number[];
  /** What distances add to the scores, (H, 1, 2 n − 1). */
  added?: PackedArray;
  entropies: number[];
  /** (H, L, S), of a map that the page computed. */
  weights?: Float32Array;
  q: PackedArray;
  k: PackedArray;
  v: PackedArray;
  doutputs: PackedArray;
  /** Gradients of the rows that queries, and keys and values, are projected from. */
  dqueries?: PackedArray;
  dkeys?: PackedArray;
}

export interface Cell {
  kind: Kind;
  layer: number;
  head: number;
  query: number;
  key: number;
}

export interface Check {
  cell: Cell;
  entry: number;
  by_hand: number;
  difference: number;
  step: number;
}

export interface Step {
  label: Label;
  probability: number;
  /** The row that predicts it; −1: the one of the whole text. */
  place: number;
  token: number;
  candidates: Candidate[];
}

export type Role =
  | "embedding"
  | "positions"
  | "segments"
  | "sum"
  | "norm"
  | "queries"
  | "keys"
  | "values"
  | "scores"
  | "softmax"
  | "heads"
  | "projection"
  | "feed_forward"
  | "residual"
  | "transform"
  | "mean"
  | "pooler"
  | "output";

/** One step of the forward pass. Rows are of the tokens that the record kept. */
export interface Part {
  role: Role;
  stack: "encoder" | "decoder";
  side: Side;
  layer: number | null;
  block: number | null;
  kind: string;
  shape: [letter: string, size: number][];
  tensors: [name: string, shape: number[], sameAs: string][];
  factor: number | null;
  map: string;
  rows?: PackedArray;
  drows?: PackedArray;
  /** The length of every row: (1, 1, tokens). */
  rows_norms?: PackedArray;
  drows_norms?: PackedArray;
}

/** One step of the backward pass through a part. */
export interface Derived {
  name: string;
  gradient: PackedArray | null;
  entry: number[];
  value: number;
  difference: number;
  terms: [number, number][];
  rest: number;
  numbers: number[];
}

export interface Derivation {
  role: Role;
  kind: string;
  stack: "encoder" | "decoder";
  side: Side;
  row: number;
  name: string;
  layer: number | null;
  block: number | null;
  steps: Derived[];
}

/** One step on a gradient's way back. */
export interface FlowStage {
  role: "transform" | "norm" | "attention" | "cross" | "feed_forward";
  stack: "encoder" | "decoder";
  side: Side;
  layer: number | null;
  /** (4, 1, T): ‖d‖ that arrives, goes around, comes through, and leaves. */
  lengths: PackedArray;
  /** The longest, in descending order. */
  edges: [query: number, key: number, length: number][];
  /** (H, 1, T) */
  heads?: PackedArray;
  /** (1, 1, S): what cross-attention sends to the encoder. */
  memory?: PackedArray;
}

/** The gradient of −log p of one predicted token, from p − y to the embeddings; or of its logit minus another's, from ±1. */
export interface Flow {
  step: number;
  place: number;
  dlogits: number;
  stages: FlowStage[];
  /** (1, 1, T): ‖d‖ of the row of the embedding that each token reads. */
  tables: { [side in Side]?: PackedArray };
  /** Of this token's logit minus that of another. */
  between?: (other: number) => Flow;
}

export interface PageRecord {
  format: number;
  title: string;
  model: string;
  loss: number;
  notes: string[];
  source: Label[];
  target: Label[];
  off: number;
  maps: AttentionMap[];
  steps: Step[];
  tree: TreeNode[];
  /** The tab that the page opens on, and the weight in view; indices count from 0. */
  tab?: Tab;
  opens?: Cell | null;
  /** The language asked for; null: the browser's. */
  language?: Language | null;
  /** The lines of Pellucid's source that compute each step of the backward pass. */
  code?: { [step: string]: [file: string, fn: string, number: number, text: string][] };
  /** A finite difference of the whole model's loss: Σ_i dz_i[entry] of one head. */
  check?: Check | null;
  /** `model` and `notes` in Korean. */
  korean?: { model: string; notes: string[] };
  /** The whole forward pass, and the tokens whose rows it has. */
  parts?: Part[];
  kept?: { [side in Side]: number[] };
  derivations?: Derivation[];
  /** What a derivation's finite difference moved a number by. */
  moved?: number;
  flows?: Flow[];
  /** What the model is called, where two are compared. */
  name?: string;
  /** The model's own answer, as text. */
  own?: string;
  /** The step of the training that a frame of a film was recorded at. */
  at?: number;
}

/** Rows of numbers of one head: element (i, j) is values[i * width + j]. */
export interface Rows {
  values: Float32Array;
  count: number;
  width: number;
}

/** What an element of the page holds; null without the element. */
export function dataOf<T>(id: string): T | null {
  const text = document.getElementById(id)?.textContent;
  return text ? (JSON.parse(text) as T) : null;
}

const KINDS: Kind[] = ["encoder", "decoder", "cross"];

export function kindsOf(record: PageRecord): Kind[] {
  return KINDS.filter((kind) => record.maps.some((map) => map.kind === kind));
}

export function layersOf(record: PageRecord, kind: Kind): AttentionMap[] {
  return record.maps.filter((map) => map.kind === kind);
}

/** Take one head out of a packed array. */
export function unpackHead(packed: PackedArray, head: number): Rows {
  const [, count, width] = packed.shape;
  if ("values" in packed) {
    return { values: packed.values.subarray(head * count * width, (head + 1) * count * width), count, width };
  }
  const octets = packed.bits / 8;
  const numbers = count * width;
  const bytes = decodeBase64(packed.data, head * numbers * octets, numbers * octets);
  const factor = packed.factors[head]!;
  const values = new Float32Array(numbers);
  for (let i = 0, at = 0; i < numbers; i++, at += octets) {
    // The highest byte carries the sign: it is shifted up to bit 31 and back down.
    let number = (bytes[at + octets - 1]! << 24) >> (32 - packed.bits);
    for (let b = 0; b < octets - 1; b++) number |= bytes[at + b]! << (8 * b);
    values[i] = number * factor;
  }
  return { values, count, width };
}

/** Decode `length` bytes from byte `start` of a base64 text. */
function decodeBase64(text: string, start: number, length: number): Uint8Array {
  const first = Math.floor(start / 3);
  const last = Math.ceil((start + length) / 3);
  const decoded = atob(text.slice(first * 4, last * 4));
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = decoded.charCodeAt(start - first * 3 + i);
  return bytes;
}
