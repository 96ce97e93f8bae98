// One head large: its weights as a matrix or as lines, and a second map beside it.

import { sees } from "./attention.ts";
import type { Matrix } from "./attention.ts";
import { signedIndex, weightIndex } from "./colours.ts";
import { announcing, clamp, el, number, worked } from "./dom.ts";
import { LinesView } from "./lines.ts";
import { MatrixView, pixels } from "./matrix.ts";
import type { Cell, MatrixEvents } from "./matrix.ts";
import type { Model } from "./model.ts";
import type { Beside, State } from "./store.ts";
import { t } from "./text.ts";

/** The gap between the maps in the style sheet. */
const GAP = 20;

export class Large {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly title = el("h2");
  private readonly subtitle = el("p", { class: "hint" });
  private readonly readout = el("output", { id: "readout", "aria-live": "polite" });
  private readonly weights: MatrixView;
  private readonly lines: LinesView;
  private readonly beside: MatrixView;
  private readonly besideTitle = el("h3");
  private readonly fit: HTMLButtonElement;
  private readonly maps: HTMLElement;
  private readonly asMatrix: HTMLElement;
  private readonly asLines: HTMLElement;
  private readonly legend = el("span", { class: "ends" });
  private readonly forms: [State["form"], HTMLButtonElement][];
  private readonly choices: [Beside, HTMLButtonElement][];

