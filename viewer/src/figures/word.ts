// A word to edit: the pronunciation model runs in the page, and draws which letters each sound was
// written from. It can be opened in its own page on the same word.

import { bands } from "../bands.ts";
import type { Looking } from "../bands.ts";
import { el } from "../dom.ts";
import { Runner } from "../run/forward.ts";
import type { RunRecord } from "../run/model.ts";
import { Tokenizer } from "../run/tokens.ts";
import { t } from "./text.ts";

/** What the script of the model, next to its page, leaves for this figure. */
declare global {
  var pellucidModel: RunRecord | undefined;
}

/** A word as the model reads it; weights are the mean over the heads of the first cross-attention. */
interface Pronunciation extends Looking {
  answer: string;
}

export function word(host: HTMLElement): void {
  const page = host.dataset.page!;
  const input = el("input", { type: "text", value: "attention", maxlength: 20, "aria-label": t.word, autocapitalize: "off", autocomplete: "off", spellcheck: "false" });
  const answered = el("output", { class: "pf-answer" }, "…");
  const picture = el("div", { class: "pf-letters", "aria-hidden": "true" });
  const form = el("form", { class: "pf-word" }, input, answered);
  const inside = el("a", { class: "pf-inside" }, t.inside);
  const story = el("a", { class: "pf-story" }, t.story);
  const link = () => {
    const own = { text: input.value.trim() || "attention", lang: document.documentElement.lang.slice(0, 2) };
    inside.href = `${page}#${new URLSearchParams({ tab: "run", ...own })}`;
    story.href = `${page}#${new URLSearchParams({ story: "1", ...own })}`;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = inside.href;
  });
  link();
  const links = el("p", { class: "pf-links" }, story, inside);
  host.replaceChildren(form, picture, links, el("p", { class: "pf-note" }, t.symbols), el("p", { class: "pf-note" }, t.wordHint));

  let shown: Pronunciation | null = null;
  const redraw = () => picture.replaceChildren(shown ? bands(shown, picture.clientWidth) : "");
  input.addEventListener("input", link);
  const script = el("script", { src: host.dataset.model! });
  script.addEventListener("error", () => (answered.textContent = t.unloaded));
  script.addEventListener("load", () => {
    const pronounce = pronouncer(globalThis.pellucidModel!);
    const update = () => {
      shown = pronounce(input.value);
      answered.textContent = shown ? shown.answer : t.nothingToSay;
      redraw();
    };
    input.addEventListener("input", update);
    update();
    new ResizeObserver(redraw).observe(picture);
  });
  document.head.append(script);
}

/** Return what pronounces a word; null for one that the model cannot read. */
function pronouncer(record: RunRecord): (text: string) => Pronunciation | null {
  const runner = new Runner(record);
  const [source, target] = [record.tokenizers.source, record.tokenizers.target].map(
    (each) => new Tokenizer(each, record.unknown),
  ) as [Tokenizer, Tokenizer];
  const cross = record.stacks.decoder!.blocks.findIndex((block) => block.kind === "attention" && block.memory);
  return (text) => {
    const given = text.trim(); // capitals are for the tokenizer to read
    const ids = source.encode(given);
    if (ids.length === 0 || ids.length > record.longest.source) return null;
    const memory = runner.encode(ids);
    const answer = runner.greedy(memory);
    const { weights, keys } = runner.decode(memory, answer.ids).looks[cross]!;
    const rows = answer.ids.length + 1;
    const heads = weights.length / rows / keys;
    const mean = (l: number, s: number) => {
      let sum = 0;
      for (let h = 0; h < heads; h++) sum += weights[(h * rows + l) * keys + s]!;
      return sum / heads;
    };
    const units = source.units(given);
    return {
      letters: ids.map((id, s) => source.label(id, units[s])[0]),
      sounds: answer.ids.map((id) => target.label(id)[0]),
      answer: target.decode(answer.ids),
      chances: answer.ids.map((_, l) => Math.exp(-answer.losses[l]!)),
      weights: answer.ids.map((_, l) => ids.map((_, s) => mean(l, s))),
    };
  };
}
