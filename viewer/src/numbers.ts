// Every key of one query: its score, scaled, masked, its share of the softmax.

import { changes, score, span } from "./attention.ts";
import type { Rule } from "./attention.ts";
import { announcing, el, number, token } from "./dom.ts";
import type { Model } from "./model.ts";
import { t } from "./text.ts";

/** Height of a row in the style sheet; only rows in view are written anew while a slider moves. */
const ROW = 28;

export class NumbersTable {
  readonly root: HTMLElement;
  private readonly rows = el("tbody");
  private readonly region: HTMLElement;
  private readonly caption = el("caption");
  private cells: HTMLElement[][] = [];

  constructor(private readonly model: Model) {
    const power = el("span", {}, "e", el("sup", {}, "a − max"));
    const [key, score, scaled, masked, weight] = t.columns;
    const heads = [key!, score!, scaled!, masked!, power, weight!];
    this.region = el(
      "div",
      { class: "scroll", role: "region", "aria-label": t.everyKey, tabindex: 0 },
      el(
        "table",
        { class: "numbers" },
        this.caption,
        el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))),
        this.rows,
      ),
    );
    this.region.addEventListener("scroll", () => this.update());
    new ResizeObserver(() => this.update()).observe(this.region);
    this.root = announcing(this.region, ({ down }) =>
      t.below(Math.round(down / ROW), t.rowNames.keys),
    );
    this.root.classList.add("numbers-region");
  }

  /** Make the rows of a query. */
  build(): void {
    const { head, state, keys, queries, store } = this.model;
    const query = state.query;
    this.caption.textContent = t.caption(query + 1, queries[query]![0]);
    this.cells = keys.map((label, s) => [
      el("th", { scope: "row" }, token(label)),
      el("td", {}, number(head.products.values[query * keys.length + s]!)),
      ...Array.from({ length: 3 }, () => el("td")),
      el("td", { class: "weight" }),
    ]);
    this.region.classList.toggle("unmasked", !changes(head.rule));
    this.rows.replaceChildren(
      ...this.cells.map((cells, s) =>
        el("tr", { onclick: () => store.set({ key: s }) }, ...cells),
      ),
    );
  }

  /** Write what the scale changes into the rows in view. */
  update(): void {
    const { head, state, keys, scale } = this.model;
    const start = state.query * keys.length;
    const raw = head.products.values.subarray(start, start + keys.length);
    const weights = head.weights(scale).values;
    const [from, open] = span(state.query, keys.length, head.rule);
    const { peak } = terms(raw, scale, state.query, head.rule);
    const first = Math.max(0, Math.floor(this.region.scrollTop / ROW) - 4);
    const last = Math.ceil((this.region.scrollTop + this.region.clientHeight) / ROW) + 1;
    this.cells.slice(first, last).forEach((cells, i) => {
      const s = first + i;
      const scaled = raw[s]! * scale;
      const a = score(scaled, state.query - s, head.rule);
      const seen = from <= s && s < open;
      const w = weights[start + s]!;
      cells[2]!.textContent = number(scaled);
      cells[3]!.textContent = seen ? number(a) : "−∞";
      cells[4]!.textContent = seen ? number(Math.exp(a - peak)) : "0";
      cells[5]!.textContent = number(w);
      cells[5]!.style.setProperty("--share", `${100 * w}%`);
      const row = cells[0]!.parentElement!;
      row.classList.toggle("chosen", s === state.key);
      row.classList.toggle("forbidden", !seen);
    });
  }
}

/** The largest score of a query's row and Σ e^(a − largest): softmax's denominator. */
export function terms(
  raw: Float32Array,
  scale: number,
  query: number,
  rule: Rule,
): { peak: number; sum: number } {
  const [first, end] = span(query, raw.length, rule);
  const scores = Array.from(raw.subarray(first, end), (x, i) =>
    score(x * scale, query - (first + i), rule),
  );
  const peak = scores.reduce((most, a) => Math.max(most, a), -Infinity);
  return { peak, sum: scores.reduce((sum, a) => sum + Math.exp(a - peak), 0) };
}
