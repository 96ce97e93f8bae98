// One score as the sum of products that it is, and the output of one query.

import { css, signedIndex } from "./colours.ts";
import { el, number } from "./dom.ts";
import type { Model } from "./model.ts";

export class Strips {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly product: HTMLElement;
  private readonly result: HTMLElement;

  constructor(model: Model) {
    this.model = model;
    const part = (name: string) =>
      el("div", { class: "strips", role: "region", tabindex: 0, "aria-label": name });
    this.product = part("The score as a sum of products");
    this.result = part("The output of the head");
    this.root = el(
      "section",
      { class: "card", "aria-label": "The score and the output" },
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
      el("h3", {}, `Score: q of “${queries[query]![0]}” · k of “${keys[key]![0]}”`),
      this.table([
        ["qᵢ", q],
        ["kⱼ", k],
        ["q × k", product],
      ]),
      el("p", {}, `The last row adds up to sᵢⱼ = ${number(total)}.`),
    );
  }

  drawResult(): void {
    const { head, state, queries, scale } = this.model;
    this.result.replaceChildren(
      el("h3", {}, `Output of “${queries[state.query]![0]}”: every value times its weight`),
      this.table([["zᵢ", head.output(state.query, scale)]]),
      el(
        "p",
        {},
        "The heads’ outputs stand side by side and go through W",
        el("sup", {}, "O"),
        "; that is the layer’s answer.",
      ),
    );
  }

  private table(rows: [name: string, values: Float32Array][]): HTMLElement {
    const { signed } = this.model.colours;
    return el(
      "table",
      { class: "strip" },
      el(
        "tbody",
        {},
        ...rows.map(([name, values]) => {
          let most = 0;
          for (const x of values) most = Math.max(most, Math.abs(x));
          const cells = Array.from(values, (x) => {
            const cell = el("td", {}, x.toFixed(2).replace("-", "−"));
            cell.style.setProperty("--shade", css(signed[signedIndex(x, most)]!));
            return cell;
          });
          return el("tr", {}, el("th", { scope: "row" }, name), ...cells);
        }),
      ),
    );
  }
}
