// The first card of a tab: one sentence, and questions that are answered from the record only after
// the reader has guessed.

import { el } from "./dom.ts";
import type { Model } from "./model.ts";
import type { Tab } from "./store.ts";
import type { Language } from "./text.ts";

export interface Question {
  ask: string;
  choices: string[];
  right: number;
  /** Said of a guess that is not right, before the explanation. */
  wrong?: (guess: number) => string;
  why: string;
  /** Where the reader goes with the answer. */
  query?: number;
  key?: number;
}

/** What a tab asks: its sentence while nothing is asked, and what is said below. */
export interface Chapter {
  idle(): string;
  hint(): string;
  questions(): Question[];
  /** Whether the card is shown without questions too. */
  always?: boolean;
}

export const TEXTS = {
  en: {
    name: "In one sentence",
    guess: "Guess one yourself",
    another: (n: number, of: number) => `Next question (${n} of ${of})`,
    right: "Right.",
    wrong: (right: string) => `No: ${right}.`,
  },
  ko: {
    name: "한 문장으로",
    guess: "직접 맞혀 보기",
    another: (n: number, of: number) => `다음 문제 (${of}개 가운데 ${n}번째)`,
    right: "맞습니다.",
    wrong: (right: string) => `아닙니다. 답은 ${right}입니다.`,
  },
} satisfies { [language in Language]: unknown };

export class Opening {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly chapter: Chapter;
  private readonly t: (typeof TEXTS)["en"];
  private readonly sentence = el("p", { class: "sentence", "aria-live": "polite" });
  private readonly hint = el("p", { class: "hint" });
  private readonly choices = el("div", { class: "guesses" });
  private readonly next: HTMLButtonElement;
  private asked = 0;
  private open: Question | null = null;
  /** What is said of a guess, as long as its row is in view. */
  private verdict: { query: number; words: string } | null = null;

  constructor(model: Model, tab: Tab, chapter: Chapter) {
    [this.model, this.chapter] = [model, chapter];
    this.t = TEXTS[model.state.language];
    this.next = el("button", { type: "button", onclick: () => this.ask() });
    this.root = el(
      "section",
      { class: "card opening", "aria-label": this.t.name },
      el("div", {}, this.sentence, this.choices, this.hint),
      this.next,
    );
    model.store.listen((state, changed) => {
      if (state.tab !== tab) {
        // A question that is left is closed: it hides what would answer it on every tab.
        if (this.open) {
          this.open = null;
          this.update();
        }
        return;
      }
      const moved = ["kind", "layer", "head", "tab", "frame"].some((name) => changed.has(name as "kind"));
      if (moved) [this.asked, this.open, this.verdict] = [0, null, null];
      if (moved || changed.has("query") || changed.has("step")) this.update();
    });
    this.update();
  }

  private ask(): void {
    this.open = this.chapter.questions()[this.asked]!;
    this.verdict = null;
    this.update();
    this.choices.querySelector("button")?.focus();
  }

  private answer(guess: number): void {
    const { open, t, model } = this;
    const { choices, right, wrong, why, query, key } = open!;
    const words = guess === right ? t.right : (wrong?.(guess) ?? t.wrong(choices[right]!));
    this.verdict = { query: query ?? model.state.query, words: `${words} ${why}` };
    this.asked++;
    this.open = null;
    if (query !== undefined && key !== undefined) model.store.set({ query, key });
    this.update();
    this.next.focus();
  }

  private update(): void {
    const { model, chapter, t, open, verdict } = this;
    const questions = open ? [] : chapter.questions();
    this.root.toggleAttribute("data-asks", open !== null);
    this.root.hidden = !chapter.always && !open && this.asked + questions.length === 0;
    this.next.hidden = open !== null || this.asked >= questions.length;
    this.next.textContent = this.asked === 0 ? t.guess : t.another(this.asked + 1, questions.length);
    this.hint.textContent = chapter.hint();
    const said = verdict?.query === model.state.query ? verdict.words : chapter.idle();
    this.sentence.textContent = open?.ask ?? said;
    const guess = (text: string, i: number) =>
      el("button", { type: "button", onclick: () => this.answer(i) }, text);
    this.choices.replaceChildren(...(open?.choices ?? []).map(guess));
  }
}
