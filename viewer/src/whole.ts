// The whole model as a strip: every part of the forward pass, for the chosen token.

import { score, sees } from "./attention.ts";
import { announcing, clamp, el, markup, number, percent, token } from "./dom.ts";
import { equation } from "./equations.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import { unpackHead } from "./record.ts";
import type { Derivation, PackedArray, Part, Side } from "./record.ts";
import type { State } from "./store.ts";
import { vectors } from "./strips.ts";
import { t } from "./text.ts";

type Stack = Part["stack"];
/** Parts of one residual step, or of what is before and after the layers. */
interface Group {
  stack: Stack;
  layer: number | null;
  block: number | null;
  parts: number[];
}

/** Names that both languages share, by the description's. */
const NAMES: { [kind: string]: string } = {
  layer_norm: "LayerNorm",
  rms_norm: "RMSNorm",
  relu: "ReLU",
  leaky_relu: "leaky ReLU",
  gelu: "GELU",
  gelu_tanh: "GELU, tanh",
  silu: "SiLU",
  swiglu: "SwiGLU",
};

/** Tokens that need no sign of how many are out of view. */
const FEW = 12;
/** Keys or tokens with their largest numbers that are listed. */
const LISTED = 8;

export class Whole {
  readonly root = el("section", { class: "card", "aria-label": t.whole.name });
  private readonly model: Model;
  private readonly groups: Group[];
  private readonly buttons: { root: HTMLElement; length: HTMLElement; part: number }[] = [];
  private readonly layers: { root: HTMLElement; length: HTMLElement; stack: Stack; layer: number }[] =
    [];
  private readonly tokens: { root: HTMLElement; side: Side }[] = [];
  private readonly rows = new Map<Group, HTMLElement>();
  private readonly detail = el("section", { class: "detail", id: "part-detail" });
  private readonly open = new Set<string>();
  private readonly longest = new Map<Side, number>();

  constructor(model: Model) {
    this.model = model;
    this.groups = grouped(model.parts);
    model.store.listen((state, changed) => {
      if (state.tab !== "whole" || model.parts.length === 0) return;
      if (this.buttons.length === 0) this.build();
      this.update(changed);
    });
  }

  /** Make the strip: only when it is looked at, so that the page opens without waiting for it. */
  private build(): void {
    const { parts, record } = this.model;
    const sides = (["source", "target"] as const).filter((side) =>
      parts.some((part) => part.side === side),
    );
    for (const side of sides) {
      const norms = parts
        .filter((part) => part.side === side)
        .flatMap(({ rows_norms: norms }) => (norms ? [...one(norms)] : []));
      this.longest.set(side, norms.reduce((most, x) => Math.max(most, x), 0));
    }
    this.root.append(
      el("h2", {}, t.whole.name),
      el("p", { class: "hint" }, ...explained(t.whole.hint)),
      ...sides.map((side) => this.chooser(side, record[side].length)),
      ...stacks(this.groups).map(([stack, groups]) => this.stack(stack, groups)),
    );
  }

  // the token

  private chooser(side: Side, count: number): HTMLElement {
    const { model } = this;
    const list = el(
      "div",
      { class: "chooser", role: "listbox", "aria-label": t.whole.tokens[side] },
      ...model.record[side].map((label, i) =>
        el(
          "div",
          { role: "option", class: "choice", onclick: () => model.chooseToken(side, i) },
          token(label),
        ),
      ),
    );
    list.addEventListener("keydown", (event) => {
      const at = model.tokens[side];
      const moves: { [name: string]: number } = {
        ArrowLeft: at - 1,
        ArrowRight: at + 1,
        Home: 0,
        End: count - 1,
      };
      const to = moves[event.key];
      if (to === undefined) return;
      event.preventDefault();
      model.chooseToken(side, clamp(to, count));
    });
    this.tokens.push({ root: list, side });
    const below = ({ down }: { down: number }) => {
      const end = list.scrollTop + list.clientHeight;
      const hidden = [...list.children].filter((child) => (child as HTMLElement).offsetTop > end);
      return down > 2 ? t.below(hidden.length, t.rowNames.tokens) : "";
    };
    return el(
      "div",
      { class: "token-choice" },
      el("h3", {}, t.whole.tokens[side]),
      count > FEW ? announcing(list, below) : list,
    );
  }

