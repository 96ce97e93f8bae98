// The whole model as a river: the residual stream of every token, as wide as √‖x‖, from its
// embedding down to its prediction. Attention carries from token to token, the encoder's streams run
// on beside the decoder's, and every station unfolds where it is.

import { choose, clamp, el, moving, number, percent, segmented, svg, token } from "./dom.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import { Detail, letters, lowered, nameOf, one } from "./part.ts";
import type { AttentionMap, Label, Part, Side } from "./record.ts";
import type { State } from "./store.ts";
import { t } from "./text.ts";

type Stack = Part["stack"];

/** The widest stream in pixels and in columns of tokens; what a curve swings out by, in columns. */
const [WIDEST, WIDTH, BOW] = [48, 0.55, 0.42];
/** Weights from here on are drawn, and the largest of each query. */
const STRONG = 0.1;
/** Columns narrower than this have their names in rows one below another: at most so many, of so few letters. */
const [ROWS, LETTERS] = [3, 2];
const NAMED = 15;
/** And narrower than this no probability. */
const WORDED = 50;
/** The part of the width that the encoder's streams have beside the decoder. */
const [LEAST, MOST] = [0.22, 0.4];
/** Norms whose widths are shown beside a stack's tokens, as parts of the longest. */
const SHOWN = [1 / 16, 1 / 4, 1];
/** Keys that are read out. */
const READ = 3;

/** A residual step, or what is before or after the layers. */
interface Station {
  stack: Stack;
  side: Side;
  layer: number | null;
  block: number | null;
  parts: number[];
  root: HTMLElement;
  button: HTMLButtonElement;
  length: HTMLElement;
}

/** A station's numbers: ‖x‖ before and after it, ‖y‖ of what it adds, and who attends to whom. */
interface Flowing {
  from: Float32Array;
  to: Float32Array;
  added: Float32Array | null;
  map: AttentionMap | null;
}

/** Where the columns of a side are. */
interface Bed {
  left: number;
  column: number;
}

export class River {
  readonly root = el("section", { class: "card river", "aria-label": t.whole.name });
  private readonly detail: Detail;
  private readonly stations: Station[] = [];
  private readonly springs: { [side in Side]?: HTMLElement } = {};
  private readonly widths: { [side in Side]?: HTMLElement } = {};
  private readonly mouth = el("div", { class: "columns-of mouth", "aria-hidden": "true" });
  private readonly course = el("div", { class: "course" });
  private readonly readout = el("p", { class: "value river-readout", "aria-live": "polite" });
  private readonly unfolded = el("div", { class: "unfolded" });
  private readonly heads;
  private picture: Element | null = null;
  private open: Station | null = null;
  private mean = true;
  private seen = "";

  constructor(private readonly model: Model) {
    this.detail = new Detail(model);
    this.heads = segmented<"mean" | "head">(t.whole.arcs, [["mean", t.whole.mean], ["head"]], (which) => {
      this.mean = which === "mean";
      this.update(new Set());
    });
    model.store.listen((state, changed) => {
      if (state.tab !== "whole" || model.parts.length === 0) return;
      if (this.stations.length === 0) this.build();
      this.update(changed);
    });
  }

  private get sides(): Side[] {
    return (["source", "target"] as const).filter((side) => this.springs[side]);
  }

