// What was typed and what is switched off, and everything that follows from it; it outlives the
// page's parts, which are built anew in another language.

import { clamp } from "../dom.ts";
import type { Label, Rows } from "../record.ts";
import { NOTHING, Runner, largest, mean } from "./forward.ts";
import type { Answer, Instead, Memory, Off, Run } from "./forward.ts";
import { apart } from "./backward.ts";
import type { Between } from "./backward.ts";
import { gradientsOf, step } from "./edit.ts";
import type { Part } from "./edit.ts";
import { stacksOf } from "./model.ts";
import type { Block, RunRecord, StackName, Tensor } from "./model.ts";
import { openingOf } from "./prefix.ts";
import { joined, passageOf } from "./passage.ts";
import type { Passage } from "./passage.ts";
import { tokenizerOf } from "./pieces.ts";
import type { Tokenizer } from "./tokens.ts";

/** One reading of a text: the answer, and the run in which all of it is fed. */
export interface Reading {
  answer: Answer;
  memory: Memory;
  run: Run;
  /** −log p of each token of the answer that nothing off gives, in this run. */
  ofFirst: number[];
}

/** How much −log p of the answer grows without a part, and the answer then, if it is another. */
interface Effect {
  part: string;
  grows: number;
  other: Answer | null;
}

/** What a part that is off returns: zeros, the mean of its rows in this text, or its rows in another text. */
export type Mode = "zero" | "mean" | "text";

export type Sort = "heads" | "sublayers" | "tokens";

export function sortOf(part: string): Sort {
  if (part.startsWith("source.")) return "tokens";
  return part.split(".").length === 2 ? "sublayers" : "heads";
}

export interface Site {
  name: string;
  stack: StackName;
  block: Block;
}

/** The number that is edited: a score of the head in view, a number of a matrix, or all against the gradient. */
export interface Choice {
  kind: "score" | "weight" | "step";
  /** Query and key of the score; null: where the gradient is largest. */
  score: [query: number, key: number] | null;
  /** Of `parameters`, and row and column in it; null as for a score. */
  matrix: number;
  cell: [row: number, column: number] | null;
  /** The loss is that of the whole answer, else of the chosen token. */
  whole: boolean;
  /** How far it is moved; null: where the slider opens. */
  by: number | null;
}

/** What the model was taught: a text and its right answer; −log p of it before, between and after the steps. */
export interface Lesson {
  text: string;
  right: string;
  losses: number[];
}

const STEPS = 3;

/** Milliseconds of measuring after which the page may draw and listen, and between two tables of what is measured. */
export const SLICE = 12;
const OFTEN = 250;

export class Trial {
  readonly runner: Runner;
  readonly source: Tokenizer;
  readonly target: Tokenizer;
  readonly sites: Site[];
  text: string;
  /** The text in pieces that are answered one by one, and which of them is looked at. */
  passage: Passage = { pieces: [], kept: [""] };
  at = 0;
  /** The answers to all pieces, joined; null: there is one piece alone, or one cannot be read. */
  together: string | null = null;
  /** The answer whose loss, gradients and parts are looked at; "": the model's own. */
  expected = "";
  /** What was expected last, if the model cannot give it. */
  unfit = "";
  /** The model's own answer. */
  own: Answer | null = null;
  off = new Set<string>();
  ids: number[] = [];
  /** With everything, and as it is switched now. */
  whole: Reading | null = null;
  now: Reading | null = null;
  /** Of the parts that were switched off so far, the most important first. */
  effects: Effect[] = [];
  measured = false;
  /** How often a text was read: the weights may have changed in between. */
  readings = 0;
  /** How long the answer took. */
  ms = 0;
  /** A token instead of the chosen one: what is added up then is the difference of their logits. */
  rather: number | null = null;
  /** The chosen token of the answer, and the head whose edges are in view. */
  token = 0;
  look: string;
  /** The head that is in view first. */
  readonly opens: string;
  edit: Choice = { kind: "score", score: null, matrix: 0, cell: null, whole: true, by: null };
  /** Whether a cell of the map chooses its score, or cuts its edge. */
  picks = false;
  mode: Mode = "zero";
  /** The other text whose rows they are. */
  from = "";
  lessons: Lesson[] = [];
  /** Whether the lessons are all that the weights have learnt, so that a link can carry it. */
  linked = true;
  /** Texts of the reader's that are asked before and after a lesson, between commas. */
  others = "";
  /** How often the weights were changed for good. */
  changes = 0;
  private listener: () => void = () => {};
  private watcher: () => void = () => {};
  private turn = 0;
  /** Whether the token is one of the answer to this text. */
  private chosen = false;
  private untouched: Float32Array[] | null = null;