  constructor(model: Model) {
    this.model = model;
    const { store } = model;
    // A map not drawn again yet may have more tokens than the kind now chosen.
    const inside = ({ query, key }: Cell) => ({
      query: clamp(query, model.queries.length),
      key: clamp(key, model.keys.length),
    });
    const events: MatrixEvents = {
      picked: (cell) => store.set(inside(cell)),
      hovered: (cell) => this.describe(cell ? inside(cell) : model.state),
      pressed: (key) => this.press(key),
    };
    const { colours } = model;
    this.weights = new MatrixView(t.weights, "readout", colours, events);
    this.lines = new LinesView(t.linkedTokens, "readout", colours, events);
    this.beside = new MatrixView(t.secondMap, "readout", colours, events);
    const button = (name: string, press: () => void) =>
      el("button", { type: "button", onclick: press }, name);
    this.forms = (["matrix", "lines"] as const).map((form) => [
      form,
      button(form === "matrix" ? t.matrix : t.lines, () => store.set({ form })),
    ]);
    this.choices = (["weights", "scores", "change"] as const).map((beside) => [
      beside,
      button(t.seconds[beside][0]!, () => store.set({ beside })),
    ]);
    this.fit = button(t.fit, () =>
      store.set({ zoom: model.state.zoom === "whole" ? "readable" : "whole" }),
    );
    const group = (name: string, buttons: HTMLButtonElement[]) =>
      el("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons);
    const cells = (view: MatrixView) =>
      announcing(view.root, ({ down, right }) => {
        const { queries, keys } = t.rowNames;
        const [below, beyond] = [down, right].map((far) => Math.round(far / view.cellSize));
        return [
          below! > 0 ? t.below(below!, queries) : "",
          beyond! > 0 ? t.right(beyond!, keys) : "",
        ].join("   ");
      });
    this.asMatrix = cells(this.weights);
    this.asLines = announcing(this.lines.root, ({ down }) =>
      t.below(Math.round(down / this.lines.rowHeight), t.rowNames.tokens),
    );
    this.maps = el(
      "div",
      { class: "maps" },
      el(
        "div",
        { class: "map" },
        el(
          "header",
          {},
          el("h3", {}, t.weightsW),
          group(
            t.form,
            this.forms.map(([, b]) => b),
          ),
        ),
        this.asMatrix,
        this.asLines,
        el(
          "p",
          { class: "legend of-matrix" },
          el("span", {}, "0 ", el("span", { class: "ramp weight" }), ` ${t.shaded}`),
          el("span", {}, el("span", { class: "box masked" }), ` ${t.masked}`),
          el("span", {}, t.axes),
        ),
        el("p", { class: "legend of-lines" }, t.linesLegend),
      ),
      el(
        "div",
        { class: "map" },
        el(
          "header",
          {},
          this.besideTitle,
          group(
            t.second,
            this.choices.map(([, b]) => b),
          ),
        ),
        cells(this.beside),
        el("p", { class: "legend" }, this.legend),
      ),
    );
    new ResizeObserver(() => this.stack()).observe(this.maps);
    this.root = el(
      "section",
      { class: "card large", "aria-label": t.oneHead },
      el(
        "header",
        {},
        el("div", {}, this.title, this.subtitle),
        group(t.zoom, [
          button("−", () => this.zoom(1 / 1.5)),
          this.fit,
          button("+", () => this.zoom(1.5)),
        ]),
      ),
      this.maps,
      this.readout,
    );
    this.follow();
  }

  private follow(): void {
    const { store } = this.model;
    const any = ["kind", "layer", "head", "colours", "frame"] as const;
    store.listen((state, changed) => {
      const all = any.some((name) => changed.has(name));
      if (changed.has("kind")) this.relabel();
      if (changed.has("colours")) this.recolour();
      if (changed.has("zoom")) {
        this.weights.setZoom(state.zoom);
        this.beside.setZoom(state.zoom);
        this.fit.setAttribute("aria-pressed", String(state.zoom === "whole"));
      }
      if (all || changed.has("scale") || changed.has("form")) this.drawWeights();
      if (all || changed.has("beside") || (changed.has("scale") && state.beside === "change")) {
        this.drawBeside();
      }
      if (changed.has("query") || changed.has("key") || changed.has("kind")) this.moveCursor();
      this.describe(state);
    });
    this.relabel();
    this.drawWeights();
    this.drawBeside();
    this.moveCursor();
    this.describe(this.model.state);
  }

  print(paper: boolean): void {
    this.stack();
    for (const view of [this.weights, this.beside]) view.print(paper);
    this.lines.print();
  }

  private relabel(): void {
    const { queries, keys } = this.model;
    for (const view of [this.weights, this.beside, this.lines]) view.setLabels(queries, keys);
    this.stack();
  }

  /** Put the maps under each other where cells side by side would be too small to read. */
  private stack(): void {
    const half = (this.maps.clientWidth - GAP) / 2;
    this.maps.classList.toggle("stacked", this.weights.readableWidth > half);
  }

  private recolour(): void {
    this.weights.setColours(this.model.colours);
    this.beside.setColours(this.model.colours);
  }

  private moveCursor(): void {
    const { query, key } = this.model.state;
    for (const view of [this.weights, this.beside, this.lines]) view.setCursor(query, key);
  }

  private drawWeights(): void {
    const { head, state, scale, colours } = this.model;
    const weights = head.weights(scale);
    const { entropy } = head.summary(scale);
    this.title.textContent = this.model.headName;
    this.subtitle.textContent = t.subtitle(
      head.map.name,
      entropy.toFixed(2),
      Math.exp(entropy).toFixed(1),
      weights.columns,
    );
    const lines = state.form === "lines";
    this.asMatrix.hidden = lines;
    this.asLines.hidden = !lines;
    this.root.classList.toggle("drawn-as-lines", lines);
    for (const [form, button] of this.forms) {
      button.setAttribute("aria-pressed", String(form === state.form));
    }
    pixels(
      this.weights.canvas,
      weights,
      head.rule,
      colours.weight,
      colours.masked,
      weightIndex,
    );
    this.weights.redrawCells();
    this.lines.setWeights(weights, colours);
  }

  private drawBeside(): void {
    const { head, state, colours } = this.model;
    const [, title, meaning] = t.seconds[state.beside];
    const matrix = this.besideMatrix();
    let most = 0;
    for (const x of matrix.values) most = Math.max(most, Math.abs(x));
    pixels(this.beside.canvas, matrix, head.rule, colours.signed, colours.masked, (x) =>
      signedIndex(x, most),
    );
    this.beside.redrawCells();
    this.beside.root.setAttribute("aria-label", meaning!);
    this.besideTitle.textContent = title!;
    const ramp = el("span", { class: "ramp signed" });
    const of = t.legends[state.beside];
    this.legend.replaceChildren(`−${number(most)}`, ramp, `+${number(most)}`, el("span", {}, of));
    for (const [beside, button] of this.choices) {
      button.setAttribute("aria-pressed", String(beside === state.beside));
      button.title = t.seconds[beside][2]!;
    }
  }

  private besideMatrix(): Matrix {
    const { head, state, scale } = this.model;
    if (state.beside === "weights") return head.weightGradient;
    if (state.beside === "scores") return head.scoreGradient;
    const { values, rows, columns } = head.weights(scale);
    return { values: values.map((w, i) => w - head.own.values[i]!), rows, columns };
  }

  private describe({ query, key }: Cell): void {
    const { head, queries, keys, scale } = this.model;
    const i = query * keys.length + key;
    const next = head.map.queries === "target" ? this.predicted(query) : "";
    const from = t.query(query + 1, queries[query]![0]) + next;
    const to = t.key(key + 1, keys[key]![0]);
    if (!sees(query, key, keys.length, head.rule)) {
      this.readout.textContent = (key > query && head.map.causal ? t.lookAhead : t.tooFar)(from, to);
      return;
    }
    const { texts, result } = worked([head.products.values[i]!, scale], (raw, c) => raw * c);
    this.readout.textContent =
      t.cell(
        from,
        to,
        texts[0]!,
        texts[1]!,
        result,
        number(head.weights(scale).values[i]!),
      ) +
      `; ∂L/∂W ${number(head.weightGradient.values[i]!)}, ∂L/∂A ${number(head.scoreGradient.values[i]!)}`;
  }

  /** A decoder's row is the token read; it predicts the next one. */
  private predicted(query: number): string {
    const step = this.model.record.steps.find(({ place }) => place === query);
    return step ? t.predicting(step.label[0]) : "";
  }

  private zoom(factor: number): void {
    const cell = this.weights.cellSize;
    this.model.store.set({ zoom: Math.max(1.5, Math.min(60, cell * factor)) });
  }

  private press(key: string): boolean {
    const { layer, head } = this.model.state;
    const acts: { [name: string]: () => void } = {
      "[": () => this.model.chooseHead(layer, head - 1),
      "]": () => this.model.chooseHead(layer, head + 1),
      "{": () => this.model.chooseHead(layer - 1, head),
      "}": () => this.model.chooseHead(layer + 1, head),
      "+": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      "0": () => this.model.store.set({ zoom: "readable" }),
    };
    acts[key]?.();
    return key in acts;
  }
}
