// The backward pass of one head, step by step: each gradient with its equation, the lines of
// Pellucid that compute it, the chosen number, and a finite difference of it.

import { PLAIN, sees } from "./attention.ts";
import type { Matrix, Moved } from "./attention.ts";
import { signedIndex } from "./colours.ts";
import { el, markup, number, offer, select, token, worked, writtenSum } from "./dom.ts";
import { equation } from "./equations.ts";
import { Ribbon } from "./flow/ribbon.ts";
import { explained } from "./glossary.ts";
import { lossTable } from "./loss.ts";
import { pixels } from "./matrix.ts";
import type { Model } from "./model.ts";
import { unpackHead } from "./record.ts";
import type { Label, Rows } from "./record.ts";
import { furthest } from "./run/forward.ts";
import type { Trial } from "./run/trial.ts";
import type { State } from "./store.ts";
import { vectors } from "./strips.ts";
import { t } from "./text.ts";
import { Through } from "./through.ts";

const STEP = 1e-4;
/** Terms of a sum that are written out. */
const TERMS = 3;
const NAMES = ["dlogits", "dZ", "dV", "dW", "dA", "dQ", "dK", "dx"] as const;
type Name = (typeof NAMES)[number];

export class Backward {
  readonly root: HTMLElement;
  private readonly title = el("h2");
  private readonly hint = el("p", { class: "hint" });
  private readonly query: HTMLSelectElement;
  private readonly key: HTMLSelectElement;
  private readonly entry: HTMLSelectElement;
  private readonly bodies = {} as { [name in Name]: HTMLElement };
  private opened = false;

  constructor(private readonly model: Model, trial: () => Trial | null) {
    const { store, record } = model;
    const [query, queries] = select("backward-query", t.queryChoice, (query) => store.set({ query }));
    const [key, keys] = select("backward-key", t.keyChoice, (key) => store.set({ key }));
    const [entry, entries] = select("backward-entry", t.entryChoice, (entry) => store.set({ entry }));
    [this.query, this.key, this.entry] = [query, key, entry];
    if (record.steps.length === 0) {
      this.root = el("section", { class: "card" }, el("p", { class: "hint" }, t.noGradient));
      return;
    }
    const through = new Through(model, (name) => code(model, name));
    const attention = el(
      "div",
      { class: "steps" },
      el(
        "section",
        { class: "card" },
        this.title,
        this.hint,
        el("div", { class: "choices" }, queries, keys, entries),
      ),
      el("div", { class: "backward-steps" }, ...NAMES.map((name) => this.card(name))),
    );
    const ribbon = new Ribbon(model, trial).root;
    const none = ribbon.hidden;
    this.root = el("div", { class: "steps" }, through.chooser, ribbon, attention, through.root);
    store.listen((state, changed) => {
      if (state.tab !== "backward") return;
      this.open();
      attention.hidden = state.through !== null;
      ribbon.hidden = none || attention.hidden;
      if (state.through === null) this.update(changed);
    });
  }

  /** Unless the reader has chosen a cell, go to the largest ∂L/∂A: where a weight is nearly 1,
   * and a page opens on such a one, every gradient is nearly 0. */
  private open(): void {
    const { model } = this;
    const { record, head, state, store } = model;
    const { opens } = record;
    if (this.opened) return;
    this.opened = true;
    if (!opens || opens.query !== state.query || opens.key !== state.key) return;
    const { values, columns } = head.scoreGradient;
    const cell = furthest(values);
    const query = Math.floor(cell / columns);
    const { width, values: gradient } = head.queryGradient;
    const entry = furthest(gradient.subarray(query * width, (query + 1) * width));
    store.set({ query, key: cell % columns, entry });
  }

  private card(name: Name): HTMLElement {
    const [title, meaning] = t.backwardSteps[name];
    this.bodies[name] = el("div", { class: "body" });
    return el(
      "section",
      { class: "card", "data-step": name },
      el("h3", {}, title!),
      el("div", { class: "equation" }, markup(equation(name)!), ...this.capped(name)),
      el("p", { class: "hint" }, ...explained(meaning!)),
      code(this.model, name),
      this.bodies[name],
    );
  }

  /** What a soft cap does to dA before the products of dQ and dK. */
  private capped(name: Name): (Node | string)[] {
    const caps = this.model.record.maps.some(({ rule }) => rule.some(({ cap }) => cap !== undefined));
    return caps && (name === "dQ" || name === "dK") ? [", ", markup(equation("capped")!)] : [];
  }

  private update(changed: ReadonlySet<keyof State>): void {
    const { query, key, entry } = this.model.state;
    if (changed.has("tab") || changed.has("kind")) this.relabel();
    this.title.textContent = t.backwardTitle(this.model.headName);
    if (["tab", "frame"].some((name) => changed.has(name as "tab"))) {
      this.hint.replaceChildren(...explained(t.backwardHint(number(this.model.record.loss))));
    }
    this.query.selectedIndex = query;
    this.key.selectedIndex = key;
    this.entry.selectedIndex = entry;
    this.showLoss();
    this.showOutput();
    this.showRows("dV");
    this.showWeights();
    this.showScores();
    this.showRows("dQ");
    this.showRows("dK");
    this.showInputs();
  }