  /** Without `tensors` the weights are those of the record. */
  constructor(record: RunRecord, tensors?: Tensor[]) {
    this.runner = new Runner(record, tensors);
    [this.source, this.target] = [record.tokenizers.source, record.tokenizers.target].map((each) => tokenizerOf(each, record.unknown, record.mask)) as [Tokenizer, Tokenizer];
    this.sites = stacksOf(record).flatMap(([stack, { blocks }]) =>
      blocks.map((block, i) => ({ name: `${stack}.${i}`, stack, block })),
    );
    const attention = this.sites.filter(({ block }) => block.kind === "attention");
    const cross = attention.filter(({ block }) => block.kind === "attention" && block.memory);
    this.look = this.opens = `${(cross.at(-1) ?? attention.at(-1))?.name ?? ""}.0`;
    this.text = record.text;
  }

  /** Tell one listener of every change, a first one at once; another, of more effects alone. */
  listen(listener: () => void, watcher: () => void): void {
    this.listener = listener;
    this.watcher = watcher;
    if (!this.whole) this.read(this.text);
    else listener();
  }

  get longest(): number {
    return this.runner.record.longest.source;
  }

  /** Whether the text asks for an answer: one that could be masked and is not does not. */
  get asks(): boolean {
    const { mask } = this.runner.record;
    return mask === undefined || this.ids.includes(mask);
  }

  /** The tokens of a text, between a begin and an end where the model reads those. */
  encode(text: string): number[] {
    const ids = this.source.encode(text);
    const { begin, end, mask } = this.runner.record;
    return mask === undefined || ids.length === 0 ? ids : [begin, ...ids, end];
  }

  /** An answer that is fed; null where the model can give none such: a label that there is not, or too few tokens. */
  private answerOf(text: string, { memory }: Reading): Answer | null {
    const { stacks, labels, unknown } = this.runner.record;
    const ids = this.target.encode(text);
    const fits = stacks.decoder || (ids.length === memory.run.places.length && !(labels && ids.includes(unknown)));
    return fits ? { ids, losses: [], ended: stacks.decoder !== undefined } : null;
  }

  /** Without `measures` no part is switched off in turn: a model that is being trained changes too soon. */
  read(text: string, measures = true): void {
    if (text !== this.text) this.chosen = false;
    this.text = text;
    this.passage = passageOf(text, this.runner.record.passage, this.source, this.longest);
    this.at = clamp(this.at, this.passage.pieces.length);
    this.ids = this.encode(this.piece);
    this.off = new Set([...this.off].filter((part) => this.fits(part, this.whole !== null)));
    this.effects = [];
    this.measured = false;
    this.turn++;
    this.readings++;
    this.whole = this.now = null;
    this.rather = null;
    this.unfit = "";
    const start = performance.now();
    // Before an expected answer the text is read as it is.
    this.whole = this.readingOf(this.piece, undefined, this.expected === "");
    if (this.whole) this.ids = [...this.whole.memory.ids];
    this.own = this.whole?.answer ?? null;
    this.together = this.passage.pieces.length > 1 ? this.joined() : null;
    if (this.whole && this.expected !== "") this.whole = this.judged(this.whole);
    this.ms = performance.now() - start;
    this.runner.instead = this.whole && this.instead(this.whole);
    if (this.whole) {
      this.token = this.chosen ? clamp(this.token, this.whole.answer.losses.length) : this.leastSure;
      this.chosen = true;
      if (measures) void this.measure();
    }
    this.rerun();
  }

  /** The piece that is looked at. */
  get piece(): string {
    return this.passage.pieces[this.at] ?? this.text;
  }

  /** Look at another piece. */
  turnTo(piece: number): void {
    this.at = piece;
    this.chosen = false;
    this.expected = "";
    this.read(this.text);
  }

  private joined(): string | null {
    const answers = this.passage.pieces.map((piece) => {
      const answer = piece === this.piece ? this.own : this.readingOf(piece)?.answer;
      return answer ? this.target.decode(answer.ids) : null;
    });
    return answers.includes(null) ? null : joined(this.passage, answers as string[]);
  }

  /** Switch parts, on if all of them were off; `only` switches everything else on. */
  toggle(parts: string[], only = false): void {
    const on = parts.every((part) => this.off.has(part)) && (!only || this.off.size === parts.length);
    if (only) this.off = new Set();
    for (const part of parts) this.off[on ? "delete" : "add"](part);
    this.rerun();
  }

  reset(): void {
    this.off = new Set();
    this.rerun();
  }

  /** Look at another answer than the model's own; "" is its own again. */
  expect(answer: string): void {
    this.expected = answer;
    this.chosen = false;
    this.read(this.text);
  }

