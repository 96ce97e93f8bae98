// One gradient followed back from p − y of one token: ribbons as wide as ‖d‖ is long.

import { clamp, el, labelled, number, offer, percent, svg, token } from "../dom.ts";
import type { Model } from "../model.ts";
import { unpackHead } from "../record.ts";
import type { Candidate, Flow, FlowStage, PackedArray, Side } from "../record.ts";
import { largest } from "../run/forward.ts";
import type { Trial } from "../run/trial.ts";
import { Step } from "./step.ts";
import { TEXTS } from "./text.ts";

/** Height of a step and of the row of tokens; width of the names of steps. */
const [ROW, FOOT, NAMES] = [46, 30, 84];
const [NARROWEST, WIDEST] = [16, 64];
/** Part of a column that the widest ribbon takes, and of it what is too thin to draw. */
const [WIDTH, THIN] = [0.7, 0.002];
/** Tokens that are offered instead of the chosen one. */
const OTHERS = 5;

/** A stage with its numbers: lengths by token, and where it lies. */
interface Placed {
  stage: FlowStage;
  arrives: Float32Array;
  around: Float32Array;
  through: Float32Array;
  leaves: Float32Array;
  level: number;
}

function row(packed: PackedArray, at = 0): Float32Array {
  return unpackHead(packed, at).values;
}

/** Stages from the top; the encoder starts below the last step that sends anything to it. */
function placed(flow: Flow): Placed[] {
  let level = 0;
  let memory = 0;
  return flow.stages.map((stage, n) => {
    if (stage.stack !== flow.stages[n - 1]?.stack && n > 0) level = memory;
    const [arrives, around, through, leaves] = [0, 1, 2, 3].map((i) => row(stage.lengths, i));
    if (stage.role === "cross") memory = level + 1;
    return {
      stage,
      arrives: arrives!,
      around: around!,
      through: through!,
      leaves: leaves!,
      level: level++,
    };
  });
}

export class Ribbon {
  readonly root: HTMLElement;
  private readonly t;
  private readonly select = el("select", { id: "flow-choice" });
  private readonly rather = el("select", { id: "flow-rather" });
  private readonly instead: HTMLElement;
  private readonly sentence = el("p", { class: "flow-sentence" });
  private readonly readout = el("p", { class: "value flow-readout", "aria-live": "polite" });
  private readonly region = el("div", { class: "flow-region" });
  private readonly table = el("details", { class: "flow-table" });
  private readonly step: Step;
  private flow!: Flow;
  private stages: Placed[] = [];
  private cell: [stage: number, token: number] = [0, 0];
  private drawn = 0;

