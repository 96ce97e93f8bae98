// One head large: its weights as a matrix or as lines, and a second map beside it.

import { partOf, sees } from "./attention.ts";
import type { Matrix } from "./attention.ts";
import { signedIndex, weightIndex } from "./colours.ts";
import { announcing, clamp, el, number, offer, segmented, select, worked } from "./dom.ts";
import type { Segmented } from "./dom.ts";
import { LinesView } from "./lines.ts";
import { MatrixView, pixels } from "./matrix.ts";
import type { Cell, MapEvents } from "./mapview.ts";
import type { Model } from "./model.ts";
import type { Label } from "./record.ts";
import type { Beside, State } from "./store.ts";
import { t } from "./text.ts";

/** The gap between the maps in the style sheet. */
const GAP = 20;

export class Large {
  readonly root: HTMLElement;
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
  private readonly forms: Segmented<State["form"]>;
  private readonly choices: Segmented<Beside>;
  /** Layer and head of the map beside, where it is that of another head. */
  private readonly picks: HTMLSelectElement[];
  private readonly pick: HTMLElement;
  private readonly asBeside: HTMLElement;

  constructor(private readonly model: Model) {
    const { store } = model;
    // A map not drawn again yet may have more tokens than the kind now chosen.
    const inside = ({ query, key }: Cell) => ({
      query: clamp(query, model.queries.length),
      key: clamp(key, model.keys.length),
    });
    const events: MapEvents = {
      picked: (cell) => store.set(inside(cell)),
      hovered: (cell) => {
        for (const view of [this.weights, this.beside]) view.point(cell);
        this.describe(cell ? inside(cell) : model.state);
      },
      pressed: (key) => this.press(key),
    };
    const { colours } = model;
    this.weights = new MatrixView(t.weights, "readout", colours, events);
    this.lines = new LinesView(t.linkedTokens, "readout", colours, events);
    this.beside = new MatrixView(t.secondMap, "readout", colours, events);
    const button = (name: string, press: () => void) =>
      el("button", { type: "button", onclick: press }, name);
    const forms = [["matrix", t.matrix], ["lines", t.lines]] as const;
    this.forms = segmented(t.form, forms, (form) => store.set({ form }));
    const seconds: Beside[] = ["weights", "scores", "change", "head"];
    if (model.other) seconds.push("other");
    const named = seconds.map((beside) => [beside, t.seconds[beside][0]!] as const);
    this.choices = segmented(t.second, named, (beside) => {
      const { layer, head, layer2, head2 } = model.state;
      store.set({ beside });
      if (beside === "head" && layer2 === layer && head2 === head) {
        store.set({ head2: (head + 1) % model.all[0]!.length });
      }
    });
    for (const [beside, one] of this.choices.buttons) one.title = t.seconds[beside][2]!;
    const [layer2, layers] = select("layer2", t.ofSecond.layer, (layer2) => store.set({ layer2 }));
    const [head2, heads] = select("head2", t.ofSecond.head, (head2) => store.set({ head2 }));
    this.picks = [layer2, head2];
    this.pick = el("div", { class: "choices" }, layers, heads);
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
    this.asBeside = cells(this.beside);
    this.asLines = announcing(this.lines.root, ({ down }) =>
      t.below(Math.round(down / this.lines.rowHeight), t.rowNames.tokens),
    );
    const map = (header: HTMLElement[], ...inside: HTMLElement[]) =>
      el("div", { class: "map" }, el("header", {}, ...header), el("div", {}, ...inside));
    this.maps = el(
      "div",
      { class: "maps" },
      map(
        [
          el("h3", {}, model.other ? model.record.name || model.record.title : t.weightsW),
          this.forms.root,
        ],
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
      map(
        [this.besideTitle, this.choices.root, this.pick],
        this.asBeside,
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
      const second = ["beside", "layer2", "head2"].some((name) => changed.has(name as "beside"));
      if (all || second || (changed.has("scale") && state.beside === "change")) {
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
    for (const view of [this.weights, this.lines]) view.setLabels(queries, keys);
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
    for (const view of [this.weights, this.lines]) view.setCursor(query, key);
    const [rows, columns] = this.besideLabels();
    this.beside.setCursor(clamp(query, rows.length), clamp(key, columns.length));
  }

  private besideLabels(): [Label[], Label[]] {
    const { compared, queries, keys } = this.model;
    if (!compared) return [queries, keys];
    const { record, head } = compared;
    return [record[head.map.queries], record[head.map.keys]];
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
    this.forms.press(state.form);
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
    const { model } = this;
    const { head, state, colours, compared } = model;
    const [, title, meaning] = t.seconds[state.beside];
    const missing = model.second !== null && !compared;
    this.pick.hidden = !compared;
    this.asBeside.hidden = missing;
    this.beside.root.setAttribute("aria-label", meaning!);
    const { other } = model;
    this.besideTitle.textContent = state.beside === "other" && other ? other.name || other.title : title!;
    this.choices.press(state.beside);
    this.beside.setLabels(...this.besideLabels());
    this.moveCursor();
    if (compared) {
      const { all, head: second } = compared;
      const { weight, masked } = colours;
      pixels(this.beside.canvas, second.own, second.rule, weight, masked, weightIndex);
      const places = [second.map.layer - 1, second.number];
      [all, all[0]!].forEach((list, i) => {
        offer(this.picks[i]!, list.map((_, n) => String(n + 1)), places[i]);
      });
      this.legend.replaceChildren("0 ", el("span", { class: "ramp weight" }), ` ${t.shaded}`, this.losses());
    } else if (missing) {
      this.legend.replaceChildren(t.lacksKind);
    } else {
      const matrix = this.besideMatrix();
      let most = 0;
      for (const x of matrix.values) most = Math.max(most, Math.abs(x));
      pixels(this.beside.canvas, matrix, head.rule, colours.signed, colours.masked, (x) =>
        signedIndex(x, most),
      );
      const ramp = el("span", { class: "ramp signed" });
      const of = t.legends[state.beside as "change"];
      this.legend.replaceChildren(`−${number(most)}`, ramp, `+${number(most)}`, el("span", {}, of));
    }
    this.beside.redrawCells();
  }

  /** What the two models make of their answers. */
  private losses(): HTMLElement | string {
    const { record, other, state } = this.model;
    if (state.beside !== "other" || !other) return "";
    const more = other.loss - record.loss;
    const said = t.losses(number(record.loss, 3), number(other.loss, 3), `${more < 0 ? "" : "+"}${number(more, 3)}`);
    return el("span", {}, said);
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
      this.readout.textContent = (key > query && partOf(head.rule, "Causal") ? t.lookAhead : t.tooFar)(from, to);
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
      `; ∂L/∂W ${number(head.weightGradient.values[i]!)}, ∂L/∂A ${number(head.scoreGradient.values[i]!)}` +
      this.describeBeside(query, key);
  }

  /** What the head beside has at the same place, and where that is another record, −log p in both. */
  private describeBeside(query: number, key: number): string {
    const { compared, record, state } = this.model;
    const [rows, columns] = this.besideLabels();
    if (!compared || query >= rows.length || key >= columns.length) return "";
    const w = compared.head.own.values[query * columns.length + key]!;
    const said = t.beside(rows[query]![0], columns[key]![0], number(w));
    if (state.beside !== "other" || compared.head.map.queries !== "target") return said;
    const [here, there] = [record, compared.record].map(({ steps }) => {
      const step = steps.find(({ place }) => place === query);
      return step && `“${step.label[0]}” ${number(-Math.log(step.probability), 3)}`;
    });
    return here && there ? said + t.besideLoss(here, there) : said;
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