  /** The same reading, with the expected answer fed, if the model can give it. */
  private judged(reading: Reading): Reading {
    const answer = this.answerOf(this.expected, reading);
    this.unfit = answer === null ? this.expected : "";
    if (!answer) {
      this.expected = "";
      return reading;
    }
    const run = this.runner.decode(reading.memory, answer.ids);
    const { losses } = this.runner.losses(run, answer);
    return { ...reading, answer: { ...answer, losses }, run, ofFirst: losses };
  }

  /** What parts that are off return from now on. */
  replace(mode: Mode, from = this.from): void {
    [this.mode, this.from] = [mode, from];
    this.runner.instead = this.whole && this.instead(this.whole);
    this.rank();
    this.rerun();
  }

  private instead({ answer, memory, run }: Reading): Instead | null {
    const ids = this.encode(this.from);
    if (this.mode === "zero" || (this.mode === "text" && (ids.length === 0 || ids.length > this.longest))) return null;
    const other = this.mode === "text" ? this.runner.encode(ids) : memory;
    const { decoder } = this.runner.record.stacks;
    const runs = { encoder: other.run, decoder: this.mode === "text" && decoder ? this.runner.decode(other, answer.ids) : run };
    const rows = this.mode === "mean" ? mean : (x: Rows) => x;
    const of = ({ outputs, looks }: Run) => outputs.map((y, i) => ({ y: rows(y), z: looks[i] ? rows(looks[i].z) : null }));
    return { encoder: of(runs.encoder), decoder: of(runs.decoder) };
  }

  choose(change: { token?: number; rather?: number | null; look?: string; edit?: Choice; picks?: boolean }): void {
    const { rather } = this;
    Object.assign(this, change);
    if (this.rather !== rather) this.rank();
    this.listener();
  }

  /** Measure every part anew. */
  rank(): void {
    this.effects = [];
    this.measured = false;
    this.turn++;
    if (this.whole) void this.measure();
  }

  /** What the ranking measures: −log p of the answer, or how far the other token's logit is above the chosen one's. */
  private lost({ run, ofFirst }: Reading): number {
    return this.rather === null ? sum(ofFirst) : -apart(this.runner, run, this.decides);
  }

  /** The token of the answer that the model is least sure of: the one that is chosen first. */
  get leastSure(): number {
    return largest(this.whole?.answer.losses ?? []);
  }

  /** Where the chosen token of the answer is decided, and against which. */
  get decides(): Between {
    const { answer, run } = this.whole!;
    return { row: run.places[this.token]!, token: answer.ids[this.token] ?? this.runner.record.end, other: this.rather };
  }

  /** A text with everything on, and its answer, if not `given`; null: too long, or empty. */
  readingOf(text: string, given?: Answer, open = given === undefined): (Reading & { text: string }) | null {
    const { record } = this.runner;
    const ids = this.encode(text);
    if (ids.length === 0 || ids.length > this.longest) return null;
    const opening = record.stacks.encoder || !open ? null : openingOf(text, this.source, record);
    const memory = { ...this.runner.encode(opening?.ids ?? ids), opening };
    // What was last answered is a good guess: typing changes little of it.
    const answer = given ?? this.runner.greedy(memory, NOTHING, this.own?.ids);
    return { text, answer, memory, run: this.runner.decode(memory, answer.ids), ofFirst: answer.losses };
  }

  labels(side: "source" | "target", of?: Reading & { text: string }): Label[] {
    if (side === "source") {
      const units = this.source.units(of?.text ?? this.piece);
      return this.source.labels(of?.memory.ids ?? this.ids, this.runner.record.mask === undefined ? units : ["", ...units]);
    }
    const { memory, answer } = of ?? this.whole!;
    const { stacks, end, prompt } = this.runner.record;
    const read = stacks.encoder ? memory.prompt : (prompt ?? []);
    const units = this.source.units(of?.text ?? this.piece);
    const more = [...answer.ids, ...(answer.ended ? [end] : [])];
    const typed = stacks.encoder ? [] : memory.ids;
    return this.target.labels([...read, ...typed, ...more], [...read.map(() => ""), ...(stacks.encoder ? [] : units)].slice(0, read.length + typed.length));
  }

  /** Every sublayer, head and token: what can be switched off by itself. */
  get parts(): string[] {
    const inside = this.sites.flatMap(({ name, block }) => [
      name,
      ...Array.from({ length: block.kind === "network" ? 0 : block.heads }, (_, h) => `${name}.${h}`),
    ]);
    return [...inside, ...this.ids.map((_, i) => `source.${i}`)];
  }

  /** Run the text without some parts; everything that they do not change is taken from `whole`. */
  without(off: Off): Reading {
    const { answer, memory: base, run: whole } = this.whole!;
    const given = this.expected !== "";
    const memory = this.runner.encode(this.ids, off, base);
    const run = this.runner.decode(memory, answer.ids, off, memory === base ? whole : undefined);
    const { losses, same } = this.runner.losses(run, answer, memory.opening?.prefix);
    // Where every token of the answer stays the most likely one, the answer stays.
    const own = same && !given ? { ...answer, losses } : this.runner.greedy(memory, off, answer.ids);
    return { answer: own, memory, run, ofFirst: losses };
  }

