// Small helpers to make elements and to write numbers.

import type { Label } from "./record.ts";

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

/** How far a region can still be scrolled, in pixels. */
export interface Hidden {
  down: number;
  right: number;
}

/** Put a line under a region that scrolls, which says what is out of view and else is hidden. */
export function announcing(region: HTMLElement, words: (hidden: Hidden) => string): HTMLElement {
  const more = el("p", { class: "more", "aria-hidden": "true" });
  const update = () => {
    const down = region.scrollHeight - region.clientHeight - region.scrollTop;
    const right = region.scrollWidth - region.clientWidth - region.scrollLeft;
    more.classList.toggle("none", Math.max(down, right) < 2);
    more.textContent = words({ down, right });
  };
  region.addEventListener("scroll", update);
  const watch = new ResizeObserver(update);
  watch.observe(region);
  for (const child of region.children) watch.observe(child);
  return el("div", { class: "announcing" }, region, more);
}

/** Write a number with four digits, small ones as powers of ten, with a true minus sign. */
export function number(x: number): string {
  const size = Math.abs(x);
  let text: string;
  if (size === 0) text = "0";
  else if (size >= 1e4 || size < 5e-4) text = x.toExponential(1).replace("e+", "e");
  else text = x.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 4);
  return text.replaceAll("-", "−");
}

/** A number in a product or a difference: one below zero in brackets. */
export function signed(x: number): string {
  return x < 0 ? `(${number(x)})` : number(x);
}

export function percent(p: number): string {
  if (p >= 0.9995) return "100 %";
  return p >= 0.001 ? `${(100 * p).toFixed(1)} %` : p > 0 ? "< 0.1 %" : "0 %";
}

/** Move within 0 … count − 1. */
export function clamp(at: number, count: number): number {
  return Math.max(0, Math.min(count - 1, at));
}