  // the strip

  private stack(stack: Stack, groups: Group[]): HTMLElement {
    const inside: HTMLElement[] = [];
    let layer: HTMLElement | null = null;
    let number: number | null = null;
    for (const group of groups) {
      const row = this.row(group);
      if (group.layer === null) {
        inside.push(el("div", { class: "layer" }, row));
        layer = null;
        continue;
      }
      if (layer === null || group.layer !== number) {
        number = group.layer;
        layer = el("div", { class: "layer" }, this.layerButton(stack, group.layer));
        inside.push(layer);
      }
      layer.append(row);
    }
    return el("div", { class: "stack" }, el("h3", {}, t.whole.stacks[stack]), ...inside);
  }

  private layerButton(stack: Stack, layer: number): HTMLElement {
    const length = el("span", { class: "length" });
    const root = el(
      "button",
      {
        type: "button",
        class: "layer-name",
        onclick: () => {
          const key = `${stack}.${layer}`;
          if (!this.open.delete(key)) this.open.add(key);
          this.fold();
        },
      },
      el("span", {}, t.whole.layer(layer + 1)),
      length,
    );
    this.layers.push({ root, length, stack, layer });
    return root;
  }

  private row(group: Group): HTMLElement {
    const name = this.groupName(group);
    const row = el("div", { class: "flow", role: "group", "aria-label": name });
    if (group.layer !== null) row.append(el("span", { class: "group-name" }, name));
    for (const part of group.parts) row.append(this.button(part));
    this.rows.set(group, row);
    return row;
  }

  private groupName({ layer, parts }: Group): string {
    const first = this.model.parts[parts[0]!]!;
    if (layer === null) return first.role === "embedding" ? t.whole.before : t.whole.after;
    const map = parts.map((part) => this.model.parts[part]!.map).find((name) => name !== "");
    if (!map) return t.whole.feedForward;
    return t.kinds[this.model.record.maps.find(({ name }) => name === map)!.kind];
  }

  private button(index: number): HTMLElement {
    const part = this.model.parts[index]!;
    const length = el("span", { class: "length" });
    const root = el(
      "button",
      {
        type: "button",
        class: `part ${part.role}`,
        "aria-controls": "part-detail",
        onclick: () => this.model.choosePart(index),
      },
      el("span", { class: "part-name" }, ...lowered(nameOf(part))),
      length,
    );
    this.buttons.push({ root, length, part: index });
    return root;
  }

  private update(changed: ReadonlySet<keyof State>): void {
    const { model } = this;
    const part = model.parts[model.state.part];
    if (!part) return;
    if ((changed.has("part") || this.open.size === 0) && part.layer !== null) {
      this.open.add(`${part.stack}.${part.layer}`);
    }
    for (const { root, side } of this.tokens) {
      [...root.children].forEach((child, i) => {
        const chosen = i === model.tokens[side];
        child.setAttribute("aria-selected", String(chosen));
        (child as HTMLElement).tabIndex = chosen ? 0 : -1;
        if (chosen) reveal(root, child as HTMLElement);
        if (chosen && root.contains(document.activeElement)) (child as HTMLElement).focus();
      });
    }
    for (const { root, length, part: index } of this.buttons) {
      const one = model.parts[index]!;
      root.setAttribute("aria-pressed", String(index === model.state.part));
      const norm = this.norm(one);
      length.textContent = norm === null ? letters(one) : `‖·‖ ${number(norm)}`;
      const longest = this.longest.get(one.side)!;
      root.style.setProperty("--share", `${norm === null ? 0 : (100 * norm) / longest}%`);
    }
    for (const { length, stack, layer } of this.layers) {
      const last = model.parts
        .filter((one) => one.stack === stack && one.layer === layer && one.rows)
        .at(-1)!;
      length.textContent = t.whole.layerNorm(number(this.norm(last)!));
    }
    this.fold();
    this.show(part);
  }

