// A word to edit, which opens the page that runs the pronunciation model on it.

import { el } from "../dom.ts";
import { t } from "./text.ts";

export function word(host: HTMLElement): void {
  const page = host.dataset.page!;
  const input = el("input", { type: "text", value: "pellucid", maxlength: 30, "aria-label": t.word, autocapitalize: "off", autocomplete: "off", spellcheck: "false" });
  const form = el("form", { class: "pf-word" }, input, el("button", { type: "submit" }, t.pronounce));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const said = new URLSearchParams({ tab: "run", text: input.value.trim() || "pellucid" });
    location.href = `${page}#${said}`;
  });
  host.replaceChildren(form, el("p", { class: "pf-note" }, t.wordHint));
}
