// Attention step by step for one head: the five stages as pictures, and the numbers of one query.

import { el, offer, select } from "./dom.ts";
import type { Model } from "./model.ts";
import { NumbersTable } from "./numbers.ts";
import { Stages } from "./stages.ts";
import type { State } from "./store.ts";
import { Strips } from "./strips.ts";
import { t } from "./text.ts";

/** Milliseconds of rest before the outputs are computed again. */
const REST = 60;

export class Steps {
  readonly root: HTMLElement;
  private readonly title = el("h2");
  private readonly query: HTMLSelectElement;
  private readonly key: HTMLSelectElement;
  private readonly stages: Stages;
  private readonly numbers: NumbersTable;
  private readonly strips: Strips;
  private resting: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly model: Model) {
    const { store } = model;
    const [query, queries] = select("query-choice", t.queryChoice, (query) => store.set({ query }));
    const [key, keys] = select("key-choice", t.keyChoice, (key) => store.set({ key }));
    [this.query, this.key] = [query, key];
    this.stages = new Stages(model);
    this.numbers = new NumbersTable(model);
    this.strips = new Strips(model);
    this.root = el(
      "div",
      { class: "steps" },
      el("section", { class: "card" }, this.title, this.stages.root),
      el(
        "div",
        { class: "columns" },
        el(
          "section",
          { class: "card", "aria-label": t.numbersOf },
          el("div", { class: "choices" }, queries, keys),
          this.numbers.root,
        ),
        this.strips.root,
      ),
    );
    store.listen((state, changed) => {
      if (state.tab === "steps") this.update(changed);
    });
  }

  private update(changed: ReadonlySet<keyof State>): void {
    const some = (...names: (keyof State)[]) => names.some((name) => changed.has(name));
    const { query, key } = this.model.state;
    if (some("tab", "kind")) [this.query, this.key].forEach((list, i) => offer(list, this.model.numbered[i]!));
    if (some("tab", "kind", "layer", "head", "query", "colours", "frame")) this.numbers.build();
    if (some("tab", "kind", "layer", "head", "query", "key", "colours", "frame")) this.strips.drawProduct();
    if (some("tab", "kind", "layer", "head", "colours", "frame")) this.stages.drawScores();
    this.title.textContent = t.stepsTitle(this.model.headName);
    this.query.selectedIndex = query;
    this.key.selectedIndex = key;
    this.numbers.update();
    this.stages.update();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.stages.drawOutput();
      this.strips.drawResult();
    }, REST);
  }
}
