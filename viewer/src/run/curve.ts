// The loss along an edit: its exact curve, the tangent at 0, and a slider for the size of the edit.

import { el, number, svg } from "../dom.ts";
import type { Language } from "../text.ts";
import type { Edited, Outcome } from "./edit.ts";
import { TEXTS } from "./text.ts";
import { SLICE } from "./trial.ts";

const POINTS = 41;
const STEPS = 400;
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [230, 56, 14, 12, 30];

export interface Shown {
  edited: Edited;
  slope: number;
  range: [number, number];
  /** Where the slider stands at first; 0 if not given. */
  opens?: number;
  /** What moves: "δ" or "η". */
  symbol: string;
  /** What follows: "L", or another name. */
  letter?: string;
  name: string;
}

export class Curve {
  readonly root: HTMLElement;
  readonly slider: HTMLInputElement;
  by = 0;
  private readonly t;
  private readonly letter = el("label", { for: "" });
  private readonly value = el("output");
  private readonly picture = el("div", { class: "curve", role: "img" });
  private shown: Shown | null = null;
  private points: [number, number][] = [];
  private before: Outcome | null = null;
  private now: Outcome | null = null;
  private turn = 0;

  /** `moved` hears of every δ, the first too, and what the model makes of it and of 0. */
  constructor(id: string, language: Language, private readonly moved: (by: number, now: Outcome, before: Outcome) => void) {
    this.t = TEXTS[language];
    this.slider = el("input", { type: "range", id });
    this.letter.htmlFor = id;
    this.slider.addEventListener("input", () => this.move(Number(this.slider.value)));
    const reset = el("button", { type: "button", class: "quiet", onclick: () => this.move(0) }, this.t.zero);
    this.root = el(
      "div",
      { class: "curve-card" },
      this.picture,
      el("div", { class: "curve-slider" }, this.letter, this.slider, this.value, reset),
    );
    const drag = (event: Event) => {
      const { buttons, clientX, type } = event as PointerEvent;
      if (!this.shown || (type === "pointermove" && buttons === 0)) return;
      const { left, width } = this.picture.getBoundingClientRect();
      const [lo, hi] = this.shown.range;
      const share = (clientX - left - LEFT) / (width - LEFT - RIGHT);
      this.move(lo + Math.max(0, Math.min(1, share)) * (hi - lo));
    };
    this.picture.addEventListener("pointerdown", drag);
    this.picture.addEventListener("pointermove", drag);
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  /** Run the model at every point, and give way to the page in between. */
  async show(shown: Shown): Promise<void> {
    const turn = ++this.turn;
    const [lo, hi] = shown.range;
    this.shown = shown;
    this.points = [];
    this.before = shown.edited.at(0);
    Object.assign(this.slider, { min: lo, max: hi, step: (hi - lo) / STEPS });
    this.letter.textContent = shown.symbol;
    this.move(shown.opens ?? 0);
    let began = performance.now();
    for (let i = 0; i < POINTS; i++) {
      if (i === 0 || performance.now() - began > SLICE) {
        await new Promise((done) => setTimeout(done));
        if (turn !== this.turn) return;
        this.draw();
        began = performance.now();
      }
      const by = lo + ((hi - lo) * i) / (POINTS - 1);
      this.points.push([by, shown.edited.at(by).loss]);
    }
    this.draw();
  }

  private move(by: number): void {
    this.by = by;
    this.slider.value = String(by);
    this.value.textContent = number(by, 3);
    this.slider.setAttribute("aria-valuetext", number(by, 3));
    this.now = by === 0 ? this.before : this.shown!.edited.at(by, true);
    this.moved(by, this.now!, this.before!);
    this.draw();
  }

  private draw(): void {
    const { shown, points, t, before, now } = this;
    const width = this.picture.clientWidth;
    if (!shown || !before || !now || width === 0) return;
    const [lo, hi] = shown.range;
    const base = before.loss;
    const losses = [base, now.loss, ...points.map(([, loss]) => loss)];
    const [low, high] = [Math.min(...losses), Math.max(...losses)];
    // A curve that is flat to rounding is drawn flat.
    const pad = Math.max((high - low) * 0.12, 1e-5);
    const [bottom, top] = [low - pad, high + pad];
    const x = (by: number) => LEFT + ((by - lo) / (hi - lo)) * (width - LEFT - RIGHT);
    const y = (loss: number) => TOP + ((top - loss) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
    const line = (name: string, x1: number, y1: number, x2: number, y2: number) =>
      svg("line", { class: name, x1, y1, x2, y2 });
    const text = (name: string, at: number, height: number, words: string) =>
      svg("text", { class: name, x: at, y: height }, words);
    const clip = `${this.slider.id}-clip`;
    const tangent = (by: number) => base + shown.slope * by;
    this.picture.setAttribute("aria-label", t.curveOf(shown.name, shown.letter ?? "L", number(base), number(shown.slope)));
    this.picture.replaceChildren(
      svg(
        "svg",
        { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
        svg("clipPath", { id: clip }, svg("rect", { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM })),
        line("axis", LEFT, HEIGHT - BOTTOM, width - RIGHT, HEIGHT - BOTTOM),
        line("axis", x(0), TOP, x(0), HEIGHT - BOTTOM),
        text("end", LEFT - 6, y(high) + 4, number(high, 3)),
        ...(y(low) - y(high) < 16 ? [] : [text("end", LEFT - 6, y(low) + 4, number(low, 3))]),
        text("start", LEFT, HEIGHT - 10, number(lo, 3)),
        text("end", width - RIGHT, HEIGHT - 10, number(hi, 3)),
        text("middle", width / 2, HEIGHT - 10, shown.symbol),
        text("start", LEFT + 6, TOP + 12, shown.letter ?? "L"),
        svg(
          "g",
          { "clip-path": `url(#${clip})` },
          line("tangent", x(lo), y(tangent(lo)), x(hi), y(tangent(hi))),
          svg("path", { class: "loss", d: points.length < 2 ? "" : `M${points.map(([by, loss]) => `${x(by).toFixed(1)} ${y(loss).toFixed(2)}`).join("L")}` }),
        ),
        svg("circle", { class: "origin", cx: x(0), cy: y(base), r: 4 }),
        svg("circle", { class: "now", cx: x(this.by), cy: y(now.loss), r: 7 }),
      ),
    );
  }
}