  constructor(private readonly model: Model, trial: () => Trial | null) {
    this.step = new Step(model, trial);
    const { record, state, store } = model;
    const t = (this.t = TEXTS[state.language]);
    this.select.append(
      ...this.flows.map(({ step }) => {
        const { label, probability } = record.steps[step]!;
        return el("option", {}, t.option(step + 1, label[0], percent(probability)));
      }),
    );
    this.select.addEventListener("change", () => store.set({ step: this.select.selectedIndex, rather: null }));
    this.rather.addEventListener("change", () => store.set({ rather: this.others[this.rather.selectedIndex - 1]?.[3] ?? null }));
    this.instead = labelled(t.rather, this.rather);
    const keys = Object.entries(t.legend).filter(([name]) => name !== "cross" || record.source.length * record.target.length > 0);
    this.root = el(
      "section",
      { class: "card flow", "aria-label": t.title, hidden: this.flows.length === 0 },
      el("h2", {}, t.title),
      el("p", { class: "hint" }, t.hint),
      el(
        "div",
        { class: "choices" },
        labelled(t.token, this.select),
        this.instead,
      ),
      this.sentence,
      el(
        "p",
        { class: "flow-legend" },
        ...keys.map(([name, text]) => el("span", { class: name }, text)),
      ),
      this.region,
      this.readout,
      this.table,
      this.step.root,
    );
    this.region.tabIndex = 0;
    this.region.setAttribute("role", "group");
    this.region.setAttribute("aria-label", t.picture);
    this.region.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => {
      if (this.region.clientWidth !== this.drawn && this.stages.length > 0) this.draw();
    }).observe(this.region);
    store.listen((now) => {
      if (now.tab === "backward") this.update();
    }, "tab", "step", "rather");
  }

  private get flows(): Flow[] {
    return this.model.record.flows ?? [];
  }

  /** Of the chosen token's −log p. */
  private get own(): Flow {
    return this.flows[clamp(this.model.state.step, this.flows.length)]!;
  }

  /** What the page knows could be in its place. */
  private get others(): Required<Candidate>[] {
    const { token, candidates } = this.model.record.steps[this.own.step]!;
    return candidates.filter((one): one is Required<Candidate> => one[3] !== undefined && one[3] !== token).slice(0, OTHERS);
  }

  /** The token that the chosen one is compared with. */
  private get other(): Required<Candidate> | null {
    return this.others.find(([, , , token]) => token === this.model.state.rather) ?? null;
  }

  /** Another token was chosen. */
  private update(): void {
    if (this.flows.length === 0) return;
    this.select.selectedIndex = this.flows.indexOf(this.own);
    offer(this.rather, [this.t.alone, ...this.others.map(([text, , p]) => `${text} · p = ${percent(p)}`)], this.other ? this.others.indexOf(this.other) + 1 : 0);
    this.instead.hidden = this.others.length === 0;
    this.follow();
  }

  private follow(): void {
    const { t, other } = this;
    const { record } = this.model;
    const flow = (this.flow = other ? this.own.between!(other[3]) : this.own);
    this.stages = placed(flow);
    const { label, probability } = record.steps[flow.step]!;
    const start = other
      ? t.between(label[0], other[0], number(Math.log(probability / other[2])))
      : t.start(label[0], number(-Math.log(probability)), number(flow.dlogits));
    const sentences = [start];
    const last = this.stages.at(-1)!;
    const most = largest(last.leaves);
    const sum = last.leaves.reduce((a, b) => a + b, 0);
    const { side } = last.stage;
    if (sum > 0) {
      const name = record[side][most]![0];
      const table = number(row(flow.tables[side]!)[most]!);
      sentences.push(t.reaches(t.sides[side], name, most + 1, percent(last.leaves[most]! / sum), table));
    }
    this.sentence.textContent = sentences.join(" ");
    this.step.of(flow, side, most, other);
    this.cell = [this.stages.length - 1, most];
    this.draw();
    this.tabulate();
  }

  private draw(): void {
    const { stages, flow } = this;
    const { record } = this.model;
    this.drawn = this.region.clientWidth;
    const sides: Side[] = (["source", "target"] as const).filter((side) => flow.tables[side]);
    const counts = sides.map((side) => record[side].length);
    const together = counts.reduce((a, b) => a + b, 0) + 1;
    const above = sides.length === 2 && this.drawn < 2 * NAMES + NARROWEST * together;
    const beside = sides.length === 2 && !above;
    const space = beside
      ? (this.drawn - 2 * NAMES) / together
      : (this.drawn - NAMES) / Math.max(...counts);
    const col = Math.max(NARROWEST, Math.min(WIDEST, Math.floor(space)));
    const left = { source: NAMES, target: NAMES };
    if (beside) left.target = 2 * NAMES + (counts[0]! + 1) * col;
    const ends = (side: Side) =>
      Math.max(...stages.map(({ stage, level }) => (stage.side === side ? level + 1 : 0)));
    const memory = stages.find(({ stage }) => stage.stack === "encoder")?.level ?? 0;
    const lower = above ? ends("target") + 1 - memory : 0;
    const x = (side: Side, token: number) => left[side] + (token + 0.5) * col;
    const y = (side: Side, level: number) => ROW * (level + 1 + (side === "source" ? lower : 0));
    // Not what arrives at the first: a final norm divides it by the length of x, often by ten.
    const sent = stages.flatMap(({ stage }) => (stage.memory ? [...row(stage.memory)] : []));
    const most = Math.max(...stages.flatMap(({ leaves }) => [...leaves]), ...sent.map((d) => d / 2));
    const width = (d: number) => (most > 0 ? (WIDTH * col * d) / most : 0);
    const drawnPath = (name: string, d: string, length: number) =>
      length > THIN * most
        ? svg("path", { class: name, d, "stroke-width": width(length).toFixed(2), "data-d": length })
        : null;
    const down = (from: number, top: number, to: number, bottom: number) => {
      const half = (top + bottom) / 2;
      return `M${from} ${top}C${from} ${half} ${to} ${half} ${to} ${bottom}`;
    };
    const shapes: (SVGElement | null)[] = [];
    const names: SVGElement[] = [];
    stages.forEach(({ stage, around, through, level }) => {
      const { side, role } = stage;
      const [top, bottom] = [y(side, level), y(side, level + 1)];
      names.push(
        svg("text", { class: "name", x: left[side] - 6, y: (top + bottom) / 2 + 4 },
          `${stage.layer === null ? "" : `${stage.layer + 1} `}${this.t.short[role]}`),
      );
      around.forEach((length, i) =>
        shapes.push(drawnPath("around", `M${x(side, i)} ${top}V${bottom}`, length)),
      );
      if (role === "attention") {
        const shares = totals(stage, through.length);
        for (const [query, key, length] of stage.edges) {
          const [from, to] = [x(side, query), x(side, key)];
          const path = query === key ? bow(from, top, bottom, -0.42 * col) : down(from, top, to, bottom);
          shapes.push(drawnPath("between", path, (through[key]! * length) / shares[key]!));
        }
        return;
      }
      const alone = stage.layer === null;
      through.forEach((length, i) => {
        const at = x(side, i);
        const path = alone ? `M${at} ${top}V${bottom}` : bow(at, top, bottom, 0.42 * col);
        shapes.push(drawnPath("through", path, length));
      });
      if (role === "cross" && stage.memory) {
        const arriving = row(stage.memory);
        const shares = totals(stage, arriving.length);
        for (const [query, key, length] of stage.edges) {
          const path = down(x(side, query), top, x("source", key), y("source", memory));
          shapes.push(drawnPath("cross", path, (arriving[key]! * length) / shares[key]!));
        }
      }
    });
    // The label of a text comes of the mean of all rows, so that each gets its part, or of the first.
    const first = stages[0]!;
    const rows = flow.place < 0 ? [...first.arrives.keys()].filter((i) => first.arrives[i]! > 0) : [flow.place];
    const starts = (x(first.stage.side, rows[0] ?? 0) + x(first.stage.side, rows.at(-1) ?? 0)) / 2;
    const foot = (side: Side) => y(side, ends(side));
    const end = stages.at(-1)!;
    const reached = largest(end.leaves);
    const tokens = sides.flatMap((side) =>
      record[side].map((label, i) =>
        svg(
          "text",
          {
            class: `token-name${side === end.stage.side && i === reached ? " reached" : ""}`,
            x: x(side, i),
            y: foot(side) + 18,
          },
          shortened(label[0], col),
        ),
      ),
    );
    const cells = stages.flatMap(({ stage, level, leaves }, n) =>
      Array.from(leaves, (_, i) =>
        svg("rect", {
          class: "cell",
          x: x(stage.side, i) - col / 2,
          y: y(stage.side, level),
          width: col,
          height: ROW,
          "data-cell": `${n},${i}`,
          onpointerenter: () => this.choose(n, i),
          onclick: () => this.choose(n, i),
        }),
      ),
    );
    const height = Math.max(...sides.map(foot)) + FOOT;
    const whole = Math.max(...sides.map((side, n) => left[side] + counts[n]! * col));
    this.region.replaceChildren(
      svg(
        "svg",
        { width: whole, height, viewBox: `0 0 ${whole} ${height}`, "aria-hidden": "true" },
        ...shapes,
        svg("text", { class: "start", x: starts, y: 16 }, this.other ? "±1" : "p − y"),
        ...rows.map((i) =>
          svg("path", {
            class: "through start",
            d: down(starts, 24, x(first.stage.side, i), ROW),
            "stroke-width": Math.min(WIDTH * col, width(first.arrives[i]!)),
          }),
        ),
        ...names,
        ...tokens,
        ...cells,
      ),
    );
    this.choose(...this.cell);
  }

  private choose(stage: number, place: number): void {
    this.cell = [stage, place];
    for (const shown of this.region.querySelectorAll(".cell.chosen")) shown.classList.remove("chosen");
    this.region.querySelector(`[data-cell="${stage},${place}"]`)?.classList.add("chosen");
    this.readout.textContent = this.words(this.stages[stage]!, place);
  }

  /** All numbers of one step at one token. */
  private words(placed: Placed, place: number): string {
    const { t } = this;
    const { record } = this.model;
    const { stage, arrives, around, through, leaves } = placed;
    const said = [
      `${this.nameOf(stage)}, ${place + 1} “${record[stage.side][place]![0]}”: ${t.arrives(number(arrives[place]!))}`,
      stage.layer === null
        ? t.leaves(number(leaves[place]!))
        : t.numbers(number(around[place]!), number(through[place]!), number(leaves[place]!)),
    ];
    if (stage.heads) {
      const heads = stage.heads;
      const each = Array.from({ length: heads.shape[0] }, (_, h) => number(row(heads, h)[place]!));
      said.push(t.heads(each.join(", ")));
    }
    const edge = stage.edges.find(([, key]) => key === place);
    if (stage.role === "attention" && edge) {
      said.push(t.edge(record[stage.side][edge[0]]![0], number(edge[2])));
    }
    if (stage.memory) {
      const arriving = row(stage.memory);
      const most = largest(arriving);
      said.push(t.memory(record.source[most]![0], number(arriving[most]!)));
    }
    return said.join("; ");
  }

  private nameOf({ stack, layer, role }: FlowStage): string {
    const { t } = this;
    const where = layer === null ? "" : ` ${t.layer(layer + 1)}`;
    return `${t.stacks[stack]}${where} ${t.roles[role]}`;
  }

  private press(event: KeyboardEvent): void {
    const moved = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!moved) return;
    event.preventDefault();
    const stage = clamp(this.cell[0] + moved[0]!, this.stages.length);
    this.choose(stage, clamp(this.cell[1] + moved[1]!, this.stages[stage]!.leaves.length));
  }

  private tabulate(): void {
    const { t, stages, flow } = this;
    const { record } = this.model;
    const sides = [...new Set(stages.map(({ stage }) => stage.side))];
    const cells = (values: Float32Array) => Array.from(values, (d) => el("td", {}, number(d)));
    this.table.replaceChildren(
      el("summary", {}, t.table),
      ...sides.map((side) =>
        el(
          "div",
          { class: "scroll", role: "region", tabindex: 0, "aria-label": `${t.table}, ${t.sides[side]}` },
          el(
            "table",
            {},
            el(
              "thead",
              {},
              el("tr", {}, el("th", { scope: "col" }, t.step),
                ...record[side].map((label) => el("th", { scope: "col" }, token(label)))),
            ),
            el(
              "tbody",
              {},
              ...stages
                .filter(({ stage }) => stage.side === side)
                .map(({ stage, leaves }) =>
                  el("tr", {}, el("th", { scope: "row" }, this.nameOf(stage)), ...cells(leaves)),
                ),
              el("tr", {}, el("th", { scope: "row" }, t.embedding), ...cells(row(flow.tables[side]!))),
            ),
          ),
        ),
      ),
    );
  }
}

/** For each key the sum of its edges. */
function totals({ edges }: FlowStage, keys: number): Float64Array {
  const sums = new Float64Array(keys);
  for (const [, key, length] of edges) sums[key]! += length;
  return sums;
}

function bow(at: number, top: number, bottom: number, out: number): string {
  const third = (bottom - top) / 3;
  return `M${at} ${top}C${at + out} ${top + third} ${at + out} ${bottom - third} ${at} ${bottom}`;
}

function shortened(text: string, col: number): string {
  const most = Math.max(2, Math.floor(col / 9));
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}
