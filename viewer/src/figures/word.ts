// A word to edit: the pronunciation model runs in the page, and draws which letters each sound was
// written from. It can be opened in its own page on the same word.

import { el, percent, svg } from "../dom.ts";
import { Runner } from "../run/forward.ts";
import type { RunRecord } from "../run/model.ts";
import { Tokenizer } from "../run/tokens.ts";
import { t } from "./text.ts";

/** Weights from here on are drawn. */
const SEEN = 0.04;
/** The picture's height and that of a row of letters; letters take this part of their column at most. */
const [HEIGHT, ROW, LARGE, FILLS] = [250, 46, 34, 0.8];

/** What the script of the model, next to its page, leaves for this figure. */
declare global {
  var pellucidModel: RunRecord | undefined;
}

/** A word as the model reads it, the sounds that it writes, and how much each looks at each letter. */
interface Pronunciation {
  letters: string[];
  sounds: string[];
  answer: string;
  chances: number[];
  /** (sounds, letters), the mean over the heads of the first cross-attention. */
  weights: number[][];
}

export function word(host: HTMLElement): void {
  const page = host.dataset.page!;
  const input = el("input", { type: "text", value: "attention", maxlength: 20, "aria-label": t.word, autocapitalize: "off", autocomplete: "off", spellcheck: "false" });
  const answered = el("output", { class: "pf-answer" }, "…");
  const picture = el("div", { class: "pf-letters", "aria-hidden": "true" });
  const form = el("form", { class: "pf-word" }, input, answered);
  const inside = el("a", { class: "pf-inside" }, t.inside);
  const link = () => {
    inside.href = `${page}#${new URLSearchParams({ tab: "run", text: input.value.trim() || "attention" })}`;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = inside.href;
  });
  link();
  host.replaceChildren(form, picture, el("p", { class: "pf-note" }, t.symbols), el("p", { class: "pf-note" }, t.wordHint, " ", inside));

  let shown: Pronunciation | null = null;
  const redraw = () => picture.replaceChildren(shown ? drawn(shown, picture.clientWidth) : "");
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

/** Letters above, sounds below, and between them a band as wide as the weight. */
function drawn({ letters, sounds, chances, weights }: Pronunciation, width: number): SVGElement {
  const columns = [letters, sounds].map((row) => Math.min(width / row.length, 2.6 * LARGE));
  const x = (row: 0 | 1, i: number) => width / 2 + (i + 0.5 - [letters, sounds][row]!.length / 2) * columns[row]!;
  const size = Math.min(LARGE, FILLS * Math.max(columns[0]!, columns[1]!));
  const [top, bottom] = [ROW, HEIGHT - ROW];
  const half = (top + bottom) / 2;
  const write = (row: 0 | 1, i: number, text: string, y: number, about: { [name: string]: string | number } = {}) =>
    svg("text", { x: x(row, i), y, "text-anchor": "middle", "font-size": size, ...about }, text);
  const bands = weights.flatMap((row, l) =>
    row.map((weight, s) => {
      if (weight < SEEN) return null;
      const [from, to] = [x(0, s), x(1, l)];
      const d = `M${from} ${top}C${from} ${half} ${to} ${half} ${to} ${bottom}`;
      const band = svg("path", { d, "stroke-width": weight * 0.55 * Math.min(...columns), "data-weight": weight });
      band.append(svg("title", {}, `${letters[s]} → ${sounds[l]}: ${percent(weight)}`));
      return band;
    }),
  );
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT },
    ...bands,
    ...letters.map((letter, s) => write(0, s, letter, ROW - 14)),
    ...sounds.map((sound, l) => write(1, l, sound, HEIGHT - 16, { class: "pf-sound", opacity: 0.35 + 0.65 * chances[l]! })),
  );
}
