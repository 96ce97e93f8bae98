// Attention over five tokens: a mask to paint, the scale to move, the weights and the scores' gradient.

import { el, number, worked } from "../dom.ts";
import { choice, range, short, subscript } from "./board.ts";
import * as m from "./maths.ts";
import { t } from "./text.ts";

const SIZE = 5;
const WIDTH = 16;
const PLACES = Array.from({ length: SIZE }, (_, i) => i);
const MASKS: { [name: string]: (l: number, s: number) => boolean } = {
  none: () => true,
  causal: (l, s) => s <= l,
  window: (l, s) => Math.abs(l - s) < 2,
};

/** Numbers of mean 0 and variance 1, the same each time (Box-Muller over a linear congruence). */
function normal(seed: number): m.Row[] {
  let state = seed;
  const uniform = () => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) + 0.5) / 2 ** 32;
  const one = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  return PLACES.map(() => Array.from({ length: WIDTH }, one));
}

const [Q, K, V, DZ] = [normal(11), normal(5), normal(7), normal(17).map((row) => row.map((v) => v / 8))];

/** A map of buttons, one of which Tab reaches; arrow keys move between them. */
class CellMap {
  readonly root: HTMLElement;
  readonly cells: HTMLElement[][];

  constructor(title: string, chosen: (l: number, s: number) => void) {
    this.cells = PLACES.map((l) =>
      PLACES.map((s) => {
        const cell = el("button", { type: "button", tabindex: l + s ? -1 : 0 });
        cell.addEventListener("focus", () => chosen(l, s));
        cell.addEventListener("pointerenter", () => chosen(l, s));
        cell.addEventListener("keydown", (event) => {
          const [dl, ds] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
          if (dl === undefined) return;
          event.preventDefault();
          this.cells[l + dl]?.[s + ds!]?.focus();
        });
        return cell;
      }),
    );
    const head = el("tr", {}, el("td"), ...PLACES.map((s) => el("th", { scope: "col" }, t.tokens[s]!)));
    const rows = PLACES.map((l) =>
      el("tr", {}, el("th", { scope: "row" }, t.tokens[l]!), ...this.cells[l]!.map((cell) => el("td", {}, cell))),
    );
    const table = el("table", { class: "pf-map" }, el("caption", {}, title), head, ...rows);
    this.root = el("div", { class: "pf-panel" }, table);
  }

  choose(l: number, s: number): void {
    this.cells.flat().forEach((cell, i) => {
      const here = i === SIZE * l + s;
      cell.tabIndex = here ? 0 : -1;
      cell.classList.toggle("chosen", here);
    });
  }
}

