// The five stages of attention, each with its equation, its matrix and the chosen number.

import { changes, output, partOf, PLAIN, score, scores, sees, span } from "./attention.ts";
import type { Matrix, Rule } from "./attention.ts";
import { css, signedIndex, weightIndex } from "./colours.ts";
import { el, markup, number, worked } from "./dom.ts";
import { equation, ruled } from "./equations.ts";
import { explained } from "./glossary.ts";
import { pixels } from "./matrix.ts";
import type { Model } from "./model.ts";
import { terms } from "./numbers.ts";
import { t } from "./text.ts";

const NAMES = ["scores", "scaled", "masked", "softmax", "output"] as const;
type Name = (typeof NAMES)[number];

interface Stage {
  root: HTMLElement;
  title: HTMLElement;
  equation: HTMLElement;
  canvas: HTMLCanvasElement;
  cursor: HTMLElement;
  value: HTMLElement;
}

export class Stages {
  readonly root: HTMLElement;
  private readonly stages = {} as { [name in Name]: Stage };
  private most = 0;

  constructor(private readonly model: Model) {
    this.root = el("div", { class: "stages" }, ...NAMES.map((name) => this.make(name)));
  }

  private make(name: Name): HTMLElement {
    const stage: Stage = {
      root: el("div", { class: "stage" }),
      title: el("h3"),
      equation: el("div", { class: "equation" }, markup(equation(name) ?? "")),
      canvas: el("canvas", { width: 1, height: 1 }),
      cursor: el("span", { class: "cursor" }),
      value: el("p", { class: "value" }),
    };
    this.stages[name] = stage;
    const picture = el("div", { class: "picture", "aria-hidden": "true" }, stage.canvas, stage.cursor);
    picture.addEventListener("click", (event) => {
      const box = stage.canvas.getBoundingClientRect();
      const { rows, columns } = this.model.head.products;
      const query = Math.floor(((event.clientY - box.top) / box.height) * rows);
      const key = Math.floor(((event.clientX - box.left) / box.width) * columns);
      this.model.store.set(name === "output" ? { query } : { query, key });
    });
    stage.root.append(
      stage.title,
      stage.equation,
      el("p", { class: "hint" }, ...explained(t.stages[name][1]!)),
      picture,
      stage.value,
    );
    return stage.root;
  }

  /** What no scale changes: the first stage, and what becomes of scaled scores. */
  drawScores(): void {
    const { products, rule } = this.model.head;
    const { masked } = this.stages;
    masked.root.hidden = !changes(rule);
    const shown = NAMES.filter((name) => !this.stages[name].root.hidden);
    for (const [n, name] of shown.entries()) {
      this.stages[name].title.textContent = `${n + 1} ${t.stages[name][0]}`;
    }
    masked.equation.replaceChildren(markup(ruled(rule)));
    this.most = 0;
    for (const x of products.values) this.most = Math.max(this.most, Math.abs(x));
    this.drawSigned("scores", products, 1);
  }

  update(): void {
    const { head, scale, colours, state } = this.model;
    this.drawSigned("scaled", head.products, scale);
    this.drawMasked(head.rule);
    const weights = head.weights(scale);
    const { canvas } = this.stages.softmax;
    pixels(canvas, weights, head.rule, colours.weight, colours.masked, weightIndex);
    for (const name of ["scores", "scaled", "masked", "softmax"] as const) {
      this.moveCursor(name, state.key, 1, weights.columns);
    }
    this.moveCursor("output", 0, 1, 1);
    this.say();
  }

  /** Scores in one range of colours, so that scaling shows; what is beyond it has its last one. */
  private drawSigned(name: Name, matrix: Matrix, scale: number, rule = PLAIN): void {
    const { colours } = this.model;
    const { most } = this;
    pixels(this.stages[name].canvas, matrix, rule, colours.signed, colours.masked, (x) =>
      signedIndex(Math.max(-most, Math.min(most, x * scale)), most),
    );
  }