  /** The length of the chosen token's row. */
  private norm(part: Part): number | null {
    return part.rows_norms ? one(part.rows_norms)[this.model.tokens[part.side]]! : null;
  }

  /** Show the layers that are open, and put the detail under the row of its part. */
  private fold(): void {
    const { part } = this.model.state;
    for (const [group, row] of this.rows) {
      row.hidden = group.layer !== null && !this.open.has(`${group.stack}.${group.layer}`);
      if (group.parts.includes(part) && row.nextSibling !== this.detail) row.after(this.detail);
      if (group.parts.includes(part)) this.detail.hidden = row.hidden;
    }
    for (const { root, stack, layer } of this.layers) {
      root.setAttribute("aria-expanded", String(this.open.has(`${stack}.${layer}`)));
    }
  }

  // the part in view

  private show(part: Part): void {
    const { record } = this.model;
    const where = part.layer === null ? "" : `, ${t.whole.layer(part.layer + 1)}`;
    const [, meaning] = t.whole.parts[part.role];
    const shape = part.shape.map(([letter]) => letter).join(", ");
    const sizes = part.shape.map(([, size]) => size).join(" × ");
    this.detail.setAttribute("aria-label", nameOf(part));
    this.detail.replaceChildren(
      el("h4", {}, ...lowered(nameOf(part)), ` · ${t.whole.stacks[part.stack]}${where}`),
      el("div", { class: "equation" }, markup(equationOf(part))),
      el("p", { class: "hint" }, ...explained(meaning!), ...this.remarks(part)),
      el("p", { class: "shape" }, t.whole.shape(shape, sizes)),
      ...(part.tensors.length > 0 ? [parameters(part)] : []),
      ...(part.map ? this.ofMap(part) : part.role === "output" ? this.ofOutput(part) : this.ofRows(part)),
      this.links(part, record.derivations?.findIndex((d) => isOf(d, part)) ?? -1),
    );
  }

  private remarks({ role, factor, kind, map }: Part): string[] {
    const said = [];
    if (factor !== null && factor !== 1 && role !== "scores") said.push(t.whole.times(number(factor)));
    if (role === "scores") said.push(t.whole.scale(number(factor ?? 1)));
    const { rule = [], added } = this.model.record.maps.find(({ name }) => name === map) ?? {};
    for (const { cap, size } of role === "scores" ? rule : []) {
      if (cap !== undefined) said.push(t.whole.softcap(number(cap)));
      if (size !== undefined) said.push(t.whole.window(size));
    }
    if (role === "scores" && added) said.push(t.whole.added);
    said.push(...kind.split(" ").flatMap((name) => t.whole.remarks[name] ?? []));
    return said.map((text) => ` ${text}`);
  }

  /** What a part that returns rows made of the chosen token's. */
  private ofRows(part: Part): HTMLElement[] {
    const { model } = this;
    const { kept } = model.record;
    if (!part.rows || !kept) return [el("p", { class: "hint" }, t.whole.noRows)];
    const at = kept[part.side].indexOf(model.tokens[part.side]);
    const shown: HTMLElement[] = [];
    if (at < 0) {
      const tokens = kept[part.side].map((i) => i + 1);
      shown.push(el("p", { class: "hint" }, t.whole.onlyNorms(tokens.join(", "))));
    } else {
      const row = (packed: PackedArray) => unpackHead(packed, at).values;
      const rows: [string, Float32Array][] = this.before(part).map(([name, before]) => [
        name,
        row(before.rows!),
      ]);
      rows.push([t.whole.returned, row(part.rows)]);
      if (part.drows) rows.push(["∂L/∂·", row(part.drows)]);
      shown.push(vectors(model.colours, rows));
    }
    shown.push(this.lengths(part));
    return shown;
  }