export function attention(host: HTMLElement): void {
  const root = 1 / Math.sqrt(WIDTH);
  let scale = host.dataset.start === "unscaled" ? 1 : root;
  const preset = host.dataset.start === "causal" ? "causal" : "none";
  let allowed = PLACES.map((l) => PLACES.map((s) => MASKS[preset]!(l, s)));
  let chosen: [number, number] = [2, 1];
  let paint: boolean | null = null;

  const choose = (l: number, s: number) => {
    chosen = [l, s];
    update();
  };
  const weights = new CellMap(t.weightMap, choose);
  const gradients = new CellMap(t.gradientMap, choose);
  const summary = el("p", { class: "pf-note" });
  const work = el("p", { class: "pf-worked" });
  const check = el("p", { class: "pf-note" });

  const set = (l: number, s: number, to: boolean) => {
    allowed[l]![s] = to;
    masks.set(null);
    choose(l, s);
  };
  weights.cells.forEach((row, l) =>
    row.forEach((cell, s) => {
      cell.addEventListener("pointerdown", (event) => {
        cell.releasePointerCapture(event.pointerId); // so that a finger's move enters other cells
        paint = !allowed[l]![s];
        set(l, s, paint);
      });
      cell.addEventListener("pointerenter", () => {
        if (paint !== null) set(l, s, paint);
      });
      cell.addEventListener("click", (event) => {
        if (event.detail === 0) set(l, s, !allowed[l]![s]); // by the keyboard or a screen reader
      });
    }),
  );
  addEventListener("pointerup", () => (paint = null));
  addEventListener("pointercancel", () => (paint = null));

  const masks = choice(
    t.mask,
    Object.keys(MASKS).map((name) => [name, t.masks[name]!]),
    preset,
    (name) => {
      allowed = PLACES.map((l) => PLACES.map((s) => MASKS[name]!(l, s)));
      update();
    },
  );
  const free = range(t.free, [0, 2, 0.01], scale, (value) => {
    scale = value;
    scales.set(null);
    update();
  });
  const known: { [name: string]: number } = { root, d: 1 / WIDTH, one: 1 };
  const scales = choice(
    t.scale,
    [["root", "1/√d"], ["d", "1/d"], ["one", "1"]],
    scale === 1 ? "one" : "root",
    (name) => {
      scale = known[name]!;
      free.set(scale);
      update();
    },
  );

  /** Σ dZ ⊙ Z of one query's scores: the loss, as far as they have a part in it. */
  const loss = (scores: m.Row, l: number) => {
    const w = m.softmax(scores);
    return m.sum(V.map((value, s) => w[s]! * m.dot(DZ[l]!, value)));
  };

  function update(): void {
    const { scores, weights: w } = m.attention(Q, K, V, scale, allowed);
    const { dw, da } = m.attentionBackward(DZ, Q, K, V, scale, w);
    const [l, s] = chosen;
    PLACES.forEach((i) =>
      PLACES.forEach((j) => {
        const place = t.cell(t.tokens[i]!, t.tokens[j]!);
        const [weight, gradient] = [weights.cells[i]![j]!, gradients.cells[i]![j]!];
        weight.classList.toggle("forbidden", !allowed[i]![j]);
        gradient.classList.toggle("forbidden", !allowed[i]![j]);
        weight.textContent = allowed[i]![j] ? w[i]![j]!.toFixed(2) : "×";
        gradient.textContent = allowed[i]![j] ? da[i]![j]!.toFixed(2).replace("-", "−") : "×";
        weight.setAttribute("aria-pressed", String(!allowed[i]![j]));
        weight.setAttribute("aria-label", `${place}: ${allowed[i]![j] ? weight.textContent : t.forbidden}`);
        gradient.setAttribute("aria-label", `${place}: ${allowed[i]![j] ? gradient.textContent : t.forbidden}`);
        weight.style.setProperty("--share", String(Math.round(75 * w[i]![j]!)));
        gradient.style.setProperty("--share", String(Math.min(75, Math.round(250 * Math.abs(da[i]![j]!)))));
        gradient.classList.toggle("below", da[i]![j]! < 0);
        gradient.classList.toggle("above", da[i]![j]! > 0);
      }),
    );
    weights.choose(l, s);
    gradients.choose(l, s);
    const mean = (values: number[]) => m.sum(values) / values.length;
    const entropy = mean(w.map((row) => -m.sum(row.map((p) => (p > 0 ? p * Math.log(p) : 0)))));
    const seen = da.flat().filter((_, i) => allowed[Math.floor(i / SIZE)]![i % SIZE]);
    summary.textContent = `${t.summary(
      short(entropy),
      short(mean(w.map((row) => Math.max(...row)))),
      short(seen.length ? mean(seen.map(Math.abs)) : 0),
    )} ${t.saturated}`;
    const at = subscript(l) + subscript(s);
    const place = `${t.cell(t.tokens[l]!, t.tokens[s]!)}: `;
    if (!allowed[l]!.some(Boolean)) {
      work.textContent = place + t.dead;
      check.textContent = "";
    } else if (!allowed[l]![s]) {
      work.textContent = `${place}A${at} = −∞, W${at} = 0, dA${at} = 0`;
      check.textContent = "";
    } else {
      const numbers = [w[l]![s]!, dw[l]![s]!, m.dot(w[l]!, dw[l]!)];
      const { texts, result } = worked(numbers, (a, b, c) => a! * (b! - c!));
      work.textContent = `${place}dA${at} = W (dW − Σ W dW) = ${texts[0]} × (${texts[1]} − ${texts[2]}) = ${result}`;
      const central = m.differences(([a]) => loss(scores[l]!.map((v, j) => (j === s ? a! : v)), l), [scores[l]![s]!]);
      check.textContent = `L = Σ dZ ⊙ Z; ${t.difference(`A${at}`, number(central[0]!))}`;
    }
  }

  const note = el("p", { class: "pf-note" }, `d = ${WIDTH}; ${t.queryKey}. ${t.paint}`);
  host.replaceChildren(
    el("div", { class: "pf-controls" }, masks.root, scales.root, free.root),
    el("div", { class: "pf-panels" }, weights.root, gradients.root),
    work,
    check,
    summary,
    note,
  );
  update();
}
