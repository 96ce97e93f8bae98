// The scale: a slider over powers of d_k, the usual values, any number; and what it changes.

import { el, number } from "./dom.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import { t } from "./text.ts";

const [LEAST, MOST] = [-0.5, 2.5];
const PRESETS: [name: string, power: number][] = [
  ["1", 0],
  ["1/√dₖ", 0.5],
  ["1/dₖ", 1],
  ["1/dₖ²", 2],
];

export class ScalePanel {
  readonly controls: HTMLElement;
  /** What the scale does to the head in view. */
  readonly effect: HTMLElement;
  private readonly slider: HTMLInputElement;
  private readonly field: HTMLInputElement;
  private readonly power = el("output", { class: "power", for: "scale-slider" });
  private readonly presets: { button: HTMLButtonElement; scale: () => number | null }[] = [];
  private readonly table = el("tbody");

  constructor(private readonly model: Model) {
    const { store } = model;
    this.slider = el("input", {
      id: "scale-slider",
      "aria-label": t.scaleLabel.join("ₖ⁻ᵖ"),
      type: "range",
      min: LEAST,
      max: MOST,
      step: 0.005,
      oninput: () => store.set({ scale: this.width ** -Number(this.slider.value) }),
    });
    this.field = el("input", {
      id: "scale-field",
      "aria-label": t.anyScale,
      type: "number",
      step: "any",
      onchange: () => {
        const value = Number(this.field.value);
        if (this.field.value.trim() !== "" && Number.isFinite(value)) store.set({ scale: value });
        else this.update();
      },
    });
    const add = (name: string, scale: () => number | null) => {
      const button = el(
        "button",
        { type: "button", "aria-pressed": "false", onclick: () => store.set({ scale: scale() }) },
        name,
      );
      if (name === t.own) button.title = t.ownScale;
      this.presets.push({ button, scale });
      return button;
    };
    const buttons = [
      add(t.own, () => null),
      ...PRESETS.map(([name, power]) => add(name, () => this.width ** -power)),
    ];
    const more = el(
      "button",
      {
        type: "button",
        class: "quiet more-scales",
        "aria-label": t.moreScales,
        "aria-expanded": "false",
        onclick: () => {
          const open = this.controls.classList.toggle("open");
          more.setAttribute("aria-expanded", String(open));
        },
      },
      "⋯",
    );
    this.controls = el(
      "section",
      { class: "card scale", "aria-labelledby": "scale-title" },
      el("h2", { id: "scale-title" }, t.scale),
      el(
        "p",
        {},
        t.scaleLabel[0]!,
        el("sub", {}, "k"),
        el("sup", {}, "−p"),
        t.scaleLabel[1]!,
      ),
      el("div", { class: "range" }, el("span", { class: "short" }, t.scale), this.slider, this.power, more),
      el(
        "div",
        { class: "presets", role: "group", "aria-label": t.usualScales },
        ...buttons,
        el("span", { class: "together" }, el("span", { class: "hint" }, t.or), this.field),
      ),
    );
    this.effect = el(
      "section",
      { class: "card", "aria-labelledby": "effect-title" },
      el("h2", { id: "effect-title" }, t.effect),
      el(
        "table",
        { class: "effect" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("td"),
            el("th", { scope: "col" }, t.own),
            el("th", { scope: "col" }, t.now),
          ),
        ),
        this.table,
      ),
    );
    this.update();
    store.listen(() => this.update(), "scale", "kind", "layer", "head", "frame");
  }

  /** d_k */
  private get width(): number {
    return this.model.head.map.q.shape[2];
  }

  private update(): void {
    const { head, scale, state } = this.model;
    const width = this.width;
    const power = scale > 0 && width > 1 ? -Math.log(scale) / Math.log(width) : NaN;
    this.slider.value = String(Number.isFinite(power) ? power : MOST);
    this.power.textContent = Number.isFinite(power) ? `p = ${power.toFixed(2)}` : t.noPower;
    this.slider.setAttribute("aria-valuetext", t.scaleValue(power.toFixed(2), number(scale)));
    this.field.value = String(Number(scale.toPrecision(5)));
    for (const { button, scale: preset } of this.presets) {
      const value = preset();
      button.setAttribute(
        "aria-pressed",
        String(value === null ? state.scale === null : state.scale === value),
      );
    }
    const [own, now] = [head.ownSummary, head.summary(scale)];
    const [before, after] = [head.own.values, head.weights(scale).values];
    let change = 0;
    for (let i = 0; i < after.length; i++) {
      change = Math.max(change, Math.abs(after[i]! - before[i]!));
    }
    const row = (name: string, a: string, b: string) =>
      el("tr", {}, el("th", { scope: "row" }, ...explained(name)), el("td", {}, a), el("td", {}, b));
    this.table.replaceChildren(
      row(t.effects.by, number(head.scale), number(scale)),
      row(t.effects.entropy, own.entropy.toFixed(3), now.entropy.toFixed(3)),
      row(t.effects.count, Math.exp(own.entropy).toFixed(1), Math.exp(now.entropy).toFixed(1)),
      row(t.effects.peak, own.peak.toFixed(3), now.peak.toFixed(3)),
      row(t.effects.change, "", change.toFixed(3)),
    );
  }
}
