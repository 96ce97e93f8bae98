// The base of the figures: panels of bars, some of them to drag, and what follows from them at once.

import { el, number } from "../dom.ts";
import { differences } from "./maths.ts";
import { t } from "./text.ts";

export type Values = { [name: string]: number[] };

export interface Panel {
  name: string;
  title: string;
  /** What each bar is called; unless given, the name with an index. */
  labels?: string[];
  range: [number, number];
  /** Bars that the reader moves; all others are computed. */
  edit?: boolean;
}

export interface Board {
  /** x, y, dy, dx, then any others. Where there is room, two to a row, and dx below x. */
  panels: Panel[];
  start: Values;
  /** Everything that follows from the bars that the reader moves, by the names of the panels. */
  compute(inputs: Values): Values;
  /** The loss of the gradients. */
  loss(inputs: Values): number;
  /** It in symbols. */
  lossText: string;
  /** The panel that shows the gradient of each input. */
  gradients: { [input: string]: string };
  /** How one number came about, with numbers. */
  worked(values: Values, index: number): string;
  /** What stands below: sliders and buttons. They call `update`. */
  controls?(update: () => void): HTMLElement[];
  /** Called with all values after each change. */
  after?(values: Values): void;
}

const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";
const STEP = 0.1;
const LARGE_STEP = 0.5;

export const subscript = (i: number): string => [...String(i + 1)].map((d) => SUBSCRIPTS[Number(d)]).join("");

/** Three digits, and nothing longer than a narrow column. */
export function short(x: number): string {
  return Math.abs(x) < 5e-5 ? "0.000" : Math.abs(x) < 100 ? x.toFixed(3).replace("-", "−") : number(x, 2);
}

/** A range slider with its name and its value; a native one, so that every device can move it. */
export function range(
  label: string,
  [least, most, step]: [number, number, number],
  value: number,
  changed: (value: number) => void,
  text: (value: number) => string = (v) => v.toFixed(2),
): { root: HTMLElement; set: (value: number) => void } {
  const shown = el("output", {}, text(value));
  const input = el("input", { type: "range", min: least, max: most, step, value });
  const set = (to: number) => {
    input.value = String(to);
    input.setAttribute("aria-valuetext", text(to));
    shown.textContent = text(to);
  };
  input.addEventListener("input", () => {
    set(Number(input.value));
    changed(Number(input.value));
  });
  set(value);
  return { root: el("label", { class: "pf-range" }, `${label} `, input, " ", shown), set };
}

/** Buttons of which one is pressed. */
export function choice(
  label: string,
  options: [name: string, text: string][],
  chosen: string,
  changed: (name: string) => void,
): { root: HTMLElement; set: (name: string | null) => void } {
  const buttons = options.map(([name, text]) =>
    el("button", { type: "button", onclick: () => (set(name), changed(name)) }, text),
  );
  const set = (name: string | null) =>
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(options[i]![0] === name)));
  set(chosen);
  const root = el("div", { class: "pf-choice", role: "group", "aria-label": label });
  root.append(el("span", {}, label), ...buttons);
  return { root, set };
}

/** A row of bars on one scale; bars beyond it are cut, their numbers are not. */
class Bars {
  readonly root: HTMLElement;
  private readonly columns: HTMLElement[];
  private readonly numbers: HTMLElement[] = [];
  private readonly checks: HTMLElement[] = [];

  constructor(private readonly panel: Panel, count: number, moved: (i: number, to: number) => void, chosen: (i: number) => void) {
    const [least, most] = panel.range;
    const labels = panel.labels ?? Array.from({ length: count }, (_, i) => panel.name + subscript(i));
    this.columns = labels.map((label) => {
      const shown = el("span", { class: "pf-number" });
      const check = el("span", { class: "pf-check" });
      this.numbers.push(shown);
      this.checks.push(check);
      const track = el("span", { class: "pf-track" }, el("span", { class: "pf-bar" }));
      return el("div", { class: "pf-column" }, track, el("span", { class: "pf-label" }, label), shown, check);
    });
    this.columns.forEach((column, i) => {
      column.style.setProperty("--zero", `${(100 * -least) / (most - least)}%`);
      column.addEventListener("pointerenter", () => chosen(i));
      column.addEventListener("pointerdown", () => chosen(i));
      if (panel.edit) this.slider(column, labels[i]!, i, moved, chosen);
    });
    const hint = panel.edit ? el("span", { class: "pf-hint" }, t.drag) : null;
    const bars = el("div", { class: "pf-bars" }, ...this.columns);
    const title = el("p", { class: "pf-title" }, panel.title, hint);
    this.root = el("div", { class: "pf-panel", role: "group", "aria-label": panel.title }, title, bars);
    this.root.dataset.name = panel.name;
  }

