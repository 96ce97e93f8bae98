// Small helpers to make elements and to write numbers.

import type { Label } from "./record.ts";
import { t } from "./text.ts";

type Attributes = { [name: string]: string | number | boolean | EventListener | undefined };
type Child = Node | string | null;

/** Make an element: `onclick` and the like are listeners, true and false set flags. */
export function el<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  setAttributes(element, attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function svg(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  setAttributes(element, attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
}

/** A fragment of fixed markup, such as an equation; never of a reader's text. */
export function markup(text: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content;
}

export function token(label: Label): HTMLElement {
  return el("span", { class: `token ${label[1]}` }, label[0]);
}

/** A control with its name before it. */
export function labelled(words: string, control: HTMLElement): HTMLElement {
  return el("span", { class: "together" }, el("label", { for: control.id }, words), control);
}

/** A list to choose from, with its name before it. */
export function select(
  id: string,
  words: string,
  chosen: (index: number) => void,
): [list: HTMLSelectElement, root: HTMLElement] {
  const list = el("select", { id });
  list.addEventListener("change", () => chosen(list.selectedIndex));
  return [list, labelled(words, list)];
}

/** Give a list these choices. */
export function offer(list: HTMLSelectElement, choices: readonly string[], chosen = list.selectedIndex): void {
  list.replaceChildren(...choices.map((text) => el("option", {}, text)));
  list.selectedIndex = chosen;
}

export interface Segmented<T> {
  root: HTMLElement;
  buttons: Map<T, HTMLButtonElement>;
  press(value: string): void;
}

/** Buttons side by side, of which one is pressed. */
export function segmented<T extends string>(
  name: string,
  options: readonly (readonly [value: T, ...inside: Child[]])[],
  choose: (value: T) => void,
): Segmented<T> {
  const buttons = new Map(
    options.map(([value, ...inside]) => [
      value,
      el("button", { type: "button", onclick: () => choose(value) }, ...inside),
    ]),
  );
  const root = el("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons.values());
  const press = (value: string) => {
    for (const [own, button] of buttons) button.setAttribute("aria-pressed", String(own === value));
  };
  return { root, buttons, press };
}

/** Mark the chosen one of a list, the only one that Tab reaches; the focus goes with it. */
export function choose(all: Iterable<Element>, chosen: number): void {
  const list = [...all] as HTMLElement[];
  const focused = list.some((one) => one === document.activeElement);
  list.forEach((one, i) => {
    one.setAttribute("aria-selected", String(i === chosen));
    one.tabIndex = i === chosen ? 0 : -1;
  });
  if (focused) list[chosen]?.focus();
}

/** Arrow keys, Home and End move within a list; `now` is where, of how many. */
export function moving(list: HTMLElement, now: () => [at: number, count: number], move: (to: number) => void): void {
  list.addEventListener("keydown", (event) => {
    const [at, count] = now();
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(clamp(to, count));
  });
}

/** A line for a text of the reader's, which no browser corrects. */
export function textField(id: string, value: string, more: Attributes): HTMLInputElement {
  return el("input", { id, value, type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", ...more });
}

/** `read` hears what is typed in a field when no key has come for a while, and of Hangul when its letters are joined. */
export function hears(field: HTMLInputElement, read: (text: string) => void): HTMLInputElement {
  let waits: ReturnType<typeof setTimeout>;
  const now = () => read(field.value);
  field.addEventListener("input", (event) => {
    clearTimeout(waits);
    if (!(event as InputEvent).isComposing) waits = setTimeout(now, PAUSE);
  });
  field.addEventListener("compositionend", now);
  return field;
}

/** How far a region can still be scrolled, in pixels. */
interface Hidden {
  down: number;
  right: number;
}

/** Put a line under a region that scrolls, which says what is out of view; without such there is no line. */
export function announcing(region: HTMLElement, words: (hidden: Hidden) => string): HTMLElement {
  const more = el("p", { class: "more", "aria-hidden": "true" });
  const update = () => {
    const [high, wide] = [region.scrollHeight - region.clientHeight, region.scrollWidth - region.clientWidth];
    const [down, right] = [high - region.scrollTop, wide - region.scrollLeft];
    more.hidden = Math.max(high, wide) < 2;
    more.classList.toggle("none", Math.max(down, right) < 2);
    more.textContent = words({ down, right });
  };
  region.addEventListener("scroll", update);
  const watch = new ResizeObserver(update);
  watch.observe(region);
  for (const child of region.children) watch.observe(child);
  return el("div", { class: "announcing" }, region, more);
}

/** "→ more": where a region goes on. */
export const onward = ({ right }: Hidden) => `${right < 2 ? "↓" : "→"} ${t.more}`;

/** A table in a region of its own, which scrolls where it is wider or higher than its place, and says so. */
export function scrolling(name: string, table: HTMLElement): HTMLElement {
  return announcing(el("div", { class: "try-scroll", role: "region", "aria-label": name, tabindex: 0 }, table), onward);
}

/** Milliseconds after a key. */
const PAUSE = 250;
const DIGITS = 4;
const MOST_DIGITS = 15;

/** Write a number with four digits, very small ones as powers of ten, with a true minus sign. */
export function number(x: number, digits = DIGITS): string {
  const size = Math.abs(x);
  if (size === 0) return "0";
  const plain = size < 1e4 && size >= 1e-3;
  const text = plain ? x.toPrecision(digits) : x.toExponential(digits - 1);
  return text.replace("e+", "e").replaceAll("-", "−");
}

/** A number in a product or a difference: one below zero in brackets. */
export function signed(x: number, digits = DIGITS): string {
  return x < 0 ? `(${number(x, digits)})` : number(x, digits);
}

/** Write the numbers of a calculation with as many digits as its result needs to follow from them. */
export function worked(
  numbers: number[],
  compute: (...numbers: number[]) => number,
): { texts: string[]; result: string } {
  const result = number(compute(...numbers));
  let digits = DIGITS;
  const follows = () => compute(...numbers.map((x) => Number(x.toPrecision(digits))));
  while (digits < MOST_DIGITS && number(follows()) !== result) digits++;
  return { texts: numbers.map((x) => signed(x, digits)), result };
}

/** "a·b + c·d + rest (n more terms) = result", in brackets after a factor. */
export function writtenSum(
  shown: [number, number][],
  rest: number,
  more: number,
  factor: number | null = null,
): string {
  const numbers = [...(factor === null ? [] : [factor]), ...shown.flat()];
  const first = factor === null ? 0 : 1;
  const compute = (...n: number[]) => {
    let sum = more > 0 ? n.at(-1)! : 0;
    for (let i = 0; i < shown.length; i++) sum += n[first + 2 * i]! * n[first + 2 * i + 1]!;
    return factor === null ? sum : n[0]! * sum;
  };
  const { texts, result } = worked(more > 0 ? [...numbers, rest] : numbers, compute);
  const terms = shown.map((_, i) => `${texts[first + 2 * i]}·${texts[first + 2 * i + 1]}`);
  if (more > 0) terms.push(t.moreTerms(texts.at(-1)!, more));
  const sum = terms.join(" + ");
  return `${factor === null ? sum : `${texts[0]} × (${sum})`} = ${result}`;
}

export function percent(p: number): string {
  if (p >= 0.9995) return "100 %";
  return p >= 0.001 ? `${(100 * p).toFixed(1)} %` : p > 0 ? "< 0.1 %" : "0 %";
}

/** Move within 0 … count − 1. */
export function clamp(at: number, count: number): number {
  return Math.max(0, Math.min(count - 1, at));
}
