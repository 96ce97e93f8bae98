// How a Transformer works, in eight screens of one idea each. The model in the page computes every number, for the
// reader's own text.

import { PLAIN } from "../attention.ts";
import { bands } from "../bands.ts";
import { signedIndex, weightIndex } from "../colours.ts";
import type { Colours } from "../colours.ts";
import { clamp, el, hears, number, percent, svg, textField, token } from "../dom.ts";
import { pixels } from "../matrix.ts";
import type { Label, Rows } from "../record.ts";
import { gradientsOf } from "../run/edit.ts";
import { largest, norms } from "../run/forward.ts";
import { stacksOf } from "../run/model.ts";
import type { StackName } from "../run/model.ts";
import { entropies } from "../run/recorded.ts";
import { likeliest } from "../run/tab.ts";
import { sum } from "../run/trial.ts";
import type { Site, Trial } from "../run/trial.ts";
import type { Language } from "../text.ts";
import { TEXTS } from "./text.ts";

const SCREENS = 8;
/** Tokens offered in a place; height of a stage of the gradient. */
const [OFFERED, STAGE] = [6, 22];
/** The screen from which on an answer may be given that is right. */
const ASKS = 5;
/** Ribbons' widest, in columns. */
const WIDE = 0.7;

export interface Host {
  language: Language;
  colours: () => Colours;
  /** Hears of every screen and text; null: the story is closed. */
  moved: (screen: number | null) => void;
  /** What stands beside the text: buttons of the page. */
  tools: HTMLElement[];
}

/** A sentence, what is drawn below it, and a hint. */
interface Screen {
  idea: () => string;
  draw: () => HTMLElement[];
  hint: () => string;
}

