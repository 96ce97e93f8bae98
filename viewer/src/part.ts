// One part of the model, unfolded: its equation, sizes and parameters, and its numbers for the chosen token.

import { score, sees } from "./attention.ts";
import { el, markup, number, percent, token } from "./dom.ts";
import { equation } from "./equations.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import { unpackHead } from "./record.ts";
import type { Derivation, Label, PackedArray, Part } from "./record.ts";
import type { State } from "./store.ts";
import { vectors } from "./strips.ts";
import { t } from "./text.ts";

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

/** Keys or tokens with their largest numbers that are listed. */
const LISTED = 8;

export class Detail {
  readonly root = el("section", { class: "detail", id: "part-detail" });

  constructor(private readonly model: Model) {}

  show(part: Part): void {
    const { record } = this.model;
    const where = part.layer === null ? "" : `, ${t.whole.layer(part.layer + 1)}`;
    const [, meaning] = t.whole.parts[part.role];
    const shape = part.shape.map(([letter]) => letter).join(", ");
    const sizes = part.shape.map(([, size]) => size).join(" × ");
    this.root.setAttribute("aria-label", nameOf(part));
    this.root.replaceChildren(
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
    const kept = model.record.kept?.[part.side];
    if (!part.rows_norms) return [el("p", { class: "hint" }, t.whole.noRows)];
    const shown: HTMLElement[] = [];
    if (kept && !kept.includes(model.tokens[part.side])) {
      const tokens = kept.map((i) => i + 1);
      shown.push(el("p", { class: "hint" }, t.whole.onlyNorms(tokens.join(", "))));
    } else {
      const rows: [string, Float32Array][] = this.before(part).map(([name, before]) => [
        name,
        this.row(before, "rows"),
      ]);
      rows.push([t.whole.returned, this.row(part, "rows")]);
      if (part.drows_norms) rows.push(["∂L/∂·", this.row(part, "drows")]);
      shown.push(vectors(model.colours, rows));
    }
    shown.push(this.lengths(part));
    return shown;
  }

  /** The chosen token's row of a part. */
  private row(part: Part, which: "rows" | "drows"): Float32Array {
    const { record, tokens } = this.model;
    return unpackHead(part[which]!, record.kept![part.side].indexOf(tokens[part.side])).values;
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
    return takesRows && before?.rows_norms ? [[t.whole.given, before]] : [];
  }

  /** The lengths of the chosen token's row and of its gradient. */
  private lengths({ side, rows_norms: norms, drows_norms: gradients }: Part): HTMLElement {
    const chosen = this.model.tokens[side];
    const said = (name: string, packed: PackedArray | undefined, kind: string) =>
      packed ? el("p", { class: kind }, `${name}: ${number(one(packed)[chosen]!)}`) : null;
    return el(
      "div",
      { class: "hint" },
      said(t.whole.norms, norms, "forward"),
      said(t.whole.gradientNorms, gradients, "gradient-norm"),
    );
  }

  /** What a head of the part's layer has of the chosen token: the head in view, where it is of that layer. */
  private ofMap(part: Part): HTMLElement[] {
    const { model } = this;
    const map = model.record.maps.find(({ name }) => name === part.map)!;
    const place = Math.min(model.state.head, map.q.shape[0] - 1);
    const head = model.headsIn(map)[place]!;
    const [queries, keys] = [model.record[map.queries], model.record[map.keys]];
    const inView = map.name === model.head.map.name;
    const query = inView ? model.state.query : model.tokens[map.queries];
    const key = inView ? model.state.key : model.tokens[map.keys];
    const values: { [role: string]: () => [string, Float32Array][] } = {
      queries: () => [["qᵢ", ofRow(head.q, query)]],
      keys: () => [["kⱼ", ofRow(head.k, key)]],
      values: () => [["vⱼ", ofRow(head.v, key)]],
      heads: () => [["zᵢ", head.output(query, head.scale)]],
    };
    const name = el("p", { class: "hint" }, t.whole.ofHead(place + 1));
    const made = values[part.role];
    if (made) {
      const label =
        part.role === "keys" || part.role === "values"
          ? t.key(key + 1, keys[key]![0])
          : t.query(query + 1, queries[query]![0]);
      name.append(`, ${label}`);
      return [name, vectors(model.colours, made())];
    }
    const start = query * keys.length;
    const numbers =
      part.role === "softmax"
        ? head.own.values.slice(start, start + keys.length)
        : head.products.values
            .slice(start, start + keys.length)
            .map((x, j) => score(x * head.scale, query - j, head.rule));
    name.append(`, ${t.query(query + 1, queries[query]![0])}`);
    const order = Array.from(numbers.keys())
      .filter((j) => sees(query, j, numbers.length, head.rule))
      .sort((a, b) => numbers[b]! - numbers[a]!);
    const share = (j: number) => (part.role === "softmax" ? numbers[j]! : 0);
    const listed = order.slice(0, LISTED).map((j) => bar(keys[j]!, share(j), number(numbers[j]!)));
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
    const step = model.stepAt(model.tokens[part.side]);
    if (!step) return [el("p", { class: "hint" }, t.whole.predictsNothing)];
    const items = step.candidates
      .slice(0, LISTED)
      .map(([text, kind, p]) => bar([text, kind], p, percent(p)));
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
export function lowered(name: string): (string | HTMLElement)[] {
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

/** A line of a list: a token, a bar, a number. */
function bar(label: Label, share: number, text: string): HTMLElement {
  const item = el(
    "li",
    {},
    token(label),
    el("span", { class: "track" }, el("span", { class: "bar" })),
    el("span", { class: "p" }, text),
  );
  item.style.setProperty("--p", `${100 * share}%`);
  return item;
}

/** The shape in letters, as a button has room for. */
export function letters({ shape }: Part): string {
  return shape.map(([letter]) => letter).join("×");
}

export function one(packed: PackedArray): Float32Array {
  return unpackHead(packed, 0).values;
}

function ofRow({ values, width }: { values: Float32Array; width: number }, row: number) {
  return values.slice(row * width, (row + 1) * width);
}

