// Edit a number: a score, a weight, or all weights against the gradient, and the loss along it.

import { PLAIN, span } from "../attention.ts";
import { clamp, el, labelled, number, offer, percent, segmented, select, token } from "../dom.ts";
import { Curve } from "./curve.ts";
import { Edited, gradientsOf, parameters, slope, step, stepOpens, stepRange } from "./edit.ts";
import type { Edit, Fed } from "./edit.ts";
import type { Gradients } from "./backward.ts";
import { furthest } from "./forward.ts";
import { nats, sides } from "./names.ts";
import type { Card, Names } from "./names.ts";
import { sum } from "./trial.ts";
import type { Choice, Trial } from "./trial.ts";

/** How far a score moves; a weight moves this many times the matrix's root mean square. */
const [SCORES, WEIGHTS] = [6, 8];
/** Milliseconds without a move. */
const RESTS = 250;
const KINDS = ["score", "weight", "step"] as const;

/** `moved` hears when what is edited has moved, and rests. */
export function editing(trial: Trial, names: Names, moved: () => void): Card {
  const { t } = names;
  const all = parameters(trial.runner.record);
  const set = (change: Partial<Choice>) => trial.choose({ edit: { ...trial.edit, by: null, ...change } });
  const options = KINDS.map((kind) => [kind, t.kinds[kind]] as const);
  const kinds = segmented(t.edit, options, (kind) => set({ kind }));
  const [query, queryChoice] = select("edit-query", t.query, (at) => set({ score: [at, key.selectedIndex] }));
  const [key, keyChoice] = select("edit-key", t.key, (at) => set({ score: [query.selectedIndex, at] }));
  const [where, whereChoice] = select("edit-where", t.where, (at) => {
    const first = all.findIndex((named) => named.where === places[at]);
    set({ matrix: first, cell: null });
  });
  const [matrix, matrixChoice] = select("edit-matrix", t.matrix, (at) => {
    set({ matrix: all.indexOf(all.filter((named) => named.where === all[trial.edit.matrix]!.where)[at]!), cell: null });
  });
  const field = (id: string, words: string) => {
    const made = el("input", { type: "number", id, min: 1 });
    made.addEventListener("change", () => {
      const { rows, columns } = all[trial.edit.matrix]!;
      set({ cell: [clamp(Number(row.value) - 1, rows), clamp(Number(column.value) - 1, columns)] });
    });
    return [made, labelled(words, made)] as const;
  };
  const [row, rowChoice] = field("edit-row", t.row);
  const [column, columnChoice] = field("edit-column", t.column);
  const most = el("button", { type: "button", onclick: () => trial.choose({ ...(trial.edit.kind === "score" ? { look: steepest() } : {}), edit: { ...trial.edit, score: null, cell: null, by: null } }) }, t.largest);
  const [loss, lossChoice] = select("edit-loss", t.lossOf, (at) => set({ whole: at === 0 }));
  const places = [...new Set(all.map((named) => named.where))];
  offer(where, places.map((place) => placeName(names, place)));
  const head = el("span", { class: "hint" });
  const ofScore = el("span", { class: "choices" }, head, queryChoice, keyChoice);
  const ofWeight = el("span", { class: "choices" }, whereChoice, matrixChoice, rowChoice, columnChoice);
  const said = el("p", { class: "edit-said" });
  const tokens = el("div", { class: "answer" });
  const other = el("p", { class: "hint" });
  const keep = el("button", {
    type: "button",
    onclick: () => {
      if (made && "parts" in made) trial.keep(made.parts, curve.by);
    },
  }, t.keep);
  const forget = el("button", { type: "button", class: "quiet", onclick: () => trial.forget() }, t.forget);
  let made: Edit | null = null;
  let known = 0;
  let opens = 0;
  let rests: ReturnType<typeof setTimeout>;
  let found: { of: string; fed: Fed; gradients: Gradients } | null = null;
  const curve = new Curve("edit-by", names.language, (by, { losses, loss, other: becomes }, base) => {
    const { answer, counted, between } = found!.fed;
    trial.edit = { ...trial.edit, by: by === opens ? null : by };
    clearTimeout(rests);
    rests = setTimeout(moved, RESTS);
    const along = t.along(letter(), nats3(base.loss), nats3(loss), number(known), nats3(base.loss + known * by));
    said.textContent = between ? `${along} ${t.asLikely(...pair(), number(Math.exp(loss), 3))}` : along;
    const ids = answer.ended ? [...answer.ids, trial.runner.record.end] : answer.ids;
    tokens.replaceChildren(
      ...ids.map((id, l) =>
        el(
          "span",
          { class: `said${counted(l) ? "" : " out"}`, style: `--p:${(100 * Math.exp(-losses[l]!)).toFixed(1)}%` },
          token(trial.target.label(id)),
          " ",
          el("span", { class: "p" }, `${percent(Math.exp(-base.losses[l]!))} → ${percent(Math.exp(-losses[l]!))}`),
        ),
      ),
    );
    const same = trial.expected === "" ? t.same : t.becomes(trial.expected);
    other.textContent = becomes ? t.becomes(trial.target.decode(becomes.ids)) : same;
  });
  const pair = () => names.pair(trial.decides);
  const letter = () => (trial.rather === null ? "L" : t.apart(...pair()));
  /** The head with the largest gradient of a score, of all heads. */
  const steepest = () => {
    let [best, look] = [-1, trial.look];
    for (const { name, stack, block } of trial.sites) {
      const d = found!.gradients.scores[stack][Number(name.split(".")[1])];
      if (!d || block.kind !== "attention") continue;
      const at = furthest(d);
      if (Math.abs(d[at]!) > best) [best, look] = [Math.abs(d[at]!), `${name}.${Math.floor(at / (d.length / block.heads))}`];
    }
    return look;
  };
  let before = "";
  const update = () => {
    const { edit, rather } = trial;
    const of = JSON.stringify([trial.readings, trial.text, [...trial.off], (edit.whole && rather === null) || trial.token, rather]);
    const whole = `${of}${JSON.stringify([{ ...edit, by: null }, trial.look])}`;
    if (whole === before) return;
    const by = before === "" ? edit.by : null; // of a page that is opened or built anew
    before = whole;
    if (found?.of !== of) {
      const { memory, run } = trial.now!;
      const counted = edit.whole ? () => true : (l: number) => l === trial.token;
      const between = rather === null ? null : trial.decides;
      const fed: Fed = { memory, run, answer: trial.whole!.answer, off: trial.off, counted, between };
      found = { of, fed, gradients: gradientsOf(trial.runner, fed) };
    }
    const { fed, gradients } = found;
    kinds.press(edit.kind);
    ofScore.hidden = edit.kind !== "score";
    ofWeight.hidden = edit.kind !== "weight";
    most.hidden = edit.kind === "step";
    const chosen = trial.target.label(fed.answer.ids[trial.token] ?? trial.runner.record.end);
    if (rather === null) offer(loss, [t.ofWhole, t.ofToken(chosen[0])], edit.whole ? 0 : 1);
    else offer(loss, [t.apart(...pair())], 0);
    loss.disabled = rather !== null;
    const { made: now, range, name } = { score, weight, step: steps }[edit.kind](gradients, fed);
    made = now;
    known = slope(now, gradients, fed);
    keep.hidden = edit.kind === "score";
    forget.hidden = !trial.taught;
    opens = edit.kind === "step" ? stepOpens(range) : 0;
    const symbol = edit.kind === "step" ? "η" : "δ";
    void curve.show({ edited: new Edited(trial.runner, fed, now), slope: known, range, opens: by === null ? opens : Math.max(range[0], Math.min(range[1], by)), symbol, name, letter: letter() });
  };
  type Made = { made: Edit; range: [number, number]; name: string };
  const score = ({ scores }: Gradients, { memory, run }: Fed): Made => {
    const { edit, look } = trial;
    const [stack, block, h] = look.split(".") as ["encoder" | "decoder", string, string];
    const looks = (stack === "encoder" ? memory.run : run).looks[Number(block)];
    const ofHead = looks ? looks.z.count * looks.keys : 0;
    const d = scores[stack][Number(block)]?.subarray(Number(h) * ofHead, (Number(h) + 1) * ofHead);
    const at = d && looks ? furthest(d) : 0;
    const chosen = edit.score ?? [Math.floor(at / (looks?.keys ?? 1)), at % (looks?.keys ?? 1)];
    const site = trial.sites.find((each) => look.startsWith(`${each.name}.`))!;
    const [rows, columns] = sides(site).map((side) => trial.labels(side).map(([text]) => text)) as [string[], string[]];
    if (site.stack === "decoder" && trial.whole!.answer.ended) {
      rows.pop();
      if (columns.length > rows.length && sides(site)[1] === "target") columns.pop();
    }
    const l = clamp(chosen[0], rows.length);
    const rule = site.block.kind === "attention" ? trial.runner.rule(site.block, Number(h)) : PLAIN;
    const [, end] = span(l, columns.length, rule);
    const s = clamp(chosen[1], end);
    offer(query, rows.map((text, i) => `${i + 1} ${text}`), l);
    offer(key, columns.slice(0, end).map((text, i) => `${i + 1} ${text}`), s);
    head.textContent = names.part(look);
    const made = { score: { head: look, query: l, key: s } };
    return { made, range: [-SCORES, SCORES], name: `${names.part(look)} · ${t.edge(rows[l]!, columns[s]!)}` };
  };
  const weight = ({ tensors }: Gradients): Made => {
    const named = all[trial.edit.matrix]!;
    const { values, columns } = trial.runner.tensors[named.tensor]!;
    const from = named.first * columns;
    const numbers = values.subarray(from, from + named.rows * columns);
    const at = trial.edit.cell
      ? trial.edit.cell[0] * columns + trial.edit.cell[1]
      : furthest(tensors[named.tensor]!.subarray(from, from + numbers.length));
    const [r, c] = [Math.floor(at / columns), at % columns];
    where.selectedIndex = places.indexOf(named.where);
    const here = all.filter((each) => each.where === named.where);
    offer(matrix, here.map(({ symbol, rows, columns }) => `${symbol} (${rows} × ${columns})`), here.indexOf(named));
    [row.value, row.max, column.value, column.max] = [r + 1, named.rows, c + 1, columns].map(String) as [string, string, string, string];
    const size = WEIGHTS * Math.sqrt(sum([...numbers].map((x) => x * x)) / numbers.length);
    const name = `${placeName(names, named.where)} · ${named.symbol}[${r + 1}, ${c + 1}] = ${number(numbers[at]!)}`;
    return { made: { parts: [{ tensor: named.tensor, at: from + at, by: [1] }] }, range: [-size, size], name };
  };
  const steps = (gradients: Gradients, fed: Fed): Made => {
    const made = { parts: step(gradients) };
    return { made, range: stepRange(new Edited(trial.runner, fed, made), slope(made, gradients, fed)), name: t.kinds.step };
  };
  const card = el(
    "section",
    { class: "card try-edit" },
    el("h2", {}, t.edit),
    el("p", { class: "hint" }, t.editHint),
    el(
      "div",
      { class: "choices" },
      kinds.root,
      lossChoice,
    ),
    el("div", { class: "edit-number" }, ofScore, ofWeight, most),
    el("div", { class: "edit-both" }, curve.root, el("div", {}, said, el("h3", {}, t.probabilities), tokens, other, el("div", { class: "choices" }, keep, forget))),
  );
  return [card, update];
}

function placeName(names: Names, where: string): string {
  const { t } = names;
  if (where === "output" || where === "head") return t[where === "head" ? "transform" : "output"];
  const [stack, block] = where.split(".") as ["encoder" | "decoder", string];
  if (block === "embed") return `${t.stacks[stack]} · ${t.embedding}`;
  if (block === "norm") return `${t.stacks[stack]} · ${t.finalNorm}`;
  return names.part(where);
}

function nats3(x: number): string {
  return x >= 0.1 ? nats(x) : number(Math.abs(x) < 1e-9 ? 0 : x, 3);
}