  /** What a part with rows was made from. */
  private before(part: Part): [string, Part][] {
    const { parts } = this.model;
    const at = parts.indexOf(part);
    const before = parts[at - 1];
    if (part.role === "residual") {
      const start = parts.findIndex(
        (one) => one.stack === part.stack && one.layer === part.layer && one.block === part.block,
      );
      return [["x", parts[start - 1]!], ["+ y", before!]];
    }
    const takesRows = part.role === "norm" || part.role === "feed_forward" || part.role === "transform";
    return takesRows && before?.rows ? [[t.whole.given, before]] : [];
  }

  /** The length of every token's row and of its gradient, as bars. */
  private lengths(part: Part): HTMLElement {
    const { model } = this;
    const labels = model.record[part.side];
    const chosen = model.tokens[part.side];
    const row = (name: string, packed: PackedArray, colour: string) => {
      const norms = one(packed);
      const most = norms.reduce((largest, x) => Math.max(largest, x), 0);
      const bars = Array.from(norms, (norm, i) => {
        const bar = el("span", {
          class: i === chosen ? "length-bar chosen" : "length-bar",
          title: `${labels[i]![0]}: ${number(norm)}`,
          onclick: () => model.chooseToken(part.side, i),
        });
        bar.style.setProperty("--height", `${most > 0 ? (100 * norm) / most : 0}%`);
        return bar;
      });
      return el(
        "div",
        { class: `lengths ${colour}` },
        el("p", {}, `${name}: ${labels[chosen]![0]} ${number(norms[chosen]!)}`),
        el("div", { class: "bars", "aria-hidden": "true" }, ...bars),
      );
    };
    return el(
      "div",
      { class: "all-lengths" },
      row(t.whole.norms, part.rows_norms!, "forward"),
      part.drows_norms ? row(t.whole.gradientNorms, part.drows_norms, "gradient") : null,
    );
  }

  /** What the head in view has of the chosen token. */
  private ofMap(part: Part): HTMLElement[] {
    const { model } = this;
    const { head } = model;
    const { query, key } = model.state;
    const values: { [role: string]: () => [string, Float32Array][] } = {
      queries: () => [["qᵢ", ofRow(head.q, query)]],
      keys: () => [["kⱼ", ofRow(head.k, key)]],
      values: () => [["vⱼ", ofRow(head.v, key)]],
      heads: () => [["zᵢ", head.output(query, head.scale)]],
    };
    const name = el("p", { class: "hint" }, t.whole.ofHead(model.state.head + 1));
    const made = values[part.role];
    if (made) {
      const label =
        part.role === "keys" || part.role === "values"
          ? t.key(key + 1, model.keys[key]![0])
          : t.query(query + 1, model.queries[query]![0]);
      name.append(`, ${label}`);
      return [name, vectors(model.colours, made())];
    }
    const start = query * model.keys.length;
    const numbers =
      part.role === "softmax"
        ? head.own.values.slice(start, start + model.keys.length)
        : head.products.values
            .slice(start, start + model.keys.length)
            .map((x, j) => score(x * head.scale, query - j, head.rule));
    name.append(`, ${t.query(query + 1, model.queries[query]![0])}`);
    const order = Array.from(numbers.keys())
      .filter((j) => sees(query, j, numbers.length, head.rule))
      .sort((a, b) => numbers[b]! - numbers[a]!);
    const listed = order.slice(0, LISTED).map((j) => {
      const item = el(
        "li",
        {},
        token(model.keys[j]!),
        el("span", { class: "track" }, el("span", { class: "bar" })),
        el("span", { class: "p" }, number(numbers[j]!)),
      );
      const share = part.role === "softmax" ? numbers[j]! : 0;
      item.style.setProperty("--p", `${100 * share}%`);
      return item;
    });
    const rest = order.length - listed.length;
    return [
      name,
      el("ol", { class: `candidates ${part.role}` }, ...listed),
      ...(rest > 0 ? [el("p", { class: "hint" }, t.whole.moreKeys(rest))] : []),
    ];
  }

