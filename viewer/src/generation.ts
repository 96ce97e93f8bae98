// How the answer came about: token by token with what else was likely, and the search as a tree.

import { sees } from "./attention.ts";
import { weighed } from "./colours.ts";
import { choose, el, moving, number, percent, token } from "./dom.ts";
import { explained } from "./glossary.ts";
import type { Model } from "./model.ts";
import type { PageRecord } from "./record.ts";
import { t } from "./text.ts";
import { Tree } from "./tree.ts";

export class Generation {
  readonly root: HTMLElement;
  private readonly tokens: HTMLElement;
  private readonly candidates = el("ol", { class: "candidates" });
  private readonly title = el("h3");
  private readonly loss = el("p", { class: "hint" });
  /** The record whose tokens are shown. */
  private shown: PageRecord | null = null;
  private readonly tree: Tree | null;
  private readonly looks = el("p", { class: "looks" });
  private readonly looksTitle = el("h3");

  constructor(private readonly model: Model) {
    const { record, store } = model;
    this.tokens = el("div", {
      class: "answer",
      role: "listbox",
      "aria-label": model.guesses ? t.guessedTokens : t.answerTokens,
    });
    moving(this.tokens, () => [model.state.step, model.record.steps.length], (step) => store.set({ step }));
    const tree = (this.tree = record.tree.length > 0 ? new Tree(model) : null);
    if (record.steps.length === 0) {
      this.root = el(
        "div",
        { class: "generation" },
        el("section", { class: "card" }, el("p", { class: "hint" }, t.predictsNothing)),
      );
      return;
    }
    const title = model.pooled ? t.label : t.tokenByToken;
    this.root = el(
      "div",
      { class: "generation" },
      el(
        "section",
        { class: "card", "aria-label": title },
        el("h2", {}, title),
        this.loss,
        this.tokens,
        el(
          "div",
          { class: "columns" },
          el("div", {}, this.title, this.candidates),
          model.pooled ? null : el("div", {}, this.looksTitle, this.looks),
        ),
      ),
      tree?.root ?? null,
    );
    store.listen((state, changed) => {
      if (state.tab === "generation" || changed.has("tab")) this.update();
    });
    this.update();
  }

  /** Draw for paper, or again for the screen. */
  print(paper: boolean): void {
    this.tree?.print(paper);
  }

  private fill(record: PageRecord): void {
    this.shown = record;
    const loss = number(record.loss);
    this.loss.replaceChildren(...explained(this.model.pooled ? t.labelLoss(loss) : t.loss(loss, record.steps.length)));
    this.tokens.replaceChildren(
      ...record.steps.map((step, i) => {
        const button = el(
          "div",
          { role: "option", class: "said", onclick: () => this.model.store.set({ step: i }) },
          token(step.label),
          el("span", { class: "p" }, percent(step.probability)),
        );
        button.style.setProperty("--p", `${100 * step.probability}%`);
        return button;
      }),
    );
  }

  private update(): void {
    const { record, state } = this.model;
    const step = record.steps[state.step];
    if (!step) return;
    if (this.shown !== record) this.fill(record);
    choose(this.tokens.children, state.step);
    const guessed = this.model.pooled ? t.likeliestLabel : t.likeliestToken(step.place + 1);
    this.title.textContent = this.model.guesses ? guessed : t.likeliest(state.step + 1);
    const rest = 1 - step.candidates.reduce((sum, [, , p]) => sum + p, 0);
    this.candidates.replaceChildren(
      ...step.candidates.map(([text, kind, p]) => {
        const chosen = text === step.label[0] && p === step.probability;
        const item = el(
          "li",
          { class: chosen ? "chosen" : "" },
          token([text, kind]),
          el("span", { class: "track" }, el("span", { class: "bar" })),
          el("span", { class: "p" }, percent(p)),
        );
        const mark = this.model.guesses ? t.taken : t.inAnswer;
        if (chosen) item.append(el("span", { class: "mark" }, mark));
        item.style.setProperty("--p", `${100 * p}%`);
        return item;
      }),
      el(
        "li",
        { class: "rest" },
        el("span", {}, t.others),
        el("span"),
        el("span", { class: "p" }, percent(Math.max(0, rest))),
      ),
    );
    if (!this.model.pooled) this.drawLooks(step.place);
  }

  /** What the chosen head looks at while this token is predicted. */
  private drawLooks(place: number): void {
    const { head, state, keys, colours } = this.model;
    const says = head.map.queries === "target" || this.model.kinds.length === 1;
    this.looksTitle.textContent = says
      ? t.attendsTo(state.layer + 1, state.head + 1)
      : t.chooseDecoder;
    if (!says) {
      this.looks.replaceChildren();
      return;
    }
    const weights = head.own.values.subarray(
      place * keys.length,
      (place + 1) * keys.length,
    );
    this.looks.replaceChildren(
      ...keys.map((label, s) => {
        const w = weights[s]!;
        const chip = weighed(label, w, colours);
        chip.title = t.weightTip(w.toFixed(3));
        chip.classList.toggle("ahead", !sees(place, s, keys.length, head.rule));
        return chip;
      }),
    );
  }
}
