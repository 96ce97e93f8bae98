// One score as the sum of products that it is, and the output of one query.

import { css, signedIndex } from "./colours.ts";
import type { Table } from "./colours.ts";
import { el, number } from "./dom.ts";
import type { Model } from "./model.ts";
import { t } from "./text.ts";

export class Strips {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly product: HTMLElement;
  private readonly result: HTMLElement;

  constructor(model: Model) {
    this.model = model;
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

/** Write vectors one under the other, entry by entry, each shaded by its own largest. */
export function strip(
  shades: Table,
  vectors: [name: string, values: Float32Array][],
): HTMLElement {
  const most = vectors.map(([, values]) =>
    values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0),
  );
  const row = ([name, values]: [string, Float32Array], n: number, start: number) => {
    const cells = Array.from(values.subarray(start, start + BLOCK), (x) => {
      const cell = el("td", {}, number(x));
      cell.style.setProperty("--shade", css(shades[signedIndex(x, most[n]!)]!));
      return cell;
    });
    return el("tr", {}, el("th", { scope: "row" }, name), ...cells);
  };
  const blocks = [];
  for (let start = 0; start < vectors[0]![1].length; start += BLOCK) {
    blocks.push(
      el(
        "table",
        { class: "strip" },
        el("tbody", {}, ...vectors.map((vector, n) => row(vector, n, start))),
      ),
    );
  }
  return el("div", { class: "blocks" }, ...blocks);
}