/** The screen that an address asks for, from 0. */
export function storyAt(hash: string): number | null {
  const said = Number(new URLSearchParams(hash.replace(/^#/, "")).get("story") ?? NaN);
  return Number.isInteger(said) ? clamp(said - 1, SCREENS) : null;
}

export class Story {
  readonly root: HTMLElement;
  private readonly trial: Trial;
  private readonly host: Host;
  private readonly t;
  private readonly stop = el("p", { class: "hint story-place" });
  private readonly title = el("h1", { tabindex: -1 });
  private readonly idea = el("p", { class: "story-idea", "aria-live": "polite" });
  private readonly figure = el("div", { class: "story-figure" });
  private readonly hint = el("p", { class: "hint" });
  private readonly dots: HTMLButtonElement[];
  private readonly back: HTMLButtonElement;
  private readonly next: HTMLButtonElement;
  private readonly right: HTMLInputElement;
  private readonly asked: HTMLElement;
  private readonly screens: Screen[];
  private screen: number;
  /** The token of the text and the place of the answer that were pressed. */
  private letter = 0;
  private at = 0;
  /** p of the right answer before and after each step, and what the model writes. */
  private steps: { p: number; writes: string }[] = [];

  constructor(trial: Trial, screen: number, host: Host) {
    [this.trial, this.screen, this.host] = [trial, screen, host];
    const t = (this.t = TEXTS[host.language]);
    const text = hears(textField("story-text", trial.text, {}), (text) => {
      trial.expected = this.right.value = "";
      this.read(text.trim());
    });
    this.right = hears(textField("story-right", trial.expected, { placeholder: t.itsOwn }), (right) => {
      trial.expected = right.trim();
      this.read(trial.text);
    });
    this.asked = el("span", { class: "live-line" }, el("label", { for: "story-right" }, t.right), this.right);
    this.dots = t.short.map((words, i) =>
      el("button", { type: "button", onclick: () => this.go(i) }, el("b", {}, String(i + 1)), " ", el("span", {}, words)),
    );
    this.back = el("button", { type: "button", id: "story-back", onclick: () => this.go(this.screen - 1) }, t.back);
    this.next = el("button", { type: "button", id: "story-next", class: "primary", onclick: () => this.go(this.screen + 1) }, t.next);
    this.screens = [this.letters(), this.vectors(), this.oneHead(), this.allHeads(), this.answer(), this.loss(), this.backward(), this.oneStep()];
    this.root = el(
      "div",
      { class: "story" },
      el(
        "header",
        {},
        el("div", { class: "live-line" }, el("label", { for: "story-text" }, t.word), text, this.asked),
        el("div", { class: "tools" }, ...host.tools, el("button", { type: "button", class: "quiet", id: "story-close", onclick: () => this.close() }, t.close)),
      ),
      el("nav", { class: "story-dots", "aria-label": t.screens }, ...this.dots),
      el("main", {}, this.stop, this.title, this.idea, this.figure, this.hint),
      el("footer", { class: "story-turn" }, this.back, el("span", { class: "hint" }, t.keys), this.next),
    );
    if (!trial.whole) trial.read(trial.text, false);
    new ResizeObserver(() => this.draw()).observe(this.figure);
    this.show();
  }

  /** Arrow keys turn the screens, but where something is typed. */
  press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.target as HTMLElement).matches?.("input, textarea, dialog *")) return;
    const by = { ArrowLeft: -1, PageUp: -1, ArrowRight: 1, PageDown: 1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      this.go(this.screen + by);
    }
  }

  private read(text: string): void {
    this.trial.read(text, false);
    [this.letter, this.at, this.steps] = [0, 0, []];
    this.show();
  }

  private go(to: number): void {
    this.screen = clamp(to, SCREENS);
    this.show();
    this.title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  private close(): void {
    this.host.moved(null);
  }

  private show(): void {
    const { t, screen, trial } = this;
    this.stop.textContent = t.screen(screen + 1, SCREENS);
    this.title.textContent = t.titles[screen]!;
    this.dots.forEach((dot, i) => (i === screen ? dot.setAttribute("aria-current", "step") : dot.removeAttribute("aria-current")));
    this.back.disabled = screen === 0;
    this.next.disabled = screen === SCREENS - 1;
    this.asked.hidden = screen < ASKS;
    this.idea.textContent = trial.whole ? this.screens[screen]!.idea() : t.unread;
    this.hint.textContent = trial.whole ? this.screens[screen]!.hint() : "";
    this.draw();
    this.host.moved(screen);
  }

  draw(): void {
    const focused = this.figure.contains(document.activeElement) ? document.activeElement!.id : "";
    this.figure.replaceChildren(...(this.trial.whole ? this.screens[this.screen]!.draw() : []));
    if (focused) document.getElementById(focused)?.focus();
  }

  // what the screens are made of

  /** The tokens of the text, with their numbers; of a text that is continued the model writes the last again. */
  private get typed(): { ids: number[]; labels: Label[] } {
    const { trial } = this;
    const { memory, answer } = trial.whole!;
    const { stacks, prompt } = trial.runner.record;
    if (stacks.encoder) return { ids: [...memory.ids], labels: trial.labels("source") };
    const all = [...memory.ids, ...answer.ids];
    const spells = (text: string) => text.length >= trial.piece.length && !text.endsWith("\ufffd");
    const last = all.findIndex((_, i) => i + 1 >= memory.ids.length && spells(trial.target.decode(all.slice(0, i + 1))));
    const ids = all.slice(0, last < 0 ? all.length : last + 1);
    return { ids, labels: trial.labels("target").slice(prompt?.length ?? 0).slice(0, ids.length) };
  }

  /** The tokens of the answer, and its end, if it has one. */
  private get written(): { ids: number[]; labels: Label[] } {
    const { trial } = this;
    const { answer } = trial.whole!;
    const ids = answer.ended ? [...answer.ids, trial.runner.record.end] : [...answer.ids];
    return { ids, labels: ids.map((id) => trial.target.label(id)) };
  }

  private get answerText(): string {
    return this.trial.target.decode(this.trial.whole!.answer.ids);
  }

  /** Buttons of which one is pressed. */
  private chips(name: string, labels: Label[], chosen: number, press: (at: number) => void, below: (at: number) => string): HTMLElement {
    const chip = (label: Label, i: number) =>
      el(
        "button",
        { type: "button", id: `${name}-${i}`, class: "story-chip", "aria-pressed": String(i === chosen), onclick: () => press(i) },
        token(label),
        el("small", {}, below(i)),
      );
    return el("div", { class: "story-chips", role: "group", "aria-label": this.t.titles[this.screen]! }, ...labels.map(chip));
  }

  private turnTo(change: { letter?: number; at?: number }): void {
    Object.assign(this, change);
    this.show();
  }

  /** An attention's weights in the run in view. */
  private looks(site: Site): { weights: Float32Array; rows: number; keys: number } {
    const { memory, run } = this.trial.whole!;
    const own = site.stack === "encoder" ? memory.run : run;
    const { weights, z, keys } = own.looks[this.trial.sites.filter(({ stack }) => stack === site.stack).indexOf(site)]!;
    return { weights, rows: z.count, keys };
  }

  private get alone(): boolean {
    return this.trial.runner.record.stacks.decoder === undefined;
  }

  /** One whose model reads and answers as this one does. */
  private get recipe(): string {
    const { stacks, labels } = this.trial.runner.record;
    if (stacks.decoder) return stacks.encoder ? "g2p-demo" : "gpt-ko";
    return labels ? "topics-ko" : "bert-ko";
  }

  private get attentions(): Site[] {
    return this.trial.sites.filter(({ block }) => block.kind === "attention");
  }

  /** Of the heads that look at the text, from the answer if that is written, the one whose keys depend most on the query. */
  private get telling(): { site: Site; head: number } {
    const { encoder, decoder } = this.trial.runner.record.stacks;
    let best = { site: this.attentions[0]!, head: 0, information: -Infinity };
    for (const site of this.attentions) {
      if (site.block.kind !== "attention" || (encoder && decoder && !site.block.memory)) continue;
      const { weights, rows, keys } = this.looks(site);
      for (let head = 0; head < site.block.heads; head++) {
        const { information } = entropies(weights, head, rows, keys);
        if (information > best.information) best = { site, head, information };
      }
    }
    return best;
  }

  /** Its weights from what is written to what is read; where nothing is written, from every token that is read. */
  private get gaze(): { labels: Label[]; chances: number[]; weights: number[][] } {
    const { site, head } = this.telling;
    const { weights, rows, keys } = this.looks(site);
    const { run, answer, memory } = this.trial.whole!;
    const first = this.trial.runner.record.stacks.encoder ? 0 : (this.trial.runner.record.prompt?.length ?? 0);
    const { ids, labels } = this.typed;
    const row = (place: number) => ids.map((_, s) => weights[(head * rows + place) * keys + first + s]!);
    if (this.alone) return { labels, chances: ids.map(() => 1), weights: ids.map((_, l) => row(l)) };
    const again = Math.min(ids.length - memory.ids.length, answer.losses.length - 1);
    const written = this.written.labels.slice(again);
    const places = run.places.slice(again);
    return { labels: written, chances: answer.losses.slice(again).map((loss) => Math.exp(-loss)), weights: written.map((_, l) => row(places[l]!)) };
  }

  // the screens

  private letters(): Screen {
    return {
      idea: () => this.t.letters(this.trial.piece, this.typed.ids.length, this.trial.source.size),
      draw: () => {
        const { ids, labels } = this.typed;
        return [this.chips("story-letter", labels, -1, (letter) => this.turnTo({ letter }), (i) => String(ids[i]))];
      },
      hint: () => "",
    };
  }

  private vectors(): Screen {
    const chosen = () => clamp(this.letter, this.typed.ids.length);
    const stack = () => (this.trial.runner.record.stacks.encoder ?? this.trial.runner.record.stacks.decoder)!;
    const table = () => this.trial.runner.tensors[stack().embed.tokens]!;
    /** The token whose row points most the same way. */
    const near = (id: number): [number, number] => {
      const { values, rows, columns } = table();
      const row = (at: number) => values.subarray(at * columns, (at + 1) * columns);
      const cosine = (at: number) => {
        const [a, b] = [row(id), row(at)];
        return a.reduce((all, x, i) => all + x * b[i]!, 0) / (Math.hypot(...a) * Math.hypot(...b) || 1);
      };
      let best: [number, number] = [id, -Infinity];
      for (let at = 0; at < rows; at++) {
        if (at === id || this.trial.source.label(at)[1] === "special") continue;
        const c = cosine(at);
        if (c > best[1]) best = [at, c];
      }
      return best;
    };
    return {
      idea: () => {
        const { ids, labels } = this.typed;
        const [other, cosine] = near(ids[chosen()]!);
        return this.t.vectors(labels[chosen()]![0], table().columns, this.trial.source.label(other)[0], cosine.toFixed(2).replace("-", "−"));
      },
      draw: () => {
        const { ids, labels } = this.typed;
        const rows: Rows = this.trial.runner.tokenRows(stack(), ids);
        const most = rows.values.reduce((a, x) => Math.max(a, Math.abs(x)), 0);
        const { signed, masked } = this.host.colours();
        return labels.map((label, i) => {
          const canvas = el("canvas", { class: "story-vector", role: "img", "aria-label": label[0] });
          const values = rows.values.subarray(i * rows.width, (i + 1) * rows.width);
          pixels(canvas, { values, rows: 1, columns: rows.width }, PLAIN, signed, masked, (x) => signedIndex(x, most));
          const pressed = { "aria-pressed": String(i === chosen()), onclick: () => this.turnTo({ letter: i }) };
          const first = Array.from(values.subarray(0, 3), (x) => number(x, 2)).join(", ");
          return el(
            "div",
            { class: "story-row" },
            el("button", { type: "button", id: `story-row-${i}`, class: "story-chip", ...pressed }, token(label)),
            canvas,
            el("small", {}, `${first} …`),
          );
        });
      },
      hint: () => this.t.vectorsHint,
    };
  }

  private oneHead(): Screen {
    const { oneHead, oneHeadHint } = this.alone ? this.t.alone : this.t;
    const chosen = () => clamp(this.at, this.gaze.labels.length);
    return {
      idea: () => {
        const { labels, weights } = this.gaze;
        const row = weights[chosen()]!;
        const most = largest(row);
        return oneHead(labels[chosen()]![0], this.typed.labels[most]![0], percent(row[most]!));
      },
      draw: () => {
        const { labels, chances, weights } = this.gaze;
        const looking = {
          letters: this.typed.labels.map(([text]) => text),
          sounds: labels.map(([text]) => text),
          chances,
          weights,
        };
        const most = (i: number) => percent(Math.max(...weights[i]!));
        return [
          el("div", { class: "story-bands" }, bands(looking, this.figure.clientWidth, chosen())),
          this.chips("story-place", labels, chosen(), (at) => this.turnTo({ at }), most),
        ];
      },
      hint: () => oneHeadHint,
    };
  }

  private allHeads(): Screen {
    const heads = () =>
      this.attentions.flatMap((site) =>
        Array.from({ length: site.block.kind === "attention" ? site.block.heads : 0 }, (_, head) => ({ site, head, ...this.looks(site) })),
      );
    return {
      idea: () => {
        const counts = heads().map(({ weights, head, rows, keys }) => Math.exp(entropies(weights, head, rows, keys).mean));
        return this.t.allHeads(counts.length, Math.min(...counts).toFixed(1), Math.max(...counts).toFixed(1));
      },
      draw: () => {
        const { t } = this;
        const { weight, masked } = this.host.colours();
        const known = heads();
        return this.attentions.map((site) => {
          const own = known.filter((one) => one.site === site);
          const name = `${t.stacks[site.stack]}, ${t.layer(site.block.layer + 1)}${site.block.kind === "attention" && site.block.memory ? " ×" : ""}`;
          const maps = own.map(({ weights, head, rows, keys }) => {
            const canvas = el("canvas", { class: "story-head", role: "img", "aria-label": `${name}, ${head + 1}` });
            const values = weights.subarray(head * rows * keys, (head + 1) * rows * keys);
            pixels(canvas, { values, rows, columns: keys }, this.trial.runner.rule(site.block as never, head), weight, masked, weightIndex);
            return canvas;
          });
          return el("div", { class: "story-layer" }, el("span", { class: "hint" }, name), ...maps);
        });
      },
      hint: () => this.t.allHeadsHint,
    };
  }

  private answer(): Screen {
    const { labels } = this.trial.runner.record;
    const chosen = () => clamp(this.at, this.written.ids.length);
    const offered = () => {
      const { runner, whole } = this.trial;
      return likeliest(runner.logits(whole!.run.rows), whole!.run.places[chosen()]!, OFFERED, -1);
    };
    return {
      idea: () => {
        const [[id, p]] = offered() as [[number, number]];
        const about = [this.trial.target.label(id)[0], percent(p)] as const;
        if (labels) return this.t.alone.label(labels === "text" ? null : chosen() + 1, ...about);
        return this.t.answer(chosen() + 1, ...about);
      },
      draw: () => {
        const { losses } = this.trial.whole!.answer;
        return [
          this.chips("story-place", this.written.labels, chosen(), (at) => this.turnTo({ at }), (i) => percent(Math.exp(-losses[i]!))),
          this.bars(offered().map(([id, p]) => [this.trial.target.label(id), p, percent(p), id === this.written.ids[chosen()]])),
        ];
      },
      hint: () => (labels === "text" ? this.t.alone.labelHint : (this.alone ? this.t.alone : this.t).answerHint),
    };
  }

  /** A bar for each share; a chosen one stands out. */
  private bars(all: [label: Label, share: number, words: string, chosen: boolean][]): HTMLElement {
    const bar = ([label, share, words, chosen]: (typeof all)[0]) =>
      el(
        "li",
        chosen ? { class: "chosen" } : {},
        token(label),
        el("span", { class: "track" }, el("span", { class: "bar", style: `width:${(100 * Math.min(1, share)).toFixed(1)}%` })),
        el("span", { class: "p" }, words),
      );
    return el("ol", { class: "story-bars" }, ...all.map(bar));
  }

  private loss(): Screen {
    return {
      idea: () => {
        const all = sum(this.trial.whole!.answer.losses);
        return this.t.loss(this.answerText, number(all, 3), percent(Math.exp(-all)));
      },
      draw: () => {
        const { losses } = this.trial.whole!.answer;
        const most = Math.max(1, ...losses);
        return [this.bars(losses.map((loss, i) => [this.written.labels[i]!, loss / most, `−log p = ${number(loss, 3)}`, false]))];
      },
      hint: () => this.t.lossHint,
    };
  }

  /** ‖d‖ of every token at every stage, from the top: what leaves the layers, and the embedding. */
  private passed(): { stack: StackName; labels: Label[]; lengths: number[][] }[] {
    const { trial } = this;
    const { runner } = trial;
    const { passed } = gradientsOf(runner, { ...trial.whole!, off: new Set(), counted: () => true });
    return stacksOf(runner.record).reverse().map(([stack]) => {
      const { arrives, first } = passed[stack]!;
      const labels = trial.labels(stack === "encoder" ? "source" : "target");
      return { stack, labels, lengths: [...[...arrives].reverse(), first].map((rows) => [...norms(rows)]) };
    });
  }

  private backward(): Screen {
    return {
      idea: () => {
        const { labels, lengths } = this.passed().at(-1)!;
        const last = lengths.at(-1)!;
        const most = largest(last);
        return this.t.backward(labels[most]![0], percent(last[most]! / (sum(last) || 1)));
      },
      draw: () =>
        this.passed().map(({ stack, labels, lengths }) => {
          const count = lengths[0]!.length;
          const width = Math.max(1, this.figure.clientWidth);
          const column = Math.min(width / count, 110);
          const x = (i: number) => width / 2 + (i + 0.5 - count / 2) * column;
          const most = Math.max(...lengths.flat());
          const wide = (d: number) => Math.max(0.5, (WIDE * column * d) / (most || 1));
          const ribbons = Array.from({ length: count }, (_, i) => {
            const half = lengths.map((row, y) => [wide(row[i]!) / 2, y * STAGE] as const);
            const side = (sign: number, rows: readonly (readonly [number, number])[]) =>
              rows.map(([w, y]) => `${(x(i) + sign * w).toFixed(1)} ${y}`).join("L");
            return svg("path", { d: `M${side(-1, half)}L${side(1, [...half].reverse())}Z` });
          });
          const high = (lengths.length - 1) * STAGE;
          const names = ribbons.map((_, i) => svg("text", { x: x(i), y: high + 20, "text-anchor": "middle" }, labels[i]?.[0] ?? ""));
          return el(
            "div",
            { class: "story-back" },
            el("span", { class: "hint" }, this.t.stacks[stack]),
            svg("svg", { viewBox: `0 0 ${width} ${high + 30}`, height: high + 30, "aria-hidden": "true" }, ...ribbons, ...names) as unknown as HTMLElement,
          );
        }),
      hint: () => this.t.backwardHint,
    };
  }

  private oneStep(): Screen {
    const words = this.alone ? this.t.alone : this.t;
    /** p of the right answer, and what the model writes now. */
    const now = () => {
      const { trial } = this;
      return { p: Math.exp(-sum(trial.whole!.answer.losses)), writes: trial.target.decode(trial.own!.ids) };
    };
    const step = () => {
      const { trial } = this;
      if (this.steps.length === 0) this.steps.push(now());
      // The answer that is right stays, whatever the model writes after the step.
      if (trial.expected === "") this.right.value = trial.expected = this.answerText;
      trial.take();
      this.steps.push(now());
      this.show();
    };
    const forget = () => {
      this.steps = [];
      this.trial.forget();
      this.show();
    };
    return {
      idea: () => {
        const { t, steps } = this;
        const count = sum(this.trial.runner.record.numbers.tensors.filter(({ name }) => name !== null).map(({ shape }) => shape.reduce((a, b) => a * b, 1)));
        if (steps.length === 0) return t.before(count.toLocaleString("en"), this.answerText, percent(now().p));
        const { p, writes } = steps.at(-1)!;
        return `${t.after(steps.length - 1, this.answerText, percent(steps[0]!.p), percent(p))} ${words.writes(writes)}`;
      },
      draw: () => {
        const { t } = this;
        const row = ({ p, writes }: { p: number; writes: string }, i: number) =>
          el(
            "tr",
            {},
            el("td", {}, String(i)),
            el("td", {}, el("span", { class: "track" }, el("span", { class: "bar", style: `width:${(100 * p).toFixed(1)}%` })), el("span", { class: "p" }, percent(p))),
            el("td", { lang: "" }, writes),
          );
        const known = this.steps.length > 0 ? this.steps : [now()];
        return [
          el(
            "div",
            { class: "story-press" },
            el("button", { type: "button", id: "story-step", class: "primary", onclick: step }, t.step),
            el("button", { type: "button", id: "story-forget", class: "quiet", disabled: this.steps.length === 0, onclick: forget }, t.forget),
          ),
          el("table", { class: "story-steps" }, el("thead", {}, el("tr", {}, ...words.steps.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...known.map(row))),
          el("p", {}, t.end, el("br"), el("code", {}, `pellucid train ${this.recipe} --run runs/mine --data.train my.tsv`), el("br"), el("code", {}, `pellucid view runs/mine "${this.trial.piece.replaceAll('"', "")}"`)),
        ];
      },
      hint: () => "",
    };
  }
}