  /** The most likely tokens after the chosen one. */
  private ofOutput(part: Part): HTMLElement[] {
    const { model } = this;
    const step = model.record.steps.find(({ place }) => place === model.tokens[part.side]);
    if (!step) return [el("p", { class: "hint" }, t.whole.predictsNothing)];
    const items = step.candidates.slice(0, LISTED).map(([text, kind, p]) => {
      const item = el(
        "li",
        {},
        token([text, kind]),
        el("span", { class: "track" }, el("span", { class: "bar" })),
        el("span", { class: "p" }, percent(p)),
      );
      item.style.setProperty("--p", `${100 * p}%`);
      return item;
    });
    return [
      el("p", { class: "hint" }, t.whole.expects(step.label[0], number(-Math.log(step.probability)))),
      el("ol", { class: "candidates" }, ...items),
    ];
  }

  private links(part: Part, derivation: number): HTMLElement {
    const { store } = this.model;
    const to = (name: string, change: Partial<State>) =>
      el("button", { type: "button", onclick: () => store.set(change) }, `${name} →`);
    return el(
      "div",
      { class: "presets" },
      ...(part.map ? [to(t.tabs.steps, { tab: "steps" })] : []),
      ...(part.map ? [to(t.tabs.backward, { tab: "backward", through: null })] : []),
      ...(derivation >= 0 ? [to(t.tabs.backward, { tab: "backward", through: derivation })] : []),
      ...(part.role === "output" && !this.model.guesses
        ? [to(t.tabs.generation, { tab: "generation" })]
        : []),
    );
  }
}

/** The name of a part: what the description calls it, where that says more. */
export function nameOf({ role, kind }: { role: Part["role"]; kind: string }): string {
  const name = t.whole.parts[role][0]!;
  if (role === "norm") return NAMES[kind] ?? kind;
  if (role === "feed_forward" || role === "transform") {
    return `${name} (${NAMES[kind] ?? kind})`;
  }
  return name;
}

/** A name with what follows its underscore written lower. */
function lowered(name: string): (string | HTMLElement)[] {
  const [letter, index] = name.split("_");
  return index === undefined ? [name] : [letter!, el("sub", {}, index)];
}

function equationOf({ role, kind, tensors }: Part): string {
  const output = tensors.length > 1 ? "logits with bias" : "logits";
  const names: { [role: string]: string } = { norm: kind, scores: "attended", output };
  return equation(names[role] ?? role)!;
}

/** Whether a derivation is that of a part: their first parameter has its own name. */
function isOf(derivation: Derivation, part: Part): boolean {
  return derivation.role === part.role && derivation.name === part.tensors[0]?.[0];
}

function parameters({ tensors }: Part): HTMLElement {
  return el(
    "ul",
    { class: "parameters" },
    ...tensors.map(([name, shape, same]) =>
      el("li", {}, el("code", {}, name), ` (${shape.join(", ")})`, same ? ` = ${same}` : ""),
    ),
  );
}

/** The shape in letters, as a button has room for. */
function letters({ shape }: Part): string {
  return shape.map(([letter]) => letter).join("×");
}

function one(packed: PackedArray): Float32Array {
  return unpackHead(packed, 0).values;
}

/** Scroll a list, and nothing else, so that one of its children is in view. */
function reveal(list: HTMLElement, { offsetTop, offsetHeight }: HTMLElement): void {
  const hidden = offsetTop < list.scrollTop || offsetTop + offsetHeight > list.scrollTop + list.clientHeight;
  if (hidden) list.scrollTop = offsetTop - (list.clientHeight - offsetHeight) / 2;
}

function ofRow({ values, width }: { values: Float32Array; width: number }, row: number) {
  return values.slice(row * width, (row + 1) * width);
}

function grouped(parts: Part[]): Group[] {
  const groups: Group[] = [];
  parts.forEach(({ stack, layer, block }, index) => {
    const last = groups.at(-1);
    if (last && last.stack === stack && last.layer === layer && last.block === block) {
      last.parts.push(index);
    } else {
      groups.push({ stack, layer, block, parts: [index] });
    }
  });
  return groups;
}

function stacks(groups: Group[]): [Stack, Group[]][] {
  const names = [...new Set(groups.map(({ stack }) => stack))];
  return names.map((name) => [name, groups.filter(({ stack }) => stack === name)]);
}