  private slider(
    column: HTMLElement,
    label: string,
    i: number,
    moved: (i: number, to: number) => void,
    chosen: (i: number) => void,
  ): void {
    const [least, most] = this.panel.range;
    const set = (to: number) => moved(i, Math.round(100 * Math.min(most, Math.max(least, to))) / 100);
    column.tabIndex = 0;
    column.setAttribute("role", "slider");
    column.setAttribute("aria-orientation", "vertical");
    column.setAttribute("aria-label", label);
    column.setAttribute("aria-valuemin", String(least));
    column.setAttribute("aria-valuemax", String(most));
    const track = column.querySelector<HTMLElement>(".pf-track")!;
    const follow = (event: PointerEvent) => {
      const box = track.getBoundingClientRect();
      set(most - ((event.clientY - box.top) / box.height) * (most - least));
    };
    track.addEventListener("pointerdown", (event) => {
      track.setPointerCapture(event.pointerId);
      follow(event);
    });
    track.addEventListener("pointermove", (event) => {
      if (track.hasPointerCapture(event.pointerId)) follow(event);
    });
    column.addEventListener("focus", () => chosen(i));
    column.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? LARGE_STEP : STEP;
      const now = Number(column.getAttribute("aria-valuenow"));
      const to: { [key: string]: number } = {
        ArrowUp: now + step,
        ArrowRight: now + step,
        ArrowDown: now - step,
        ArrowLeft: now - step,
        PageUp: now + LARGE_STEP,
        PageDown: now - LARGE_STEP,
        Home: least,
        End: most,
      };
      if (!(event.key in to)) return;
      event.preventDefault();
      set(to[event.key]!);
    });
  }

  show(values: number[], check: number[] | undefined, chosen: number): void {
    const [least, most] = this.panel.range;
    const share = (v: number) => (100 * (Math.min(most, Math.max(least, v)) - least)) / (most - least);
    this.columns.forEach((column, i) => {
      const value = values[i]!;
      const ends = [share(0), share(value)].sort((a, b) => a - b);
      column.style.setProperty("--from", `${ends[0]}%`);
      column.style.setProperty("--size", `${ends[1]! - ends[0]!}%`);
      column.classList.toggle("below", value < 0);
      column.classList.toggle("chosen", i === chosen);
      this.numbers[i]!.textContent = this.panel.edit ? value.toFixed(2).replace("-", "−") : short(value);
      this.checks[i]!.textContent = check ? short(check[i]!) : "";
      if (this.panel.edit) column.setAttribute("aria-valuenow", String(value));
    });
  }

  /** What a screen reader says of a bar, with what follows from it. */
  say(texts: string[]): void {
    this.columns.forEach((column, i) => column.setAttribute("aria-valuetext", texts[i]!));
  }
}

/** Make a figure of panels; it computes itself again whenever a bar moves. */
export function board(host: HTMLElement, made: Board): void {
  const copy = () => Object.fromEntries(Object.entries(made.start).map(([name, v]) => [name, [...v]]));
  let inputs: Values = copy();
  let chosen = 0;
  const first = { ...inputs, ...made.compute(inputs) };
  const bars = made.panels.map((panel) => {
    const moved = (i: number, to: number) => {
      inputs[panel.name]![i] = to;
      update();
    };
    const pick = (i: number) => {
      if (i !== chosen) {
        chosen = i;
        update();
      }
    };
    return new Bars(panel, first[panel.name]!.length, moved, pick);
  });
  const worked = el("p", { class: "pf-worked" });
  const checked = el("p", { class: "pf-note" });
  const reset = el("button", { type: "button" }, t.reset);
  reset.addEventListener("click", () => {
    inputs = copy();
    update();
  });

  function update(): void {
    const values: Values = { ...inputs, ...made.compute(inputs) };
    const checks: Values = {};
    let largest = 0;
    for (const [input, gradient] of Object.entries(made.gradients)) {
      checks[gradient] = differences((x) => made.loss({ ...inputs, [input]: x }), inputs[input]!);
      checks[gradient].forEach((d, i) => (largest = Math.max(largest, Math.abs(d - values[gradient]![i]!))));
    }
    made.panels.forEach((panel, at) => {
      bars[at]!.show(values[panel.name]!, checks[panel.name], chosen);
      const gradient = made.gradients[panel.name];
      if (!panel.edit) return;
      bars[at]!.say(
        values[panel.name]!.map((v, i) =>
          gradient ? `${v}; ${gradient}${subscript(i)} = ${short(values[gradient]![i]!)}` : String(v),
        ),
      );
    });
    worked.textContent = made.worked(values, chosen);
    checked.textContent = `${t.loss} L = ${made.lossText}. ${t.check(number(largest, 2))}`;
    made.after?.(values);
  }

  const controls = made.controls?.(update) ?? [];
  host.replaceChildren(
    el("div", { class: "pf-controls" }, ...controls, reset),
    el("div", { class: "pf-panels" }, ...bars.map(({ root }) => root)),
    worked,
    checked,
    el("p", { class: "pf-note" }, t.keys),
  );
  update();
}
