// Every layer and head of one kind at a glance, as a list to choose from.

import { weightIndex } from "./colours.ts";
import { choose, clamp, el } from "./dom.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import { pixels } from "./matrix.ts";
import { t } from "./text.ts";

/** Milliseconds of each picture that may go into the small maps while something moves. */
const BUDGET = 4;
const SMALL = 72;

interface Thumbnail {
  root: HTMLElement;
  canvas: HTMLCanvasElement;
  bar: HTMLElement;
  entropy: HTMLElement;
  layer: number;
  head: number;
}

export class Grid {
  readonly root: HTMLElement;
  private readonly list: HTMLElement;
  private thumbnails: Thumbnail[] = [];
  private stale: Thumbnail[] = [];

  constructor(private readonly model: Model) {
    this.list = el("div", {
      class: "grid",
      role: "listbox",
      "aria-label": t.headList,
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.root = el(
      "section",
      { class: "card overview", "aria-label": t.allHeadsName },
      el("h2", {}, t.allHeads),
      this.list,
      el("p", { class: "hint" }, ...explained(t.barMeaning)),
    );
    this.build();
    model.store.listen(() => this.build(), "kind");
    model.store.listen(() => this.refresh(), "scale", "colours", "frame");
    model.store.listen(() => this.mark(), "layer", "head");
  }

  private build(): void {
    const { all, store } = this.model;
    this.thumbnails = [];
    const heads = all[0]!.length;
    this.list.style.setProperty("--heads", String(heads));
    const rows: HTMLElement[] = [el("span", { class: "corner", "aria-hidden": "true" })];
    for (let head = 0; head < heads; head++) {
      rows.push(el("span", { class: "name", "aria-hidden": "true" }, `h${head + 1}`));
    }
    all.forEach((layer, l) => {
      rows.push(el("span", { class: "name", "aria-hidden": "true" }, `L${l + 1}`));
      layer.forEach((_, h) => {
        const canvas = el("canvas", { width: 1, height: 1 });
        const bar = el("span", { class: "bar" });
        const entropy = el("span", { class: "entropy" });
        const root = el(
          "div",
          { class: "thumbnail", role: "option", onclick: () => store.set({ layer: l, head: h }) },
          canvas,
          el("span", { class: "track" }, bar),
          entropy,
        );
        this.thumbnails.push({ root, canvas, bar, entropy, layer: l, head: h });
        rows.push(root);
      });
    });
    this.list.replaceChildren(...rows);
    this.mark();
    this.refresh();
  }

  private mark(): void {
    const { layer, head } = this.model.state;
    const chosen = this.thumbnails.findIndex((one) => one.layer === layer && one.head === head);
    choose(this.thumbnails.map(({ root }) => root), chosen);
  }

  /** Draw all anew: as many in each picture as its time allows, so that a slider stays smooth. */
  private refresh(): void {
    const idle = this.stale.length === 0;
    this.stale = [...this.thumbnails];
    if (idle) requestAnimationFrame(() => this.work());
  }

  private work(): void {
    const until = performance.now() + BUDGET;
    while (this.stale.length > 0 && performance.now() < until) this.draw(this.stale.shift()!);
    if (this.stale.length > 0) requestAnimationFrame(() => this.work());
  }

  private draw(one: Thumbnail): void {
    const { model } = this;
    const head = model.all[one.layer]![one.head]!;
    const weights = head.weights(model.scaleOf(head));
    const { weight, masked } = model.colours;
    pixels(one.canvas, weights, head.rule, weight, masked, weightIndex);
    one.canvas.classList.toggle("shrunk", weights.columns > SMALL || weights.rows > SMALL);
    const { entropy } = model.summary(head);
    const most = Math.log(weights.columns);
    one.bar.style.width = `${most > 0 ? (100 * entropy) / most : 0}%`;
    one.entropy.textContent = entropy.toFixed(2);
    one.root.setAttribute(
      "aria-label",
      t.thumbnail(one.layer + 1, one.head + 1, entropy.toFixed(2)),
    );
  }

  private key(event: KeyboardEvent): void {
    const moves: { [name: string]: [number, number] } = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      Home: [0, -1e6],
      End: [0, 1e6],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const { all, state, store } = this.model;
    store.set({
      layer: clamp(state.layer + move[0], all.length),
      head: clamp(state.head + move[1], all[0]!.length),
    });
  }
}
