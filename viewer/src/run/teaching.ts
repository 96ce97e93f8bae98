// Teach the model one answer by steps against its gradient, and see what else has changed.

import { el, scrolling } from "../dom.ts";
import { nats } from "./names.ts";
import type { Card, Names } from "./names.ts";
import type { Trial } from "./trial.ts";

/** Other texts that are asked before and after. */
const OTHERS = 20;

/** Texts that a lesson may have reached: its own without its end, and without each of its letters. */
function near(text: string): string[] {
  const letters = Array.from(text);
  const ends = letters.map((_, i) => letters.slice(0, i).join("")).reverse();
  const gaps = letters.map((_, i) => letters.filter((_, at) => at !== i).join(""));
  return [...new Set([...gaps, ...ends])].map((each) => each.trim()).filter((each) => each !== "" && each !== text);
}

export function teaching(trial: Trial, names: Names, links: boolean): Card {
  const { t } = names;
  const learn = el("button", { type: "button", id: "try-learn", onclick: () => trial.learn([{ text: trial.piece, right: trial.expected }]) }, t.learn);
  const forget = el("button", { type: "button", class: "quiet", onclick: () => trial.forget() }, t.forget);
  const done = el("ol", { class: "try-lessons" });
  const field = el("input", { id: "try-others", type: "text", spellcheck: "false", value: trial.others, placeholder: t.othersHint });
  const said = el("p", { role: "status" });
  const body = el("tbody");
  const head = t.othersColumns.map((words) => el("th", { scope: "col" }, words));
  const others = el(
    "div",
    {},
    el("div", { class: "live-line" }, el("label", { for: "try-others" }, t.others), field),
    said,
    scrolling(t.others, el("table", { class: "try-others" }, el("thead", {}, el("tr", {}, ...head)), body)),
  );
  const link = el("p", { class: "hint" }, t.linked);
  let asked = "";
  let turn = 0;
  /** Ask one text after another, and give way to the page in between. */
  const ask = async (texts: string[]) => {
    const now = ++turn;
    body.replaceChildren();
    let changed = 0;
    for (const [i, text] of texts.entries()) {
      said.textContent = t.othersChanged(changed, i, texts.length);
      await new Promise((next) => setTimeout(next));
      if (now !== turn) return;
      const [before, after] = [trial.untaught(() => trial.answerTo(text)), trial.answerTo(text)];
      const row = el("tr", before === after ? {} : { class: "other" }, ...[text, before, after].map((words) => el("td", { lang: "" }, words)));
      if (before === after) body.append(row);
      else body.insertBefore(row, body.children[changed++] ?? null);
    }
    said.textContent = t.othersChanged(changed, texts.length, texts.length);
  };
  const update = () => {
    learn.disabled = trial.expected === "";
    forget.hidden = others.hidden = !trial.taught;
    link.hidden = !links || !trial.linked || trial.lessons.length === 0;
    done.replaceChildren(
      ...trial.lessons.map(({ text, right, losses }) => el("li", {}, el("span", { lang: "" }, `${text} → ${right}`), ` · ${t.lesson(losses.map(nats).join(" → "))}`)),
    );
    const own = trial.others.split(/[,\n]/).map((text) => text.trim()).filter((text) => text !== "");
    const texts = (own.length > 0 ? own : near(trial.lessons.at(-1)?.text ?? trial.piece)).slice(0, OTHERS);
    const key = trial.taught ? JSON.stringify([trial.changes, texts]) : "";
    if (key === asked) return;
    asked = key;
    if (key !== "") void ask(texts);
  };
  field.addEventListener("change", () => {
    trial.others = field.value;
    update();
  });
  const card = el(
    "section",
    { class: "card try-teaching" },
    el("h2", {}, t.teach),
    el("p", { class: "hint" }, t.teachHint),
    el("div", { class: "choices" }, learn, forget),
    done,
    others,
    link,
  );
  return [card, update];
}
