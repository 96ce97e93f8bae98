// The search as a tree: what was kept at each step, where each came from, which answers ended.

import { announcing, choose, el, number, onward, percent, svg } from "./dom.ts";
import { explained } from "./glossary.ts";
import { path, place } from "./layout.ts";
import type { Placed } from "./layout.ts";
import type { Model } from "./model.ts";
import { t } from "./text.ts";

const [HEIGHT, EDGE] = [34, 12];
/** From row to row on the screen, and on paper. */
const [DOWN, CLOSE] = [46, 40];
/** Between two columns: as much as fills the width. */
const [NEAR, FAR] = [28, 96];
/** Pixels: of a probability, of a square sign; the least and the most width of a node. */
const [PROBABILITY, SQUARE, LEAST, MOST] = [70, 13.5, 96, 190];
/** Width of a line of columns on paper, which does not scroll, and what is between two lines. */
const [PAPER, BETWEEN] = [670, 26];

export class Tree {
  readonly root: HTMLElement;
  private readonly picture = el("div", { class: "tree" });
  private readonly detail = el("output", { "aria-live": "polite" });
  private readonly all: HTMLInputElement;
  private placed: Placed[] = [];
  /** How wide it was when it was drawn. */
  private drawn = 0;
  private nodes = new Map<number, SVGElement>();
  /** Where each column begins, and how wide its nodes are. */
  private columns: { x: number; y: number; width: number }[] = [];
  private paper = false;