  private relabel(): void {
    [this.query, this.key].forEach((list, i) => offer(list, this.model.numbered[i]!));
    offer(this.entry, Array.from({ length: this.model.head.v.width }, (_, d) => String(d + 1)));
  }

  private showLoss(): void {
    const { record, state, head } = this.model;
    const own = this.model.stepAt(state.query);
    const predicts = head.map.queries === "target" || this.model.guesses;
    this.bodies.dlogits.replaceChildren(
      lossTable(predicts && own ? own : record.steps[state.step]!),
    );
  }

  private showOutput(): void {
    const { head, state, record } = this.model;
    const { check } = record;
    const here =
      check &&
      check.cell.kind === state.kind &&
      check.cell.layer === state.layer &&
      check.cell.head === state.head;
    const lines = [`dz${index(state.query, state.entry)} = ${number(at(head.dz, state.query, state.entry))}`];
    if (here) {
      lines.push(t.wholeModel(check.entry + 1, number(check.by_hand), number(check.difference)));
    } else if (check) {
      const { kind, layer, head: other } = check.cell;
      lines.push(t.checkedAt(`${t.kinds[kind]}, ${t.layerAndHead(layer + 1, other + 1)}`));
    }
    this.show("dZ", asMatrix(head.dz), state.query, state.entry, lines);
  }

  /** A gradient (rows, D): one number of it is a sum over the other side's tokens. */
  private showRows(name: "dV" | "dQ" | "dK"): void {
    const { head, state } = this.model;
    const { query, key, entry } = state;
    const { own, dz, scaledGradient: da, scale, rule } = head;
    const row = name === "dQ" ? query : key;
    const gradient = { dV: head.valueGradient, dQ: head.queryGradient, dK: head.keyGradient }[name];
    const other = { dV: dz, dQ: head.k, dK: head.q }[name];
    const matrix = name === "dV" ? own : da;
    const pairs: [number, number][] = [];
    for (let n = 0; n < other.count; n++) {
      const [i, j] = name === "dQ" ? [query, n] : [n, key];
      if (!sees(i, j, matrix.columns, rule)) continue;
      pairs.push([matrix.values[i * matrix.columns + j]!, at(other, n, entry)]);
    }
    const moved: Moved = {
      what: ({ dV: "v", dQ: "q", dK: "k" } as const)[name],
      row,
      column: entry,
    };
    this.show(name, asMatrix(gradient), row, entry, [
      sumLine(`${name.toLowerCase()}${index(row, entry)}`, pairs, name === "dV" ? null : scale),
      this.difference(moved),
    ]);
  }

  private showWeights(): void {
    const { head, state, keys } = this.model;
    const { query, key } = state;
    const { dz, v, weightGradient: dw } = head;
    const open = sees(query, key, keys.length, head.rule);
    const pairs = Array.from({ length: v.width }, (_, d): [number, number] => [
      at(dz, query, d),
      at(v, key, d),
    ]);
    this.show("dW", dw, query, key, open
      ? [
          sumLine(`dw${index(query, key)}`, pairs, null),
          this.difference({ what: "w", row: query, column: key }),
        ]
      : [t.forbidden]);
  }

  private showScores(): void {
    const { head, state, keys } = this.model;
    const { query, key } = state;
    const { own, weightGradient: dw, scoreGradient: da } = head;
    const open = sees(query, key, keys.length, head.rule);
    const start = query * dw.columns;
    let mean = 0;
    for (let s = 0; s < dw.columns; s++) mean += own.values[start + s]! * dw.values[start + s]!;
    const numbers = [own.values[start + key]!, dw.values[start + key]!, mean];
    const { texts, result } = worked(numbers, (w, gradient, average) => w * (gradient - average));
    this.show("dA", da, query, key, open
      ? [
          `da${index(query, key)} = ${texts[0]} × (${texts[1]} − ${texts[2]}) = ${result}`,
          this.difference({ what: "a", row: query, column: key }),
        ]
      : [t.forbidden]);
  }

  /** dx of the chosen tokens, all heads together. */
  private showInputs(): void {
    const { head, state, queries, keys, colours } = this.model;
    const { map } = head;
    if (!map.dqueries || !map.dkeys) {
      this.bodies.dx.replaceChildren(el("p", { class: "hint" }, t.tooLarge));
      return;
    }
    const row = (rows: Rows, i: number) => rows.values.slice(i * rows.width, (i + 1) * rows.width);
    const [dqueries, dkeys] = [unpackHead(map.dqueries, 0), unpackHead(map.dkeys, 0)];
    const query = t.query(state.query + 1, queries[state.query]![0]);
    const ofQuery = row(dqueries, state.query);
    const parts: [string, Float32Array][] = [];
    if (map.kind === "cross") {
      const key = t.key(state.key + 1, keys[state.key]![0]);
      parts.push([t.inputRow(query), ofQuery], [t.inputRow(key), row(dkeys, state.key)]);
    } else {
      const ofKeys = row(dkeys, state.query);
      parts.push([t.inputRow(query), ofQuery.map((x, e) => x + ofKeys[e]!)]);
    }
    this.bodies.dx.replaceChildren(
      map.kind === "cross" ? el("p", { class: "hint" }, t.crossInput) : "",
      ...parts.flatMap(([name, values]) => [
        el("h4", {}, name),
        vectors(colours, [["dx", values]]),
      ]),
    );
  }