  /** What was scaled, capped and added to, with a cover over what may not be looked at. */
  private drawMasked(rule: Rule): void {
    if (scores(rule)) {
      const { head, scale } = this.model;
      const { values, rows, columns } = head.products;
      const made = values.map((x, i) =>
        score(x * scale, Math.floor(i / columns) - (i % columns), rule),
      );
      this.drawSigned("masked", { values: made, rows, columns }, 1, rule);
      return;
    }
    const [from, to] = [this.stages.scaled.canvas, this.stages.masked.canvas];
    [to.width, to.height] = [from.width, from.height];
    const context = to.getContext("2d")!;
    context.drawImage(from, 0, 0);
    context.fillStyle = css(this.model.colours.masked);
    for (let l = 0; l < from.height; l++) {
      const [first, end] = span(l, from.width, rule);
      context.fillRect(0, l, first, 1);
      context.fillRect(end, l, from.width - end, 1);
    }
  }

  /** The last stage: more work than the others, so left until the scale is at rest. */
  drawOutput(): void {
    const { head, scale, colours } = this.model;
    const weights = head.weights(scale);
    const columns = head.v.width;
    const z: Matrix = {
      values: new Float32Array(weights.rows * columns),
      rows: weights.rows,
      columns,
    };
    for (let l = 0; l < z.rows; l++) z.values.set(output(weights, head.v, l), l * columns);
    let most = 0;
    for (const x of z.values) most = Math.max(most, Math.abs(x));
    pixels(this.stages.output.canvas, z, PLAIN, colours.signed, colours.masked, (x) =>
      signedIndex(x, most),
    );
  }

  private moveCursor(name: Name, column: number, span: number, columns: number): void {
    const { style } = this.stages[name].cursor;
    const rows = this.model.queries.length;
    style.left = `${(100 * column) / columns}%`;
    style.top = `${(100 * this.model.state.query) / rows}%`;
    style.width = `${(100 * span) / columns}%`;
    style.height = `${100 / rows}%`;
  }

  private say(): void {
    const { head, state, scale, keys } = this.model;
    const start = state.query * keys.length;
    const raw = head.products.values.subarray(start, start + keys.length);
    const { peak, sum } = terms(raw, scale, state.query, head.rule);
    const product = raw[state.key]!;
    const scaled = product * scale;
    const a = score(scaled, state.query - state.key, head.rule);
    const seen = sees(state.query, state.key, keys.length, head.rule);
    const hidden = partOf(head.rule, "Causal") && state.key > state.query ? t.ahead : t.far;
    const times = worked([scale, product], (c, s) => c * s);
    const share = worked([Math.exp(a - peak), sum], (e, total) => e / total);
    const values: { [name in Name]: string } = {
      scores: `sᵢⱼ = ${number(product)}`,
      scaled: `${times.texts.join(" × ")} = ${times.result}`,
      masked: seen ? scoreLine(scaled, a, head.rule) : hidden,
      softmax: seen ? `${share.texts.join(" / ")} = ${share.result}` : "0",
      output: t.outputRow(state.query + 1, head.v.width),
    };
    for (const name of NAMES) this.stages[name].value.textContent = values[name];
  }
}

/** How a score comes of a scaled product. */
function scoreLine(scaled: number, a: number, rule: Rule): string {
  const { added } = rule;
  const softcap = partOf(rule, "SoftCap")?.cap;
  if (!scores(rule)) return number(a);
  const cap = (x: number, most: number) => (softcap === undefined ? x : most * Math.tanh(x / most));
  const { texts, result } = worked([scaled, softcap ?? 1, a - cap(scaled, softcap ?? 1)], (x, most, more) =>
    added === null ? cap(x, most) : cap(x, most) + more,
  );
  const [x, most, more] = texts;
  const first = softcap === undefined ? x : `${most} tanh(${x} / ${most})`;
  return `${added === null ? first : `${first} + ${more}`} = ${result}`;
}