  constructor(private readonly model: Model) {
    const { tree } = model.record;
    const width = Math.max(0, ...tree.map((node) => node[6]));
    this.all = el("input", { type: "checkbox", id: "dropped", onchange: () => this.build() });
    this.root = el(
      "section",
      { class: "card", "aria-label": t.search },
      el("h2", {}, width > 1 ? t.beamSearch : t.greedySearch),
      el(
        "p",
        { class: "hint" },
        ...explained(t.treeHint),
      ),
      el("p", {}, this.all, el("label", { for: "dropped" }, ` ${t.showDropped}`)),
      announcing(this.picture, onward),
      this.detail,
    );
    this.picture.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.picture.clientWidth !== this.drawn) this.build();
    }).observe(this.picture);
    this.build();
    model.store.listen((_, changed) => {
      if (changed.has("frame")) this.build();
      else if (changed.has("node")) this.mark();
    });
    this.mark();
  }

  /** Draw for paper, or again for the screen. */
  print(paper: boolean): void {
    this.paper = paper;
    this.build();
  }

  private build(): void {
    const { tree } = this.model.record;
    this.drawn = this.picture.clientWidth;
    this.placed = place(tree, this.all.checked);
    const best = path(tree, tree.findIndex((node) => node[6] === 1));
    const at = new Map(this.placed.map((one) => [one.index, one]));
    this.columns = [];
    const high: number[] = []; // of each column
    for (const { column, row, index } of this.placed) {
      high[column] = Math.max(high[column] ?? 0, row * this.down + HEIGHT);
      const needed = PROBABILITY + SQUARE * squares(tree[index]![1]);
      const width = Math.min(MOST, Math.max(LEAST, needed, this.columns[column]?.width ?? 0));
      this.columns[column] = { x: 0, y: EDGE, width };
    }
    const used = this.columns.reduce((sum, { width }) => sum + width, 2 * EDGE);
    const between = this.paper ? NEAR : Math.max(NEAR, Math.min(FAR, (this.drawn - used) / (this.columns.length - 1)));
    let [x, y, below] = [EDGE, EDGE, 0];
    this.columns.forEach((one, column) => {
      if (this.paper && x + one.width + EDGE > PAPER) [x, y] = [EDGE + NEAR, below + BETWEEN];
      [one.x, one.y] = [x, y];
      x += one.width + between;
      below = Math.max(below, y + high[column]!);
    });
    const picture = svg("svg", {
      width: Math.max(...this.columns.map(({ x, width }) => x + width)) + EDGE,
      height: below + EDGE,
      role: "tree",
      "aria-label": t.treeName,
    });
    const edges = svg("g", { "aria-hidden": "true" });
    picture.append(edges);
    this.nodes.clear();
    for (const one of this.placed) {
      const [, text, kind, p, , state, rank] = tree[one.index]!;
      const [x, y] = this.corner(one);
      const { width } = this.columns[one.column]!;
      const from = at.get(one.parent);
      const thick = best.has(one.index);
      if (from) {
        const [left, right] = [from, one].map(({ column }) => this.columns[column]!);
        // From the line before it comes in at the left.
        const x0 = left!.y === right!.y ? left!.x + left!.width : 0;
        const [y0, y1] = [right!.y + Math.min(from.row * this.down, high[one.column]!) + HEIGHT / 2, y + HEIGHT / 2];
        const middle = (x0 + x) / 2;
        edges.append(
          svg("path", {
            d: `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x} ${y1}`,
            class: `edge ${state} ${thick ? "best" : ""}`,
          }),
        );
      }
      const node = svg(
        "g",
        {
          role: "treeitem",
          class: `node ${state} ${kind} ${thick ? "best" : ""}`,
          transform: `translate(${x} ${y})`,
          "aria-level": one.column + 1,
          onclick: () => this.model.store.set({ node: one.index }),
        },
        svg("rect", { width, height: HEIGHT, rx: 7 }),
        svg("text", { x: 9, y: HEIGHT / 2, class: "name" }, shortened(text, (width - PROBABILITY) / SQUARE)),
        " ",
        svg("text", { x: width - 8, y: HEIGHT / 2, class: "p" }, one.parent < 0 ? "" : percent(p)),
      );
      if (rank > 0) {
        node.append(
          svg("circle", { cx: width, cy: 0, r: 9, class: "rank" }),
          svg("text", { x: width, y: 0, class: "rank" }, String(rank)),
        );
      }
      this.nodes.set(one.index, node);
      picture.append(node);
    }
    this.picture.replaceChildren(picture);
    this.mark();
  }

  private get down(): number {
    return this.paper ? CLOSE : DOWN;
  }

  private corner({ column, row }: Placed): [number, number] {
    const { x, y } = this.columns[column]!;
    return [x, y + row * this.down];
  }

  private mark(): void {
    const { tree } = this.model.record;
    let { node } = this.model.state;
    while (!this.nodes.has(node)) node = tree[node]![0];
    choose(this.nodes.values(), [...this.nodes.keys()].indexOf(node));
    const [, text, , p, logP, state, rank] = tree[node]!;
    const words = [...path(tree, node)].reverse().map((index) => tree[index]![1]);
    const ends = {
      kept: rank > 0 ? t.nodeStates.cut(rank) : t.nodeStates.kept,
      end: t.nodeStates.end(rank),
      dropped: t.nodeStates.dropped,
    };
    const after = words.slice(0, -1).join(" ") || t.afterNothing;
    this.detail.textContent = t.node(text, percent(p), after, number(logP), ends[state]);
  }

  private key(event: KeyboardEvent): void {
    const at = this.placed.find((one) => one.index === this.model.state.node);
    if (!at) return;
    const beside = (step: number) =>
      this.placed.find((one) => one.column === at.column && one.row === at.row + step);
    const moves: { [name: string]: () => Placed | undefined } = {
      ArrowLeft: () => this.placed.find((one) => one.index === at.parent),
      ArrowRight: () => this.placed.find((one) => one.parent === at.index),
      ArrowUp: () => beside(-1),
      ArrowDown: () => beside(1),
      Home: () => this.placed[0],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const to = move();
    if (to) this.model.store.set({ node: to.index });
  }
}

/** Signs from U+1100 on (Hangul, Han, emoji) are square, others half as wide. */
function squares(text: string): number {
  const square = (sign: string) => sign.codePointAt(0)! >= 0x1100 && !/[₀-₉‹›…]/u.test(sign);
  return [...text].reduce((sum, sign) => sum + (square(sign) ? 1 : 0.6), 0);
}

/** Cut a text to the room there is, in squares. */
function shortened(text: string, room: number): string {
  if (squares(text) <= room + 1e-9) return text;
  const signs = [...text];
  while (signs.length > 0 && squares(`${signs.join("")}…`) > room) signs.pop();
  return `${signs.join("")}…`;
}
