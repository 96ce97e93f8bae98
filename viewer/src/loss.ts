// The gradient of the logits: p − y of the most likely tokens, each with a finite difference.

import { el, number, token, worked } from "./dom.ts";
import type { Step } from "./record.ts";
import { t } from "./text.ts";

const STEP = 1e-4;
const SHOWN = 5;

/** dℓ = p − y, and the loss with one logit moved: log(1 + p (e^ε − 1)) − y ε. */
export function lossTable(step: Step): HTMLElement {
  const rows = step.candidates.slice(0, SHOWN).map(([text, kind, p]) => ({
    label: [text, kind] as const,
    p,
    y: Number(text === step.label[0] && p === step.probability),
  }));
  if (rows.every(({ y }) => y === 0)) {
    rows.push({ label: [step.label[0], step.label[1]], p: step.probability, y: 1 });
  }
  const loss = (p: number, y: number, moved: number) =>
    Math.log1p(p * Math.expm1(moved)) - y * moved;
  return el(
    "table",
    { class: "losses" },
    el("thead", {}, el("tr", {}, ...t.lossTable.map((name) => el("th", { scope: "col" }, name)))),
    el(
      "tbody",
      {},
      ...rows.map(({ label, p, y }) => {
        const { texts, result } = worked([p], (x) => x - y);
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, token([...label])),
          el("td", {}, texts[0]!),
          el("td", {}, String(y)),
          el("td", { class: "by-hand" }, result),
          el("td", {}, number((loss(p, y, STEP) - loss(p, y, -STEP)) / (2 * STEP))),
        );
      }),
    ),
  );
}
