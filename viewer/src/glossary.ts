// Terms that explain themselves while the pointer or the focus is on them.

import { el } from "./dom.ts";
import { t } from "./text.ts";

const meaning = el("div", { id: "meaning", role: "tooltip", hidden: true });

/** The element that shows meanings; the page has one. */
export function glossary(): HTMLElement {
  document.onkeydown = (event) => {
    if (event.key === "Escape") meaning.hidden = true;
  };
  meaning.hidden = true;
  return meaning;
}

/** A text whose terms of the glossary, at their first place each, can be asked for a meaning. */
export function explained(text: string): (string | HTMLElement)[] {
  const found = Object.keys(t.glossary)
    .map((term) => ({ term, at: text.indexOf(term) }))
    .filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at || b.term.length - a.term.length);
  const parts: (string | HTMLElement)[] = [];
  let end = 0;
  for (const { term, at } of found) {
    if (at < end) continue; // inside a longer term
    const plural = text[at + term.length] === "s" ? "s" : "";
    parts.push(text.slice(end, at), explainedTerm(term, term + plural));
    end = at + term.length + plural.length;
  }
  return [...parts, text.slice(end)];
}

function explainedTerm(term: string, written: string): HTMLElement {
  const button = el("button", { type: "button", class: "term", "aria-describedby": "meaning" }, written);
  const show = () => {
    meaning.textContent = t.glossary[term]!;
    meaning.hidden = false;
    const box = button.getBoundingClientRect();
    const left = Math.min(box.left, innerWidth - meaning.offsetWidth - 8);
    meaning.style.left = `${Math.max(8, left) + scrollX}px`;
    meaning.style.top = `${box.bottom + 4 + scrollY}px`;
  };
  const hide = () => {
    meaning.hidden = true;
  };
  button.addEventListener("mouseenter", show);
  button.addEventListener("focus", show);
  button.addEventListener("click", show);
  button.addEventListener("mouseleave", hide);
  button.addEventListener("blur", hide);
  return button;
}
