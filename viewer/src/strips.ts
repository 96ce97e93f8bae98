// One score as the sum of products that it is, and the output of one query.

import { PLAIN } from "./attention.ts";
import { css, signedIndex } from "./colours.ts";
import type { Colours, Table } from "./colours.ts";
import { el, number } from "./dom.ts";
import { pixels } from "./matrix.ts";
import type { Model } from "./model.ts";
import { t } from "./text.ts";

export class Strips {
  readonly root: HTMLElement;
  private readonly product: HTMLElement;
  private readonly result: HTMLElement;

  constructor(private readonly model: Model) {
    const part = (name: string) =>
      el("div", { class: "strips", role: "group", "aria-label": name });
    this.product = part(t.scoreAsSum);
    this.result = part(t.headOutput);
    this.root = el(
      "section",
      { class: "card", "aria-label": t.scoreAndOutput },
      this.product,
      this.result,
    );
  }

  drawProduct(): void {
    const { head, state, queries, keys } = this.model;
    const { query, key } = state;
    const width = head.q.width;
    const q = head.q.values.subarray(query * width, (query + 1) * width);
    const k = head.k.values.subarray(key * width, (key + 1) * width);
    const product = q.map((x, d) => x * k[d]!);
    const total = head.products.values[query * keys.length + key]!;
    this.product.replaceChildren(
      el("h3", {}, t.scoreOf(queries[query]![0], keys[key]![0])),
      strip(this.model.colours.signed, [
        ["qᵢ", q],
        ["kⱼ", k],
        ["q × k", product],
      ]),
      el("p", {}, t.sumIs(number(total))),
    );
  }

  drawResult(): void {
    const { head, state, queries, scale } = this.model;
    this.result.replaceChildren(
      el("h3", {}, t.outputOf(queries[state.query]![0])),
      strip(this.model.colours.signed, [["zᵢ", head.output(state.query, scale)]]),
      el("p", {}, t.concatenated),
    );
  }
}

/** Entries of a vector in one block; blocks go on in the next line where there is no room. */
const BLOCK = 4;

/** Vectors up to this width are written out. */
const WRITTEN = 64;
/** Entries in a line of the picture of a wider vector, and how many are written below it. */
const LINE = 64;
const LARGEST = 6;

/** Vectors written out, or as pictures with their largest entries where they are wide. */
export function vectors(
  { signed, masked }: Colours,
  rows: [name: string, values: Float32Array][],
  marked?: number,
): HTMLElement {
  if (rows.every(([, values]) => values.length <= WRITTEN)) return strip(signed, rows, marked);
  return el("div", {}, ...rows.map(([name, values]) => wide(signed, masked, name, values)));
}

function wide(shades: Table, masked: number, name: string, values: Float32Array): HTMLElement {
  const rows = Math.ceil(values.length / LINE);
  const padded = new Float32Array(rows * LINE);
  padded.set(values);
  const most = values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0);
  const canvas = el("canvas", { class: "wide", "aria-hidden": "true" });
  const matrix = { values: padded, rows, columns: LINE };
  pixels(canvas, matrix, PLAIN, shades, masked, (x) => signedIndex(x, most));
  const order = Array.from(values.keys()).sort(
    (a, b) => Math.abs(values[b]!) - Math.abs(values[a]!),
  );
  const shown = order.slice(0, LARGEST).map((i) => `[${i + 1}] ${number(values[i]!)}`);
  return el(
    "div",
    { class: "wide-vector" },
    el("p", {}, el("b", {}, name), ` ${t.largest(values.length)} ${shown.join("  ")}`),
    canvas,
  );
}

/** Write vectors one under the other, entry by entry, each shaded by its own largest. */
export function strip(
  shades: Table,
  vectors: [name: string, values: Float32Array][],
  marked?: number,
): HTMLElement {
  const most = vectors.map(([, values]) =>
    values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0),
  );
  const row = ([name, values]: [string, Float32Array], n: number, start: number) => {
    const cells = Array.from(values.subarray(start, start + BLOCK), (x, i) => {
      const cell = el("td", { class: start + i === marked ? "marked" : undefined }, number(x));
      cell.style.setProperty("--shade", css(shades[signedIndex(x, most[n]!)]!));
      return cell;
    });
    return el("tr", {}, el("th", { scope: "row", "data-from": start + 1 }, name), ...cells);
  };
  const blocks = [];
  for (let start = 0; start < vectors[0]![1].length; start += BLOCK) {
    blocks.push(
      el(
        "table",
        { class: vectors.length > 1 ? "strip" : "strip single" },
        el("tbody", {}, ...vectors.map((vector, n) => row(vector, n, start))),
      ),
    );
  }
  return el("div", { class: "blocks" }, ...blocks);
}
