// One head large: its weights as a matrix or as lines, and a second map beside it.

import type { Matrix } from "./attention.ts";
import { signedIndex, weightIndex } from "./colours.ts";
import { el, number } from "./dom.ts";
import { LinesView } from "./lines.ts";
import { MatrixView, pixels } from "./matrix.ts";
import type { Cell, MatrixEvents } from "./matrix.ts";
import { KIND_NAMES } from "./model.ts";
import type { Model } from "./model.ts";
import type { Beside, State } from "./store.ts";

const BESIDE: { [beside in Beside]: [name: string, meaning: string] } = {
  weights: ["∂L/∂W", "gradient of the loss with respect to the weights"],
  scores: ["∂L/∂A", "gradient of the loss with respect to the scaled scores"],
  change: ["change", "weights now less the model’s own"],
};

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
  private readonly legend = el("span", { class: "ends" });
  private readonly forms: [State["form"], HTMLButtonElement][];
  private readonly choices: [Beside, HTMLButtonElement][];

  constructor(model: Model) {
    this.model = model;
    const { store } = model;
    const events: MatrixEvents = {
      picked: ({ query, key }) => store.set({ query, key }),
      hovered: (cell) => this.describe(cell ?? model.state),
      pressed: (key) => this.press(key),
    };
    const { colours } = model;
    this.weights = new MatrixView("Weights", "readout", colours, events);
    this.lines = new LinesView("Tokens linked by weights", "readout", colours, events);
    this.beside = new MatrixView("Second map", "readout", colours, events);
    const button = (name: string, press: () => void) =>
      el("button", { type: "button", onclick: press }, name);
    this.forms = (["matrix", "lines"] as const).map((form) => [
      form,
      button(form === "matrix" ? "Matrix" : "Lines", () => store.set({ form })),
    ]);
    this.choices = (["weights", "scores", "change"] as const).map((beside) => [
      beside,
      button(BESIDE[beside][0], () => store.set({ beside })),
    ]);
    const group = (name: string, buttons: HTMLButtonElement[]) =>
      el("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons);
    this.root = el(
      "section",
      { class: "card large", "aria-label": "One head" },
      el(
        "header",
        {},
        el("div", {}, this.title, this.subtitle),
        group("Zoom", [
          button("−", () => this.zoom(1 / 1.5)),
          button("Fit", () => store.set({ zoom: 0 })),
          button("+", () => this.zoom(1.5)),
        ]),
      ),
      el(
        "div",
        { class: "maps" },
        el(
          "div",
          { class: "map" },
          el(
            "header",
            {},
            el("h3", {}, "Weights W"),
            group(
              "Form",
              this.forms.map(([, b]) => b),
            ),
          ),
          this.weights.root,
          this.lines.root,
          el(
            "p",
            { class: "legend" },
            "0",
            el("span", { class: "ramp weight" }),
            "1, shaded by √w",
            el("span", { class: "box masked" }),
            "masked",
          ),
        ),
        el(
          "div",
          { class: "map" },
          el(
            "header",
            {},
            this.besideTitle,
            group(
              "Beside",
              this.choices.map(([, b]) => b),
            ),
          ),
          this.beside.root,
          el("p", { class: "legend" }, this.legend),
        ),
      ),
      this.readout,
    );
    this.follow();
  }

  private follow(): void {
    const { store } = this.model;
    const any = ["kind", "layer", "head", "colours"] as const;
    store.listen((state, changed) => {
      const all = any.some((name) => changed.has(name));
      if (changed.has("kind")) this.relabel();
      if (changed.has("colours")) this.recolour();
      if (changed.has("zoom")) {
        this.weights.setZoom(state.zoom);
        this.beside.setZoom(state.zoom);
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

  private relabel(): void {
    const { queries, keys } = this.model;
    for (const view of [this.weights, this.beside, this.lines]) view.setLabels(queries, keys);
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
    this.title.textContent = `${KIND_NAMES[state.kind]}, layer ${state.layer + 1}, head ${state.head + 1}`;
    this.subtitle.textContent =
      `${head.map.name} · entropy ${entropy.toFixed(2)} nats, as if ${Math.exp(entropy).toFixed(1)} ` +
      `of ${weights.columns} keys were looked at`;
    const lines = state.form === "lines";
    this.weights.root.hidden = lines;
    this.lines.root.hidden = !lines;
    for (const [form, button] of this.forms) {
      button.setAttribute("aria-pressed", String(form === state.form));
    }
    pixels(
      this.weights.canvas,
      weights,
      head.map.causal,
      colours.weight,
      colours.masked,
      weightIndex,
    );
    this.weights.redraw();
    this.lines.setWeights(weights, colours);
  }

  private drawBeside(): void {
    const { head, state, colours } = this.model;
    const [name, meaning] = BESIDE[state.beside];
    const matrix = this.besideMatrix();
    let most = 0;
    for (const x of matrix.values) most = Math.max(most, Math.abs(x));
    pixels(this.beside.canvas, matrix, head.map.causal, colours.signed, colours.masked, (x) =>
      signedIndex(x, most),
    );
    this.beside.redraw();
    this.beside.root.setAttribute("aria-label", meaning);
    this.besideTitle.textContent = state.beside === "change" ? "Change of W" : `Gradient ${name}`;
    const ramp = el("span", { class: "ramp signed" });
    const of = {
      change: "now less the model’s own",
      weights: "at the model’s own scale; orange: more weight here, more loss",
      scores: "at the model’s own scale; orange: a higher score here, more loss",
    }[state.beside];
    this.legend.replaceChildren(`−${number(most)}`, ramp, `+${number(most)}`, el("span", {}, of));
    for (const [beside, button] of this.choices) {
      button.setAttribute("aria-pressed", String(beside === state.beside));
      button.title = BESIDE[beside][1];
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
    const from = `query ${query + 1} “${queries[query]![0]}”${next}`;
    const to = `key ${key + 1} “${keys[key]![0]}”`;
    if (head.map.causal && key > query) {
      this.readout.textContent = `${from} may not look ahead to ${to}: weight 0`;
      return;
    }
    const raw = head.products.values[i]!;
    this.readout.textContent =
      `${from} → ${to}: q·k ${number(raw)} × ${number(scale)} = ${number(raw * scale)} → weight ` +
      `${number(head.weights(scale).values[i]!)}; ` +
      `∂L/∂W ${number(head.weightGradient.values[i]!)}, ∂L/∂A ${number(head.scoreGradient.values[i]!)}`;
  }

  /** A decoder's row is the token read; what it is looking for is the next. */
  private predicted(query: number): string {
    const step = this.model.record.steps.find(({ place }) => place === query);
    return step ? `, predicting “${step.label[0]}”,` : "";
  }

  private zoom(factor: number): void {
    const cell = this.model.state.zoom || this.weights.cellSize;
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
      "0": () => this.model.store.set({ zoom: 0 }),
    };
    acts[key]?.();
    return key in acts;
  }
}
