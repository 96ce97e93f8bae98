// The first thing that the page says: where the head in view looks for one token, in one sentence;
// and questions of the same kind, to be guessed before the map shows the answer.

import { el, percent } from "./dom.ts";
import type { Model } from "./model.ts";
import type { Label } from "./record.ts";
import type { Language } from "./text.ts";

const en = {
  name: "In one sentence",
  ordinals: ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"],
  nth: (ordinal: string, token: string) => `the ${ordinal} “${token}”`,
  write: (token: string) => `To write ${token}`,
  end: "To end the answer",
  read: (token: string) => `To understand ${token}`,
  looks: (when: string, key: string, weight: string) => `${when}, this head looks at ${key}: ${weight}.`,
  which: (head: string) => `${head}. Other heads look elsewhere; choose another row or head, and the sentence follows.`,
  guess: "Guess one yourself",
  another: (n: number, of: number) => `Next question (${n} of ${of})`,
  ask: (when: string) => `${when}, which token does this head look at most?`,
  right: "Right.",
  wrong: (guess: string, weight: string) => `Not ${guess} (${weight}).`,
};

type Words = typeof en;

const ko: Words = {
  name: "한 문장으로",
  ordinals: ["첫", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉"],
  nth: (ordinal, token) => `${ordinal} 번째 “${token}”`,
  write: (token) => `${token}을(를) 쓸 때`,
  end: "답을 끝낼 때",
  read: (token) => `${token}을(를) 이해할 때`,
  looks: (when, key, weight) => `${when} 이 헤드는 ${key}을(를) 봅니다: ${weight}.`,
  which: (head) => `${head}입니다. 다른 헤드는 다른 곳을 봅니다. 행이나 헤드를 바꾸면 문장도 바뀝니다.`,
  guess: "직접 맞혀 보기",
  another: (n, of) => `다음 문제 (${of}개 가운데 ${n}번째)`,
  ask: (when) => `${when} 이 헤드가 가장 많이 보는 토큰은 무엇일까요?`,
  right: "맞습니다.",
  wrong: (guess, weight) => `${guess}이(가) 아닙니다(${weight}).`,
};

export const TEXTS: { [language in Language]: Words } = { en, ko };
const QUESTIONS = 3;
/** More keys than this are no choice for a guess. */
const CHOICES = 16;
/** A weight that is worth a question. */
const CLEAR = 0.4;

/** Where the head in view looks for a query: the key with the largest weight. */
export function strongest(model: Model, query: number): { key: number; weight: number } {
  const { values, columns } = model.head.own;
  const row = values.subarray(query * columns, (query + 1) * columns);
  const key = row.reduce((best, w, s) => (w > row[best]! ? s : best), 0);
  return { key, weight: row[key]! };
}

export class Opening {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly t: Words;
  private readonly sentence = el("p", { class: "sentence", "aria-live": "polite" });
  private readonly which = el("p", { class: "hint" });
  private readonly choices = el("div", { class: "guesses" });
  private readonly next: HTMLButtonElement;
  private asked = 0;
  private open: number | null = null;
  /** What was said to a guess, as long as its row is in view. */
  private verdict: { query: number; words: string } | null = null;

  constructor(model: Model) {
    this.model = model;
    this.t = TEXTS[model.state.language];
    this.next = el("button", { type: "button", onclick: () => this.ask() });
    this.root = el(
      "section",
      { class: "card opening", "aria-label": this.t.name },
      el("div", {}, this.sentence, this.choices, this.which),
      this.next,
    );
    model.store.listen((_, changed) => {
      const moved = ["kind", "layer", "head"].some((name) => changed.has(name as "kind"));
      if (moved) [this.asked, this.open, this.verdict] = [0, null, null];
      if (moved || ["query", "tab", "frame"].some((name) => changed.has(name as "query"))) this.update();
    });
    this.update();
  }

  /** The rows that are worth a question, the clearest first. */
  private get questions(): number[] {
    const { queries, keys } = this.model;
    if (keys.length < 3 || keys.length > CHOICES) return [];
    const found = queries.map((_, query) => ({ query, ...strongest(this.model, query) }));
    const clear = found.filter(({ query, weight }) => weight >= CLEAR && weight < 1 && query > 0);
    return clear.sort((a, b) => b.weight - a.weight).map(({ query }) => query).slice(0, QUESTIONS);
  }

  /** What the model does at a query. */
  private when(query: number): string {
    const { model, t } = this;
    if (model.head.map.queries === "source") return t.read(this.named(model.queries, query));
    const written = model.record.target;
    return query + 1 < written.length ? t.write(this.named(written, query + 1)) : t.end;
  }

  /** A token, and which of several that look the same. */
  private named(labels: Label[], at: number): string {
    const { t } = this;
    const text = labels[at]![0];
    const same = labels.flatMap(([other], i) => (other === text ? [i] : []));
    const ordinal = t.ordinals[same.indexOf(at)];
    return same.length > 1 && ordinal !== undefined ? t.nth(ordinal, text) : `“${text}”`;
  }

  private ask(): void {
    this.open = this.questions[this.asked]!;
    this.verdict = null;
    this.update();
    this.choices.querySelector("button")?.focus();
  }

  private answer(guess: number): void {
    const { model, t } = this;
    const query = this.open!;
    const { key } = strongest(model, query);
    const weight = model.head.own.values[query * model.keys.length + guess]!;
    const words = guess === key ? t.right : t.wrong(this.named(model.keys, guess), percent(weight));
    this.verdict = { query, words };
    this.asked++;
    this.open = null;
    model.store.set({ query, key });
    this.update();
    this.next.focus();
  }

  private update(): void {
    const { model, t, open, questions } = this;
    const { query } = model.state;
    document.body.toggleAttribute("data-guess", open !== null);
    this.next.hidden = open !== null || this.asked >= questions.length;
    this.next.textContent = this.asked === 0 ? t.guess : t.another(this.asked + 1, questions.length);
    this.which.textContent = t.which(model.headName);
    this.choices.replaceChildren();
    if (open !== null) {
      this.sentence.textContent = t.ask(this.when(open));
      const guesses = model.keys.map(([text], s) =>
        el("button", { type: "button", onclick: () => this.answer(s) }, text),
      );
      const causal = model.head.map.causal;
      this.choices.append(...guesses.slice(0, causal ? open + 1 : guesses.length));
      return;
    }
    const { key, weight } = strongest(model, query);
    const said = t.looks(this.when(query), this.named(model.keys, key), percent(weight));
    this.sentence.textContent = this.verdict?.query === query ? `${this.verdict.words} ${said}` : said;
  }
}