  /** Make what is drawn on: only when it is looked at, so that the page opens without waiting for it. */
  private build(): void {
    const { parts, record } = this.model;
    parts.forEach((part, index) => {
      const { stack, side, layer, block } = part;
      const last = this.stations.at(-1);
      if (last && last.stack === stack && last.layer === layer && last.block === block) {
        last.parts.push(index);
        return;
      }
      if (last?.stack !== stack) this.course.append(this.spring(stack, side));
      const length = el("span", { class: "length" });
      const button = el("button", { type: "button", class: "station-name", "aria-controls": "part-detail" });
      const root = el("div", { class: "station" }, button);
      const station = { stack, side, layer, block, parts: [index], root, button, length };
      button.addEventListener("click", () => this.toggle(station));
      button.addEventListener("focus", () => this.say(station, this.model.tokens[side]));
      this.stations.push(station);
      this.course.append(root);
    });
    for (const station of this.stations) {
      const place = station.layer === null ? "" : `${station.layer + 1}\u00a0`;
      station.button.append(el("b", {}, `${place}${this.nameOf(station)}`), station.length);
    }
    this.course.append(this.mouth);
    const crossed = record.maps.some(({ kind }) => kind === "cross");
    const legend = Object.entries(t.whole.legend).filter(([name]) => name !== "cross" || crossed);
    this.root.style.setProperty("--stations", String(this.stations.length));
    this.root.append(
      el("div", { class: "river-top" }, el("h2", {}, t.whole.name), this.heads.root),
      this.course,
      this.readout,
      el("p", { class: "hint" }, ...explained(t.whole.hint)),
      el("p", { class: "flow-legend" }, ...legend.map(([name, text]) => el("span", { class: name }, text))),
    );
    this.course.addEventListener("pointermove", (event) => this.point(event, (s, i) => this.say(s, i)));
    this.course.addEventListener("click", (event) =>
      this.point(event, ({ side }, i) => this.model.chooseToken(side, i)),
    );
    this.course.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.course);
  }

  /** Where a stack's streams begin: its tokens, to choose one from. */
  private spring(stack: Stack, side: Side): HTMLElement {
    const { model } = this;
    const list = el(
      "div",
      { class: "columns-of", role: "listbox", "aria-label": t.whole.tokens[side] },
      ...model.record[side].map((label, i) =>
        el("div", { role: "option", class: "choice", title: label[0], onclick: () => model.chooseToken(side, i) }, token(label)),
      ),
    );
    moving(list, () => [model.tokens[side], model.record[side].length], (to) => model.chooseToken(side, to));
    this.springs[side] = list;
    this.widths[side] = el("p", { class: "widths" });
    return el("div", { class: "spring" }, el("h3", {}, t.whole.stacks[stack]), this.widths[side], list);
  }

  private nameOf({ layer, parts }: Station): string {
    const first = this.model.parts[parts[0]!]!;
    if (layer === null) return first.role === "embedding" ? t.whole.before : t.whole.after;
    const map = this.mapOf(parts);
    return t.whole.stations[!map ? "network" : map.kind === "cross" ? "cross" : "self"];
  }

  private mapOf(parts: number[]): AttentionMap | null {
    const map = parts.map((part) => this.model.parts[part]!.map).find((name) => name !== "");
    return this.model.record.maps.find(({ name }) => name === map) ?? null;
  }

  // what is chosen

  private toggle(station: Station): void {
    const { model } = this;
    this.open = this.open === station ? null : station;
    if (this.open && !station.parts.includes(model.state.part)) {
      const telling = ["softmax", "feed_forward", "sum", "output"];
      const part = station.parts.find((each) => telling.includes(model.parts[each]!.role));
      model.choosePart(part ?? station.parts[0]!);
    }
    this.update(new Set());
  }

  private press(event: KeyboardEvent): void {
    const at = this.stations.findIndex(({ button }) => button === event.target);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    this.stations[clamp(at + step, this.stations.length)]!.button.focus();
  }

  /** Do something with the station and the token under the mouse. */
  private point(event: MouseEvent, act: (station: Station, token: number) => void): void {
    if (event.target instanceof Element && event.target.closest("button, .unfolded, .spring, .mouth")) return;
    const { left, top } = this.course.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const station = this.stations.find(({ root }) => y >= root.offsetTop && y < root.offsetTop + root.offsetHeight);
    if (!station) return;
    const beds = this.beds(station.stack);
    for (const side of this.sides) {
      const bed = beds[side];
      const at = bed ? Math.floor((x - bed.left) / bed.column) : -1;
      if (at < 0 || at >= this.model.record[side].length) continue;
      act(side === station.side ? station : this.stations.findLast((one) => one.side === side)!, at);
      return;
    }
  }

  private update(changed: ReadonlySet<keyof State>): void {
    const { model } = this;
    const { part } = model.state;
    if (changed.has("part") && !changed.has("tab")) {
      this.open = this.stations.find(({ parts }) => parts.includes(part))!;
    }
    this.heads.buttons.get("head")!.textContent = t.whole.ofHead(model.state.head + 1);
    this.heads.press(this.mean ? "mean" : "head");
    for (const side of this.sides) choose(this.springs[side]!.children, model.tokens[side]);
    for (const station of this.stations) {
      const opened = station === this.open;
      const { to } = this.flowing(station);
      station.button.setAttribute("aria-expanded", String(opened));
      station.length.textContent = `‖x‖ ${number(to[model.tokens[station.side]]!)}`;
    }
    this.unfold();
    this.draw();
    const spoken = this.open ?? this.stations.find(({ parts }) => parts.includes(part))!;
    this.say(spoken, model.tokens[spoken.side]);
  }

  /** Put the parts of the open station under it, and the numbers of the chosen one. */
  private unfold(): void {
    const { open, unfolded, model } = this;
    if (!open) {
      unfolded.remove();
      return;
    }
    if (open.root.nextSibling !== unfolded) {
      const buttons = open.parts.map((index) => {
        const part = model.parts[index]!;
        return el(
          "button",
          { type: "button", class: `part ${part.role}`, "data-part": index, onclick: () => model.choosePart(index) },
          el("span", { class: "part-name" }, ...lowered(nameOf(part))),
          el("span", { class: "length" }),
        );
      });
      unfolded.replaceChildren(
        el("div", { class: "parts", role: "group", "aria-label": this.title(open) }, ...buttons),
        this.detail.root,
      );
      open.root.after(unfolded);
    }
    for (const button of unfolded.querySelectorAll<HTMLElement>(".part")) {
      const index = Number(button.dataset["part"]);
      const part = model.parts[index]!;
      button.setAttribute("aria-pressed", String(index === model.state.part));
      const norm = part.rows_norms ? one(part.rows_norms)[model.tokens[part.side]]! : null;
      button.querySelector(".length")!.textContent = norm === null ? letters(part) : `‖·‖ ${number(norm)}`;
    }
    const shown = open.parts.includes(model.state.part) ? model.state.part : open.parts[0]!;
    this.detail.show(model.parts[shown]!);
  }

  // the numbers

  private flowing({ parts: indices, stack }: Station): Flowing {
    const { parts } = this.model;
    const own = indices.map((index) => parts[index]!);
    const norms = (found: Part | undefined) => (found?.rows_norms ? one(found.rows_norms) : null);
    const before = parts.slice(0, indices[0]).findLast((one) => one.stack === stack && one.rows_norms);
    const to = norms(own.findLast((one) => one.rows_norms)) ?? norms(before)!;
    const from = norms(before) ?? norms(own.find(({ role }) => role === "embedding")) ?? to;
    const adding = own.find(({ role }) => ["projection", "feed_forward", "positions"].includes(role));
    return { from, to, added: norms(adding), map: this.mapOf(indices) };
  }

  /** The weights of the chosen head, or their mean over all heads: by query, then by key. */
  private weights(map: AttentionMap): Float32Array {
    const heads = this.model.headsIn(map).map(({ own }) => own.values);
    if (!this.mean) return heads[clamp(this.model.state.head, heads.length)]!;
    return heads[0]!.map((_, i) => heads.reduce((sum, values) => sum + values[i]!, 0) / heads.length);
  }

  private title(station: Station): string {
    const where = station.layer === null ? "" : `, ${t.whole.layer(station.layer + 1)}`;
    return `${t.whole.stacks[station.stack]}${where}, ${this.nameOf(station)}`;
  }

  private say(station: Station, place: number): void {
    const { record } = this.model;
    const { from, to, added, map } = this.flowing(station);
    const said = [
      `${this.title(station)}: “${record[station.side][place]![0]}” ‖x‖ ${number(from[place]!)} → ${number(to[place]!)}`,
    ];
    if (added) said.push(t.whole.adds(number(added[place]!)));
    if (map) {
      const keys = record[map.keys];
      const weights = this.weights(map).slice(place * keys.length, (place + 1) * keys.length);
      const order = Array.from(weights.keys()).sort((a, b) => weights[b]! - weights[a]!);
      const most = order.slice(0, READ).map((j) => `“${keys[j]![0]}” ${percent(weights[j]!)}`);
      said.push(t.whole.attends(most.join(", ")));
    }
    const text = said.join("; ");
    if (text !== this.seen) this.readout.textContent = this.seen = text;
  }

  // the picture

  /** The columns of tokens beside a stack's stations: the encoder's run on beside the decoder's. */
  private beds(stack: Stack): { [side in Side]?: Bed } {
    const { record } = this.model;
    const left = this.springs[this.sides[0]!]!.offsetLeft;
    const width = this.course.clientWidth - left;
    const [sources, targets] = [record.source.length, record.target.length];
    if (stack === "encoder") return { source: { left, column: width / sources } };
    if (!this.springs.source) return { target: { left, column: width / targets } };
    const share = Math.min(MOST, Math.max(LEAST, (0.6 * sources) / (sources + targets)));
    return {
      source: { left, column: (share * width) / sources },
      target: { left: left + (share + 0.03) * width, column: ((0.97 - share) * width) / targets },
    };
  }

  private draw(): void {
    const { model, stations, course } = this;
    const [width, height] = [course.clientWidth, course.clientHeight];
    if (width === 0 || stations.length === 0) return;
    const flows = new Map(stations.map((station) => [station, this.flowing(station)]));
    const most = new Map<Side, number>();
    for (const [{ side }, { from, to, added }] of flows) {
      most.set(side, Math.max(most.get(side) ?? 0, ...from, ...to, ...(added ?? [])));
    }
    // The last networks can be ten times as long as what they are added to: by the root both are seen.
    const wide = (side: Side, norm: number, column: number) =>
      Math.min(WIDEST, WIDTH * column) * Math.sqrt(norm / (most.get(side) || 1));
    for (const side of this.sides) {
      const { stack } = stations.find((station) => station.side === side)!;
      const longest = most.get(side)!;
      const bars = SHOWN.map((part) => {
        const w = wide(side, part * longest, this.beds(stack)[side]!.column);
        const bar = el("i", { style: `width: ${w}px`, "data-width": part * longest });
        return el("span", {}, bar, String(Number((part * longest).toPrecision(2))));
      });
      this.widths[side]!.replaceChildren("‖x‖", ...bars);
    }
    const shapes: SVGElement[] = [];
    const stream = (name: string, of: SVGData, ...ends: [x: number, y: number, w: number][]) => {
      const [[x0, y0, w0], [x1, y1, w1]] = ends as [[number, number, number], [number, number, number]];
      const half = (y0 + y1) / 2;
      const [a, b] = [Math.max(1, w0) / 2, Math.max(1, w1) / 2];
      const d =
        `M${x0 - a} ${y0}C${x0 - a} ${half} ${x1 - b} ${half} ${x1 - b} ${y1}H${x1 + b}` +
        `C${x1 + b} ${half} ${x0 + a} ${half} ${x0 + a} ${y0}Z`;
      shapes.push(svg("path", { class: name, d, ...of }));
    };
    const bow = (name: string, of: SVGData, x: number, rows: [top: number, bottom: number], out: number, w: number) => {
      const [top, first, half, last, bottom] = [0, 0.25, 0.5, 0.75, 1].map((at) => rows[0] + at * (rows[1] - rows[0]));
      const [l, r] = [x - Math.max(1, w) / 2, x + Math.max(1, w) / 2];
      const d =
        `M${l} ${top}C${l} ${first} ${l + out} ${first} ${l + out} ${half}S${l} ${last} ${l} ${bottom}` +
        `H${r}C${r} ${last} ${r + out} ${last} ${r + out} ${half}S${r} ${first} ${r} ${top}Z`;
      shapes.push(svg("path", { class: name, d, ...of }));
    };
    const chosen = (side: Side, i: number) => (i === model.tokens[side] ? " chosen" : "");
    const lastCross = stations.findLast((station) => flows.get(station)!.map?.kind === "cross");
    const encoder = stations.findLast(({ stack }) => stack === "encoder");
    stations.forEach((station, n) => {
      const { side, stack, root } = station;
      const { from, to, added, map } = flows.get(station)!;
      const beds = this.beds(stack);
      const { left, column } = beds[side]!;
      const x = (i: number) => left + (i + 0.5) * column;
      const top = root.offsetTop;
      const bottom = top + root.offsetHeight;
      const below = stations[n + 1] ?? { stack, root: this.mouth };
      const next = below.stack === stack ? below.root.offsetTop : bottom;
      to.forEach((norm, i) => {
        const [w0, w1] = [wide(side, from[i]!, column), wide(side, norm, column)];
        const name = `around${chosen(side, i)}`;
        stream(name, { "data-x": norm, "data-at": `${n},${i}` }, [x(i), top, w0], [x(i), bottom, w1]);
        if (next > bottom) stream(name, {}, [x(i), bottom, w1], [x(i), next, w1]);
      });
      const out = (w: number) => Math.min(BOW * column, (column - w) / 2, WIDEST);
      if (added && !map) {
        added.forEach((norm, i) => {
          const w = wide(side, norm, column);
          bow(`through${chosen(side, i)}`, { "data-y": norm }, x(i), [top, bottom], out(w), w);
        });
      }
      if (map) {
        const bed = beds[map.keys]!;
        const keys = model.record[map.keys].length;
        const cross = map.kind === "cross";
        const weights = this.weights(map);
        const largest = to.map((_, i) => Math.max(...weights.subarray(i * keys, (i + 1) * keys)));
        weights.forEach((weight, at) => {
          const [query, key] = [Math.floor(at / keys), at % keys];
          if (weight < Math.min(STRONG, largest[query]!)) return;
          const name = `${cross ? "cross" : "between"}${chosen(side, query)}`;
          const of = { "data-weight": weight, "data-at": `${n},${query},${key}` };
          const w = weight * wide(side, added?.[query] ?? 0, column);
          if (!cross && query === key) {
            bow(name, of, x(key), [top, bottom], -out(w), w);
            return;
          }
          const start = bed.left + (key + 0.5) * bed.column;
          const half = (top + bottom) / 2;
          const d = `M${start} ${top}C${start} ${half} ${x(query)} ${half} ${x(query)} ${bottom}`;
          shapes.push(svg("path", { class: `${name} line`, d, "stroke-width": Math.max(1, w), ...of }));
        });
      }
      if (lastCross && encoder && stack === "decoder" && stations[n - 1] === encoder) {
        const memory = flows.get(encoder)!.to;
        const [wideBed, bed] = [this.beds("encoder").source!, beds.source!];
        const above = encoder.root.offsetTop + encoder.root.offsetHeight;
        const open = this.open === encoder ? this.unfolded.offsetHeight : 0;
        const end = lastCross.root.offsetTop;
        memory.forEach((norm, i) => {
          const [x0, x1] = [wideBed.left + (i + 0.5) * wideBed.column, bed.left + (i + 0.5) * bed.column];
          const [w0, w1] = [wideBed, bed].map(({ column }) => wide(encoder.side, norm, column)) as [number, number];
          const name = `memory${chosen("source", i)}`;
          if (open) stream(name, {}, [x0, above, w0], [x0, above + open, w0]);
          stream(name, { "data-memory": norm }, [x0, above + open, w0], [x1, top, w1]);
          stream(name, {}, [x1, top, w1], [x1, end, w1]);
        });
      }
    });
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    }, ...shapes);
    if (this.picture) this.picture.replaceWith(picture);
    else course.prepend(picture);
    this.picture = picture;
    this.place();
  }

  /** Put the tokens over their streams, and what is expected next under them. */
  private place(): void {
    const { model } = this;
    for (const { stack, side } of this.stations) {
      const { left, column } = this.beds(stack)[side]!;
      const list = this.springs[side]!;
      list.style.marginLeft = `${left - this.springs[this.sides[0]!]!.offsetLeft}px`;
      this.crowd(list, column, model.record[side]);
    }
    const { stack, side } = this.stations.at(-1)!;
    const { left, column } = this.beds(stack)[side]!;
    this.mouth.style.marginLeft = `${left}px`;
    this.mouth.classList.toggle("tight", column < WORDED && !model.pooled);
    const steps = new Map(model.record.steps.map((step) => [step.place, step]));
    this.mouth.replaceChildren(
      ...(model.pooled ? [-1] : model.record[side].map((_, i) => i)).map((i) => {
        const step = steps.get(i);
        const name = i === model.tokens[side] ? "choice chosen" : "choice";
        return step
          ? el("div", { class: name }, token(step.label), el("small", {}, percent(step.probability)))
          : el("div", { class: name });
      }),
    );
    if (!model.pooled) this.crowd(this.mouth, column, model.record.steps.map(({ label }) => label));
  }

  /** Columns too narrow for a name each: names go down by a row from one to the next, or the chosen token alone has one. */
  private crowd(list: HTMLElement, column: number, names: readonly Label[]): void {
    const longest = Math.max(1, ...names.map(([text, kind]) => (kind === "special" ? 1 : Array.from(text).length)));
    const rows = Math.ceil((4 + 8 * longest) / column);
    const staggered = column < NAMED && longest <= LETTERS && rows <= ROWS;
    list.classList.toggle("narrow", column < NAMED && !staggered);
    list.classList.toggle("staggered", staggered);
    list.style.setProperty("--rows", String(rows));
    [...list.children].forEach((child, i) => (child as HTMLElement).style.setProperty("--row", String(i % rows)));
  }
}

type SVGData = { [name: `data-${string}`]: string | number };
