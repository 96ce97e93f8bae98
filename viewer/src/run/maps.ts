// The weights of one head, and beside them those of another head or text under the same cursor.

import { PLAIN, sees } from "../attention.ts";
import { css, readableOn, signedIndex, weightIndex } from "../colours.ts";
import type { Colours } from "../colours.ts";
import { clamp, el, labelled, number, percent, scrolling, segmented, token } from "../dom.ts";
import type { Label } from "../record.ts";
import { gradientsOf } from "./edit.ts";
import type { StackName } from "./model.ts";
import { sides } from "./names.ts";
import type { Card, Names } from "./names.ts";
import type { Reading, Trial } from "./trial.ts";

const BESIDES = ["none", "head", "text", "gradient"] as const;

/** One table: a head's weights in a reading, or the gradient of its scores. */
interface Pane {
  title: string;
  head: string;
  reading: Reading;
  of?: Reading & { text: string };
  /** Of the scores of all heads of the block, as `Looks` has its weights. */
  gradient?: Float64Array;
}

export function maps(trial: Trial, names: Names, colours: () => Colours): Card {
  const { t } = names;
  const heads = trial.sites.flatMap((site) =>
    site.block.kind === "network" ? [] : Array.from({ length: site.block.heads }, (_, h) => `${site.name}.${h}`),
  );
  const options = () => heads.map((head) => el("option", { value: head }, names.part(head)));
  const choice = el("select", { id: "try-head" }, ...options());
  choice.addEventListener("change", () => trial.choose({ look: choice.value }));
  const second = el("select", { id: "try-second", "aria-label": t.besides.head }, ...options());
  second.value = heads[(heads.indexOf(trial.look) + 1) % heads.length]!;
  const text = el("input", { id: "try-other", type: "text", "aria-label": t.otherText, value: trial.text, spellcheck: "false" });
  const besides = el("select", { id: "try-beside" }, ...BESIDES.map((name) => el("option", { value: name }, t.besides[name])));
  const modes = segmented(t.presses, [["cut", t.cut], ["pick", t.pick]], (mode) => trial.choose({ picks: mode === "pick" }));
  const readout = el("p", { class: "value", role: "status" });
  const body = el("div", { class: "try-maps" });
  let at: [number, number] = [0, 0];
  let beside: (Reading & { text: string }) | null = null;
  let panes: { read: (l: number, s: number) => string; rows: Label[]; columns: Label[] }[] = [];

  const point = (l: number, s: number) => {
    at = [l, s];
    for (const old of body.querySelectorAll(".at")) old.classList.remove("at");
    for (const cell of body.querySelectorAll(`[data-row="${l}"][data-column="${s}"]`)) cell.classList.add("at");
    readout.textContent = panes
      .filter(({ rows, columns }) => l < rows.length && s < columns.length)
      .map(({ read, rows, columns }) => `${rows[l]![0]} → ${columns[s]![0]}: ${read(l, s)}`)
      .join("  |  ");
  };
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const cell = event.target as HTMLElement;
    if (event.key === "Enter" || event.key === " ") cell.click();
    else if (move) {
      const [l, s] = [Number(cell.dataset["row"]) + move[0]!, Number(cell.dataset["column"]) + move[1]!];
      const next = cell.closest("table")!.querySelector<HTMLElement>(`[data-row="${l}"][data-column="${s}"]`);
      cell.tabIndex = next ? -1 : 0;
      if (next) next.tabIndex = 0;
      next?.focus();
    } else return;
    event.preventDefault();
  };

  const table = ({ title, head, reading, of, gradient }: Pane, first: boolean): HTMLElement => {
    const [stack, block, h] = head.split(".");
    const site = trial.sites.find(({ name }) => name === `${stack}.${block}`)!;
    const looks = (stack === "encoder" ? reading.memory.run : reading.run).looks[Number(block)];
    const [queries, keys] = sides(site).map((side) => {
      const labels = trial.labels(side, of);
      return side === "target" && (of ?? trial.whole!).answer.ended ? labels.slice(0, -1) : labels;
    }) as [Label[], Label[]];
    const rule = site.block.kind === "attention" ? trial.runner.rule(site.block, Number(h)) : PLAIN;
    const numbers = gradient ?? looks?.weights;
    const value = (l: number, s: number) =>
      !sees(l, s, keys.length, rule) ? null : (numbers?.[(Number(h) * queries.length + l) * keys.length + s] ?? 0);
    const read = (l: number, s: number) => {
      const x = value(l, s);
      return x === null ? "–" : gradient ? number(x, 3) : percent(x);
    };
    panes.push({ read, rows: queries, columns: keys });
    const [row, column] = [clamp(at[0], queries.length), clamp(at[1], keys.length)];
    const { weight, signed } = colours();
    const most = Math.max(...queries.flatMap((_, l) => keys.map((_, s) => Math.abs(value(l, s) ?? 0))));
    const cell = (l: number, s: number) => {
      const w = value(l, s);
      const place = { role: "gridcell", "data-row": l, "data-column": s, tabindex: l === row && s === column ? 0 : -1 };
      if (w === null) return el("td", { ...place, class: "ahead" });
      const edge = `${head}.${l}.${s}`;
      // The answer of another text is none of the one whose edges are cut.
      const on = of !== undefined || !trial.off.has(edge);
      const colour = gradient ? signed[signedIndex(w, most)]! : weight[weightIndex(w)]!;
      const edgeName = `${queries[l]![0]} → ${keys[s]![0]}: ${read(l, s)}`;
      const about = gradient ? edgeName : t.cell(queries[l]![0], keys[s]![0], `${Math.round(100 * w)}`, on);
      const { edit } = trial;
      const picked = first && trial.picks && edit.kind === "score" && String(edit.score) === `${l},${s}`;
      const click = () => {
        at = [l, s];
        if (of) point(l, s);
        else if (trial.picks || gradient) trial.choose({ look: head, edit: { ...edit, kind: "score", score: [l, s] } });
        else trial.toggle([edge]);
      };
      return el(
        "td",
        {
          ...place,
          class: `${on ? "" : "cut"}${picked ? " picked" : ""}`,
          "aria-label": about,
          title: about,
          style: `background:${css(colour)};color:${readableOn(colour)}`,
          onclick: click,
        },
        gradient ? (w === most || w === -most ? number(w, 2) : "") : on ? (w >= 0.095 ? `${Math.round(100 * w)}` : "") : "✕",
      );
    };
    const grid = el(
      "table",
      { class: "try-edges", role: "grid", "aria-label": title },
      el("thead", {}, el("tr", {}, el("td"), ...keys.map((key) => el("th", { scope: "col" }, token(key))))),
      el(
        "tbody",
        {},
        ...queries.map((query, l) =>
          el("tr", {}, el("th", { scope: "row" }, token(query)), ...keys.map((_, s) => cell(l, s))),
        ),
      ),
    );
    grid.addEventListener("keydown", press);
    const over = (event: Event) => {
      const { row, column } = (event.target as HTMLElement).closest<HTMLElement>("[data-row]")?.dataset ?? {};
      if (row !== undefined) point(Number(row), Number(column));
    };
    grid.addEventListener("pointerover", over);
    grid.addEventListener("focusin", over);
    return el(
      "div",
      { class: "try-map" },
      besides.value === "none" ? null : el("h3", {}, title),
      scrolling(title, grid),
    );
  };

  /** Of the answer's loss, or of the difference of the two logits that are compared. */
  const gradientPane = (): Pane => {
    const [stack, block] = trial.look.split(".");
    const between = trial.rather === null ? null : trial.decides;
    const fed = { ...trial.now!, answer: trial.whole!.answer, off: trial.off, counted: () => true, between };
    // Of an attention that is off there is none.
    const gradient = gradientsOf(trial.runner, fed).scores[stack as StackName][Number(block)] ?? new Float64Array();
    const title = t.gradientOf(between ? t.apart(...names.pair(between)) : "−log p");
    return { title, head: trial.look, reading: trial.now!, gradient };
  };

  const update = () => {
    choice.value = trial.look;
    modes.press(trial.picks ? "pick" : "cut");
    second.hidden = besides.value !== "head";
    text.hidden = besides.value !== "text";
    const answered = (text: string, { answer }: Reading) => `${text} → ${trial.target.decode(answer.ids)}`;
    const shown: Pane[] = [{ title: names.part(trial.look), head: trial.look, reading: trial.now! }];
    if (besides.value === "head") shown.push({ title: names.part(second.value), head: second.value, reading: trial.now! });
    if (besides.value === "text") {
      shown[0]!.title = answered(trial.piece, trial.whole!);
      if (beside?.text !== text.value) beside = trial.readingOf(text.value);
      if (beside) shown.push({ title: answered(beside.text, beside), head: trial.look, reading: beside, of: beside });
    }
    if (besides.value === "gradient") shown.push(gradientPane());
    const inside = [...body.querySelectorAll("table")].findIndex((one) => one.contains(document.activeElement));
    panes = [];
    body.replaceChildren(...shown.map((pane, i) => table(pane, i === 0)));
    point(...at);
    if (inside >= 0) body.querySelectorAll("table")[inside]?.querySelector<HTMLElement>("[tabindex='0']")?.focus();
  };
  besides.addEventListener("change", update);
  second.addEventListener("change", update);
  text.addEventListener("input", update);
  const card = el(
    "section",
    { class: "card" },
    el(
      "header",
      {},
      el("h2", {}, t.edges),
      el("span", { class: "together choices" }, el("label", { for: "try-head" }, t.ofHead), choice),
    ),
    el("p", { class: "hint" }, t.edgesHint),
    el(
      "div",
      { class: "choices try-modes" },
      modes.root,
      labelled(t.compare, besides),
      second,
      text,
    ),
    body,
    readout,
  );
  return [card, update];
}