  private difference(moved: Moved): string {
    const value = this.model.head.finiteDifference(moved, STEP);
    return t.byDifference(number(value), number(STEP, 1));
  }

  /** A gradient as a picture with the chosen number, and lines of text under it. */
  private show(name: Name, matrix: Matrix, row: number, column: number, lines: string[]): void {
    const { colours } = this.model;
    const canvas = el("canvas", { width: 1, height: 1 });
    let most = 0;
    for (const x of matrix.values) most = Math.max(most, Math.abs(x));
    pixels(canvas, matrix, PLAIN, colours.signed, colours.masked, (x) => signedIndex(x, most));
    const cursor = el("span", { class: "cursor" });
    cursor.style.left = `${(100 * column) / matrix.columns}%`;
    cursor.style.top = `${(100 * row) / matrix.rows}%`;
    cursor.style.width = `${100 / matrix.columns}%`;
    cursor.style.height = `${100 / matrix.rows}%`;
    const picture = el("div", { class: "picture", "aria-hidden": "true" }, canvas, cursor);
    const { queries, keys } = this.model;
    const rows = name === "dV" || name === "dK" ? keys : queries;
    const columns = name === "dW" || name === "dA" ? keys : [];
    picture.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const r = Math.floor(((event.clientY - box.top) / box.height) * matrix.rows);
      const c = Math.floor(((event.clientX - box.left) / box.width) * matrix.columns);
      this.model.store.set(chosen(name, r, c));
    });
    this.bodies[name].replaceChildren(
      el(
        "div",
        { class: "gradient" },
        el(
          "div",
          { class: "labelled" },
          labels("above", columns, column),
          labels("before", rows, row),
          picture,
          el("p", { class: "axes" }, axes(name)),
        ),
        el("div", {}, ...lines.map((line) => el("p", { class: "value" }, line))),
      ),
    );
  }
}

/** The lines of Pellucid that compute a step, comments set apart. */
function code(model: Model, name: string): HTMLElement | null {
  const lines = model.record.code?.[name];
  if (!lines) return null;
  return el(
    "figure",
    { class: "code" },
    ...lines.flatMap(([file, fn, line, text], n) => {
      const [statement, comment] = text.split(/(?=#)/);
      const before = lines[n - 1];
      const same = before !== undefined && before[1] === fn;
      return [
        same ? null : el("figcaption", {}, `pellucid/${file}:${line} ${fn}`),
        el("code", {}, statement!, el("span", { class: "comment" }, comment ?? "")),
      ].filter((part) => part !== null);
    }),
  );
}

/** More labels than this find no room next to a picture: then only the chosen one is written. */
const LABELS = 16;

/** The tokens of a picture's rows or columns. */
function labels(side: "above" | "before", tokens: Label[], chosen: number): HTMLElement {
  const all = tokens.length <= LABELS;
  const long = tokens.some(([text]) => [...text].length > 2);
  return el(
    "div",
    { class: `labels ${side} ${long ? "long" : ""}`, "aria-hidden": "true" },
    ...tokens.map((label, i) => {
      const shown = all || i === chosen ? token(label) : el("span");
      shown.classList.toggle("chosen", i === chosen);
      return shown;
    }),
  );
}

/** What a click on a cell of a step's picture chooses. */
function chosen(name: Name, row: number, column: number): Partial<State> {
  if (name === "dW" || name === "dA") return { query: row, key: column };
  if (name === "dV" || name === "dK") return { key: row, entry: column };
  return { query: row, entry: column };
}

function axes(name: Name): string {
  if (name === "dW" || name === "dA") return t.axesOf.keys;
  const { queries, keys } = t.rowNames;
  return t.axesOf.entries + (name === "dV" || name === "dK" ? keys : queries);
}

function asMatrix(rows: Rows): Matrix {
  return { values: rows.values, rows: rows.count, columns: rows.width };
}

function at(rows: Rows, row: number, entry: number): number {
  return rows.values[row * rows.width + entry]!;
}

function index(row: number, column: number): string {
  return `[${row + 1}, ${column + 1}]`;
}

/** A sum of products, times a factor if there is one; its largest terms are written out. */
function sumLine(name: string, pairs: [number, number][], factor: number | null): string {
  const sorted = [...pairs].sort((a, b) => Math.abs(b[0] * b[1]) - Math.abs(a[0] * a[1]));
  const shown = sorted.slice(0, TERMS);
  const rest = sorted.slice(TERMS);
  const sum = writtenSum(shown, rest.reduce((sum, [a, b]) => sum + a * b, 0), rest.length, factor);
  return `${name} = ${sum}`;
}