  /** Move the weights for good, as far as the page is open. */
  keep(parts: readonly Part[], by: number): void {
    this.move(parts, by);
    this.linked = false;
    this.read(this.text);
  }

  private move(parts: readonly Part[], by: number): void {
    this.untouched ??= this.runner.tensors.map(({ values }) => values.slice());
    this.changes++;
    for (const { tensor, at, by: direction } of parts) {
      const { values } = this.runner.tensors[tensor]!;
      for (let i = 0; i < direction.length; i++) values[at + i]! += by * direction[i]!;
    }
  }

  /**
   * Three steps against the gradient of each right answer's loss L, of a size at which the tangent
   * falls to L / 2: half of B. Polyak's, L / ‖∇L‖².
   */
  learn(lessons: readonly { text: string; right: string }[]): void {
    for (const { text, right } of lessons) {
      const before = this.readingOf(text);
      const answer = before && this.answerOf(right, before);
      const losses = answer ? Array.from({ length: STEPS + 1 }, (_, i) => this.towards(text, answer, i < STEPS)) : [];
      if (losses.length > 0) this.lessons.push({ text, right, losses });
    }
    this.read(this.text);
  }

  /** One such step towards the expected answer. */
  take(): void {
    this.towards(this.piece, this.whole!.answer, true);
    this.linked = false;
    this.read(this.text, false);
  }

  /** Return the loss of a right answer, and then step against its gradient, if it `moves`. */
  private towards(text: string, answer: Answer, moves: boolean): number {
    const reading = this.readingOf(text, answer)!;
    const loss = sum(this.runner.losses(reading.run, answer).losses);
    if (!moves) return loss;
    const gradients = gradientsOf(this.runner, { ...reading, off: NOTHING, counted: () => true });
    let squares = 0;
    for (const d of gradients.tensors) for (let i = 0; i < d.length; i++) squares += d[i]! * d[i]!;
    if (squares > 0) this.move(step(gradients), loss / (2 * squares));
    return loss;
  }

  /** What the model writes for a text as it is now. */
  answerTo(text: string): string {
    const reading = this.readingOf(text);
    return reading ? this.target.decode(reading.answer.ids) : "";
  }

  /** What is found with the weights as they were before any was changed for good. */
  untaught<T>(find: () => T): T {
    const taught = this.runner.tensors.map(({ values }) => values.slice());
    this.untouched?.forEach((values, n) => this.runner.tensors[n]!.values.set(values));
    try {
      return find();
    } finally {
      taught.forEach((values, n) => this.runner.tensors[n]!.values.set(values));
    }
  }

  /** Run other weights, of which none is taught. */
  put(weights: readonly Float32Array[], measures: boolean): void {
    weights.forEach((values, n) => this.runner.tensors[n]!.values.set(values));
    this.untouched = null;
    this.lessons = [];
    this.linked = true;
    this.read(this.text, measures);
  }

  get taught(): boolean {
    return this.untouched !== null;
  }

  /** The weights as they were before any step was kept. */
  forget(): void {
    this.put(this.untouched ?? [], true);
  }

  private rerun(): void {
    this.now = this.whole && this.off.size > 0 ? this.without(this.off) : this.whole;
    this.listener();
  }

  /** Switch each part off in turn, and give way to the page in between. */
  private async measure(): Promise<void> {
    const turn = this.turn;
    const before = this.lost({ ...this.whole!, ofFirst: this.whole!.answer.losses });
    let began = -Infinity;
    let told = performance.now();
    for (const part of this.parts) {
      if (performance.now() - began > SLICE) {
        if (performance.now() - told > OFTEN) {
          this.watcher();
          told = performance.now();
        }
        await new Promise((done) => setTimeout(done));
        if (turn !== this.turn) return;
        began = performance.now();
      }
      const reading = this.without(new Set([part]));
      const { answer } = reading;
      const same = String(answer.ids) === String(this.own!.ids);
      this.effects.push({ part, grows: this.lost(reading) - before, other: same ? null : answer });
      this.effects.sort((a, b) => b.grows - a.grows);
    }
    this.measured = true;
    this.listener();
  }

  /** Whether a part is one of this text; an edge belongs to the text that it was cut in. */
  private fits(part: string, another: boolean): boolean {
    const numbers = part.split(".");
    if (numbers[0] === "source") return Number(numbers[1]) < this.ids.length;
    return !another || numbers.length < 4;
  }
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, x) => total + x, 0);
}
