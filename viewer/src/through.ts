// The backward pass through what is no attention: norms, feed-forward networks, the loss. Its
// numbers and finite differences were computed when the record was made.

import { el, labelled, markup, number, segmented, worked, writtenSum } from "./dom.ts";
import type { Segmented } from "./dom.ts";
import { equation as equationOf } from "./equations.ts";
import { explained } from "./glossary.ts";
import { lossTable } from "./loss.ts";
import type { Model } from "./model.ts";
import { unpackHead } from "./record.ts";
import type { Derivation, Derived } from "./record.ts";
import { vectors } from "./strips.ts";
import { t } from "./text.ts";
import { nameOf } from "./part.ts";

type Code = (name: string) => HTMLElement | null;
/** Names of gradients as they are written. */
const WRITTEN: { [name: string]: string } = {
  dweight: "dγ",
  dbias: "dβ",
  dW1: "dW₁",
  dlog_p: "dlog p",
  dlogits: "dℓ",
};
const ROLES = ["norm", "feed_forward", "output"] as const;

export class Through {
  /** What the backward pass goes through: the attention in view, or one of the derivations. */
  readonly chooser: HTMLElement;
  readonly root = el("div", { class: "steps" });
  private readonly select = el("select", { id: "through-choice" });
  private readonly roles: Segmented<string>;

  constructor(private readonly model: Model, private readonly code: Code) {
    const all = this.all;
    const roles = ROLES.filter((role) => all.some((one) => one.role === role));
    this.roles = segmented<string>(
      t.through.choose,
      [["attention", t.through.attention], ...roles.map((role) => [role, t.through.roles[role]!] as const)],
      (role) => this.choose(role),
    );
    this.select.addEventListener("change", () =>
      model.store.set({ through: Number(this.select.value) }),
    );
    this.chooser = el(
      "section",
      { class: "card choices", "aria-label": t.through.choose, hidden: all.length === 0 },
      this.roles.root,
      labelled(t.through.place, this.select),
    );
    model.store.listen((state) => {
      if (state.tab === "backward") this.update();
    });
  }

  private get all(): Derivation[] {
    return this.model.record.derivations ?? [];
  }

  /** Go to the first of a role, in the layer in view if it has one. */
  private choose(role: string): void {
    const { store, state, head } = this.model;
    if (role === "attention") {
      store.set({ through: null });
      return;
    }
    const stack = head.map.kind === "encoder" ? "encoder" : "decoder";
    const near = this.all.findIndex(
      (one) => one.role === role && one.stack === stack && one.layer === state.layer,
    );
    const first = this.all.findIndex((one) => one.role === role);
    store.set({ through: near >= 0 ? near : first });
  }

  private update(): void {
    const { through } = this.model.state;
    const chosen = through === null ? undefined : this.all[through];
    const role = chosen?.role ?? "attention";
    this.roles.press(role);
    this.select.parentElement!.hidden = !chosen;
    this.root.hidden = !chosen;
    if (!chosen) return;
    this.select.replaceChildren(
      ...this.all.flatMap((one, i) =>
        one.role === role
          ? [el("option", { value: i, selected: i === through }, `${nameOf(one)} · ${moduleOf(one)}`)]
          : [],
      ),
    );
    this.show(chosen);
  }

  private show(derivation: Derivation): void {
    const { record } = this.model;
    const { row, side } = derivation;
    const name = row < 0 ? t.through.whole : t.token(row + 1, record[side][row]![0]);
    this.root.replaceChildren(
      el(
        "section",
        { class: "card" },
        el("h2", {}, t.through.title(nameOf(derivation), where(derivation))),
        el(
          "p",
          { class: "hint" },
          ...explained(t.through.hint(name, number(record.moved ?? 0, 1))),
        ),
        el("p", { class: "hint" }, moduleOf(derivation)),
      ),
      el(
        "div",
        { class: "backward-steps" },
        ...derivation.steps.map((step) => this.card(derivation, step)),
      ),
    );
  }

  private card(derivation: Derivation, step: Derived): HTMLElement {
    const { role, kind, row } = derivation;
    const name = `${role}.${step.name}`;
    const own = `${kind}.${step.name}`;
    const [title, meaning] = t.through.steps[name]!;
    const equation = equationOf(own) ?? equationOf(name);
    const gradient = step.gradient && unpackHead(step.gradient, 0).values;
    const entry = step.entry.map((i) => i + 1).join(", ");
    const last = step.entry.at(-1)!;
    const shown = WRITTEN[step.name] ?? step.name;
    const logits = role === "output" && step.name !== "dx";
    const predicted = this.model.record.steps.find(({ place }) => place === row);
    return el(
      "section",
      { class: "card", "data-through": name },
      el("h3", {}, title),
      equation ? el("div", { class: "equation" }, markup(equation)) : null,
      el("p", { class: "hint" }, ...explained(meaning)),
      this.code(role === "norm" ? own : name),
      name === "feed_forward.dh" ? this.code(`activation.${kind}`) : null,
      el(
        "div",
        { class: "body" },
        el("p", { class: "value" }, `${shown}[${entry}] = ${calculation(step)}`),
        el("p", { class: "value" }, t.through.difference(number(step.difference))),
        logits
          ? name === "output.dlogits" && predicted
            ? lossTable(predicted)
            : null
          : gradient
            ? vectors(this.model.colours, [[shown, gradient]], last)
            : el("p", { class: "hint" }, t.through.wide(last + 1)),
      ),
    );
  }
}

/** How a number comes about. */
function calculation({ name, terms, rest, numbers, value }: Derived): string {
  if (terms.length > 0) {
    return writtenSum(terms, terms.reduce((sum, [a, b]) => sum - a * b, value), rest);
  }
  const written = (compute: (...n: number[]) => number, write: (n: string[]) => string) => {
    const { texts, result } = worked(numbers, compute);
    return `${write(texts)} = ${result}`;
  };
  if (name === "dlogits") return written((p, y) => p - y, (n) => `${n[0]} − ${n[1]}`);
  if (name === "dlog_p") return written((y) => -y, (n) => `−${n[0]}`);
  switch (numbers.length) {
    case 0:
      return number(value);
    case 4:
      return written(
        (a, b, c, d) => (a - b * c) * d,
        (n) => `(${n[0]} − ${n[1]}·${n[2]}) × ${n[3]}`,
      );
    case 5:
      return written(
        (a, b, c, d, e) => (a - b - c * d) * e,
        (n) => `(${n[0]} − ${n[1]} − ${n[2]}·${n[3]}) × ${n[4]}`,
      );
    default:
      return written((...n) => n.reduce((a, b) => a * b), (n) => n.join(" × "));
  }
}

/** The module that its first parameter is of, as the library names it. */
function moduleOf({ name, role }: Derivation): string {
  const path = name.split(".").slice(0, role === "feed_forward" ? -2 : -1);
  return path.join(".");
}

function where({ stack, layer, role }: Derivation): string {
  if (role === "output") return "";
  const name = t.whole.stacks[stack];
  return layer === null ? `, ${name}` : `, ${name}, ${t.whole.layer(layer + 1)}`;
}
