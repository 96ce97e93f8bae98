// The page that trains a model: settings, the run, what it learns, and the model taken apart.

import { readColours } from "../colours.ts";
import type { Colours } from "../colours.ts";
import { el, labelled, offer, scrolling, segmented, svg } from "../dom.ts";
import { trialPanel } from "../run/tab.ts";
import { Trial } from "../run/trial.ts";
import { sharing } from "../share/share.ts";
import { preferred, speak } from "../text.ts";
import type { Language } from "../text.ts";
import { fresh } from "./fresh.ts";
import type { Mistake, Settings } from "./learner.ts";
import { FEWEST_PAIRS, MOST_PAIRS, readPairs, taskOf } from "./tasks.ts";
import type { Task, TaskName } from "./tasks.ts";
import { TEXTS } from "./text.ts";
import type { Ask, Said } from "./worker.ts";

const OPENING: Settings = {
  task: "numbers",
  pairs: "",
  scale: "root",
  positions: true,
  residual: true,
  normFirst: false,
  warmup: true,
  mistake: "none",
  steps: 400,
  seed: 0,
};
/** Unseen examples in the table, and runs before this one in the picture. */
const [SHOWN, RUNS] = [6, 6];
/** Most frames of a film, and milliseconds of each when it plays; the second where less motion is wanted. */
const [FRAMES, PACE, SLOW] = [64, 150, 800];
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [560, 220, 40, 24];

/** The model at one step. */
interface Frame {
  step: number;
  sizes: number[];
  right: Said["right"];
  weights: Float32Array[];
}

/** One run: what it was asked, its losses, its last word, and its film. */
interface Run {
  settings: Settings;
  losses: number[];
  said: Said | null;
  frames: Frame[];
}

class Page {
  language: Language = preferred(null);
  dark = matchMedia("(prefers-color-scheme: dark)").matches;
  colours!: Colours;
  settings = OPENING;
  task!: Task;
  trial!: Trial;
  run!: Run;
  before: Run[] = [];
  /** The frame in view; null: the model as it is now. */
  at: number | null = null;
  private workers: Worker[] = [];
  private failure = "";
  private playing = 0;
  /** Whether each frame of the film is shown to be drawn in a GIF. */
  private filming = false;
  /** Hears when the model taken apart has been drawn. */
  private drawn: () => void = () => {};
  /** Bring the parts of the page up to date with the run. */
  private update: () => void = () => {};

  get running(): boolean {
    return this.run.said?.running ?? false;
  }

  /** What the pictures are of. */
  private get seen(): Frame | Said | null {
    return this.at === null ? this.run.said : this.run.frames[this.at]!;
  }

  /** Begin anew with these settings; a run that has learnt something stays in the picture. */
  restart(change: Partial<Settings> = {}): void {
    this.stop();
    this.at = null;
    if (this.run?.losses.length > 1) this.before = [...this.before, { ...this.run, frames: [] }].slice(-RUNS);
    const { task, pairs } = this.settings;
    this.settings = { ...this.settings, ...change };
    for (const worker of this.workers) worker.terminate();
    this.workers = [];
    this.failure = "";
    if (this.settings.task !== task || this.settings.pairs !== pairs || !this.task) {
      this.task = taskOf(this.settings.task, this.settings.pairs);
      this.before = []; // losses of another task do not compare
    }
    const text = this.trial && this.settings.task === task ? this.trial.text : this.task.example;
    const { record, tensors } = fresh(this.task, this.settings);
    this.trial = new Trial({ ...record, text }, tensors);
    this.trial.others = this.task.heldOut.slice(0, 20).map(([source]) => source).join(", ");
    const untrained = { step: 0, sizes: [], right: null, weights: tensors.map(({ values }) => values.slice()) };
    this.run = { settings: this.settings, losses: [], said: null, frames: [untrained] };
    this.show();
  }

  /** Ask the workers, which begin with the first step. */
  private ask(asked: Ask): void {
    this.stop();
    this.turnTo(null);
    if (this.workers.length === 0) this.workers = this.started();
    this.workers[0]!.postMessage(asked);
  }

  private started(): Worker[] {
    const code = document.getElementById("worker")!.textContent!;
    const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    const count = Math.min(2, navigator.hardwareConcurrency || 1);
    const workers = Array.from({ length: count }, () => new Worker(url));
    const { port1, port2 } = new MessageChannel();
    const ports = count === 2 ? [port1, port2] : [null];
    workers.forEach((worker, i) => {
      const asked: Ask = { settings: this.settings, peer: ports[i]!, leads: i === 0 };
      worker.postMessage(asked, ports[i] ? [ports[i]] : []);
      worker.onerror = (event) => {
        this.failure = event.message;
        this.update();
      };
    });
    const of = this.run;
    workers[0]!.onmessage = ({ data }: MessageEvent<Said>) => this.run === of && this.hear(data);
    return workers;
  }

  private hear(said: Said): void {
    const { run, trial } = this;
    run.losses.push(said.loss);
    run.said = { ...said, right: said.right ?? run.said?.right ?? null };
    const { step, sizes, weights } = said;
    if (weights) {
      run.frames.push({ step, sizes, right: said.right, weights });
      if (run.frames.length > FRAMES) run.frames = run.frames.filter((_, i) => i % 2 === 0);
      trial.put(weights, !said.running);
    }
    this.update();
  }

  /** Put the model of a frame into the page; null: as it is now. */
  private turnTo(frame: number | null): void {
    if (frame === this.at) return;
    this.at = frame;
    const { frames } = this.run;
    this.trial.put(frames[frame ?? frames.length - 1]!.weights, this.playing === 0 && !this.filming);
    this.update();
  }

  private play(): void {
    const { length } = this.run.frames;
    if (this.playing !== 0) return this.stop();
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? SLOW : PACE;
    this.playing = window.setInterval(() => {
      const next = (this.at ?? -1) + 1;
      if (next >= length - 1) this.stop();
      this.turnTo(Math.min(next, length - 1));
    }, pace);
    if (this.at === length - 1) this.at = null;
    this.update();
  }

  /** Show every frame in turn, then the model as it is now; `draw` is called when the page has drawn it. */
  private async each(draw: (frame: number) => void): Promise<void> {
    const of = this.run;
    this.stop();
    this.turnTo(null);
    this.filming = true;
    for (const frame of of.frames.keys()) {
      if (this.run !== of) break; // the dialog was closed, and another run begun
      const all = new Promise<void>((done) => (this.drawn = done));
      this.turnTo(frame);
      await all;
      draw(frame);
    }
    this.filming = false;
    this.turnTo(null);
  }

  private stop(): void {
    clearInterval(this.playing);
    this.playing = 0;
  }

  show(): void {
    speak(this.language);
    document.documentElement.lang = this.language;
    document.documentElement.dataset["theme"] = this.dark ? "dark" : "light";
    document.body.dataset["tab"] = "run";
    this.colours = readColours();
    const t = TEXTS[this.language];
    document.title = t.title;
    const cards = [this.controls(), this.curve(), this.examples(), this.film(), this.sizes()];
    this.update = () => cards.forEach(([, update]) => update());
    const { language } = this;
    const panel = trialPanel(this.trial, { language, colours: () => this.colours, changed: () => {}, drawn: () => this.drawn(), hint: "" });
    const [controls, ...pictures] = cards.map(([card]) => card);
    document.getElementById("app")!.replaceChildren(
      this.header(),
      el(
        "main",
        { class: "learn" },
        el("div", { class: "learn-settings" }, this.tasks(), this.knobs()),
        el("div", { class: "learn-run" }, controls!, ...pictures),
        el(
          "section",
          { class: "learn-apart", "aria-labelledby": "apart" },
          el("h2", { id: "apart" }, t.apart),
          el("p", { class: "hint" }, t.apartHint),
          panel,
        ),
      ),
      el("footer", {}, t.footer(this.trial.runner.products.fast)),
    );
    this.update();
  }

  private header(): HTMLElement {
    const t = TEXTS[this.language];
    const other = this.language === "ko" ? "en" : "ko";
    const turn = (change: () => void, id: string) => () => {
      change();
      this.show();
      document.getElementById(id)!.focus();
    };
    const language = { id: "language", lang: other, onclick: turn(() => (this.language = other), "language") };
    const theme = { id: "theme", onclick: turn(() => (this.dark = !this.dark), "theme") };
    return el(
      "header",
      { class: "page" },
      el("div", { class: "brand", "aria-hidden": "true" }, "pellucid"),
      el("div", { class: "what" }, el("h1", {}, t.title), el("p", { class: "hint" }, t.opening)),
      el(
        "div",
        { class: "tools" },
        ...sharing({
          language: this.language,
          title: () => `${t.title} ${t.tasks[this.settings.task]}`,
          words: () => [t.tasks[this.settings.task], t.frameAt(this.seen?.step ?? 0), "pellucid"].join(" · "),
          look: () => ({ ground: this.colours.surface, ink: this.colours.muted, family: getComputedStyle(document.body).fontFamily }),
          film: { frames: () => (this.running ? 0 : this.run.frames.length), pace: PACE / 10, each: (draw) => this.each(draw) },
          embeds: false,
        }),
        el("button", { type: "button", class: "quiet", ...language }, t.language),
        el("button", { type: "button", class: "quiet", ...theme }, t.theme),
      ),
    );
  }

  private tasks(): HTMLElement {
    const t = TEXTS[this.language];
    const own = el("textarea", { id: "pairs", rows: 6, spellcheck: "false", "aria-label": t.tasks.pairs });
    own.value = this.settings.pairs;
    const said = el("p", { class: "hint", role: "status" });
    const judge = (): boolean => {
      const { pairs, wrong } = readPairs(own.value);
      const words = [t.counted(pairs.length)];
      if (wrong.length > 0) words.push(t.wrongLines(wrong.slice(0, 5).join(", ") + (wrong.length > 5 ? " …" : "")));
      if (pairs.length < FEWEST_PAIRS) words.push(t.tooFew(FEWEST_PAIRS));
      if (pairs.length > MOST_PAIRS) words.push(t.tooMany(MOST_PAIRS));
      said.textContent = words.join(" ");
      return pairs.length >= FEWEST_PAIRS && wrong.length === 0;
    };
    const take = () => {
      if (judge()) this.restart({ task: "pairs", pairs: own.value });
    };
    own.addEventListener("input", judge);
    own.addEventListener("change", take);
    const file = el("input", { type: "file", id: "pairs-file", accept: ".tsv,.txt,text/*" });
    file.addEventListener("change", () => {
      void file.files?.[0]?.text().then((text) => {
        own.value = text;
        take();
      });
    });
    const pairs = el(
      "div",
      { class: "learn-pairs" },
      el("p", { class: "hint" }, t.pairsHint(FEWEST_PAIRS, MOST_PAIRS)),
      own,
      labelled(t.file, file),
      said,
    );
    pairs.hidden = this.settings.task !== "pairs";
    const names = Object.entries(t.tasks) as [TaskName, string][];
    const choice = segmented(t.task, names, (task) => {
      pairs.hidden = task !== "pairs";
      choice.press(task);
      if (task !== "pairs") this.restart({ task });
      else judge();
    });
    choice.press(this.settings.task);
    return el("section", { class: "card" }, el("h2", {}, t.task), choice.root, pairs);
  }

  private knobs(): HTMLElement {
    const t = TEXTS[this.language];
    const { settings } = this;
    const list = <T extends string>(id: string, words: string, options: { [name in T]: string }, now: T, chosen: (name: T) => Partial<Settings>) => {
      const names = Object.keys(options) as T[];
      const made = el("select", { id });
      offer(made, Object.values(options), names.indexOf(now));
      made.addEventListener("change", () => this.change(id, chosen(names[made.selectedIndex]!)));
      return labelled(words, made);
    };
    const flag = (id: "residual" | "positions" | "warmup") => {
      const made = el("input", { type: "checkbox", id, checked: settings[id] });
      made.addEventListener("change", () => this.change(id, { [id]: made.checked }));
      return labelled(t[id], made);
    };
    const number = (id: "steps" | "seed", least: number, most: number) => {
      const made = el("input", { type: "number", id, min: least, max: most, value: settings[id] });
      made.addEventListener("change", () => {
        const value = Math.round(Number(made.value));
        this.change(id, { [id]: Math.max(least, Math.min(most, Number.isFinite(value) ? value : settings[id])) });
      });
      return labelled(t[id], made);
    };
    const norm = settings.normFirst ? "before" : "after";
    return el(
      "section",
      { class: "card learn-knobs" },
      el("h2", {}, t.knobs),
      el("p", { class: "hint" }, t.knobsHint),
      list("scale", t.scale, t.scales, settings.scale, (scale) => ({ scale })),
      list("norm", t.norm, t.norms, norm, (name) => ({ normFirst: name === "before" })),
      flag("residual"),
      flag("positions"),
      flag("warmup"),
      list<Mistake>("mistake", t.mistake, t.mistakes, settings.mistake, (mistake) => ({ mistake })),
      number("steps", 10, 5000),
      number("seed", 0, 2 ** 31 - 1),
    );
  }

  /** Another setting: the run begins anew, and the control keeps the focus. */
  private change(id: string, change: Partial<Settings>): void {
    this.restart(change);
    document.getElementById(id)!.focus();
  }

  private controls(): [HTMLElement, () => void] {
    const t = TEXTS[this.language];
    const train = el("button", { type: "button", id: "train", class: "primary", onclick: () => this.toggle() });
    const one = el("button", { type: "button", id: "one", onclick: () => this.ask({ step: true }) }, t.one);
    const again = el("button", { type: "button", id: "again", class: "quiet", onclick: () => this.restart() }, t.again);
    const said = el("p", { class: "learn-said" });
    const unseen = el("p", { class: "learn-unseen" });
    // What a screen reader hears: the outcome when the run stops, not every step.
    const heard = el("p", { class: "learn-heard", role: "status" });
    const update = () => {
      const { said: last, losses } = this.run;
      train.textContent = this.running ? t.pause : t.train;
      train.disabled = this.failure !== "" || last?.step === this.settings.steps;
      one.disabled = this.running || train.disabled;
      again.disabled = losses.length === 0;
      said.textContent = this.failure
        ? t.failed(this.failure)
        : last
          ? t.at(last.step, this.settings.steps, last.loss.toFixed(3), last.seconds.toFixed(1))
          : t.ready;
      const right = this.seen?.right;
      unseen.textContent = right ? t.unseen(...right) : "";
      if (!this.running && last) heard.textContent = `${said.textContent}. ${unseen.textContent}`;
    };
    const card = el("section", { class: "card learn-controls" }, el("div", { class: "choices" }, train, one, again), said, unseen, heard);
    return [card, update];
  }

  private toggle(): void {
    const run = !this.running;
    if (this.run.said) this.run.said.running = run;
    this.ask({ run });
    this.update();
  }

  /** Losses by step: of this run, and paler those before it. */
  private curve(): [HTMLElement, () => void] {
    const t = TEXTS[this.language];
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const legend = el("ul", { class: "learn-legend" });
    const update = () => {
      const runs = [...this.before, this.run];
      const steps = Math.max(...runs.map(({ settings }) => settings.steps));
      const most = Math.max(1, ...runs.map(({ losses }) => Math.max(0, ...losses.filter(Number.isFinite))));
      const x = (step: number) => LEFT + ((WIDTH - LEFT - 8) * step) / steps;
      const y = (loss: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 10) * Math.min(loss, most)) / most;
      const axis = [0, most / 2, most].flatMap((loss) => [
        svg("line", { x1: LEFT, x2: WIDTH - 8, y1: y(loss), y2: y(loss), class: "axis" }),
        svg("text", { x: LEFT - 6, y: y(loss) + 4, "text-anchor": "end" }, loss.toFixed(1)),
      ]);
      const ends = [0, steps].map((step) =>
        svg("text", { x: x(step), y: HEIGHT - 6, "text-anchor": step ? "end" : "start" }, String(step)),
      );
      const lines = runs.map(({ losses }, i) =>
        svg("polyline", {
          points: losses.map((loss, step) => `${x(step + 1).toFixed(1)},${y(loss).toFixed(1)}`).join(" "),
          class: i === runs.length - 1 ? "now" : `before before-${i % 3}`,
        }),
      );
      const step = this.at === null ? null : this.seen!.step;
      const place = step === null ? [] : [svg("line", { x1: x(step), x2: x(step), y1: 10, y2: HEIGHT - BOTTOM, class: "at" })];
      picture.replaceChildren(...axis, ...ends, ...place, ...lines);
      picture.setAttribute("aria-label", t.curveAbout(this.run.losses.length, this.run.losses.at(-1)?.toFixed(3) ?? "–"));
      legend.replaceChildren(
        ...(this.before.length > 0 ? runs : []).map((run, i) => {
          const now = run === this.run;
          const right = run.said?.right ? ` · ${t.unseen(...run.said.right)}` : "";
          const name = `${now ? `${t.nowRun}: ` : ""}${this.different(run.settings)}`;
          return el("li", { class: now ? "now" : `before-${i % 3}` }, `${name}${now ? "" : right}`);
        }),
      );
    };
    return [el("section", { class: "card learn-curve" }, el("h2", {}, t.curve), picture as unknown as HTMLElement, legend), update];
  }

  /** The film: the model of every frame can be put back, with all that the page shows of it. */
  private film(): [HTMLElement, () => void] {
    const t = TEXTS[this.language];
    const slider = el("input", { type: "range", id: "film", min: 0, step: 1 });
    slider.addEventListener("input", () => {
      this.stop();
      this.turnTo(Number(slider.value));
    });
    const play = el("button", { type: "button", onclick: () => this.play() });
    const said = el("output", { for: "film" });
    const card = el(
      "section",
      { class: "card learn-film" },
      el("h2", {}, t.film),
      el("p", { class: "hint" }, t.filmHint),
      el("div", { class: "choices" }, play, labelled(t.frame, slider), said),
    );
    const update = () => {
      const { frames } = this.run;
      const at = this.at ?? frames.length - 1;
      slider.disabled = play.disabled = this.running || frames.length < 2;
      slider.max = String(frames.length - 1);
      slider.value = String(at);
      said.textContent = slider.ariaValueText = t.frameAt(frames[at]!.step);
      play.textContent = this.playing === 0 ? t.play : t.pause;
    };
    return [card, update];
  }

  /** The settings of a run that are not those of the opening page. */
  private different(settings: Settings): string {
    const t = TEXTS[this.language];
    const words: string[] = [];
    if (settings.scale !== OPENING.scale) words.push(t.scales[settings.scale]);
    if (settings.normFirst) words.push(`${t.norm}: ${t.norms.before}`);
    for (const name of ["residual", "positions", "warmup"] as const) if (!settings[name]) words.push(`${t[name]}: ✕`);
    if (settings.mistake !== "none") words.push(t.mistakes[settings.mistake]);
    if (settings.seed !== OPENING.seed) words.push(`${t.seed} ${settings.seed}`);
    return words.join(", ") || t.mistakes.none;
  }

  private examples(): [HTMLElement, () => void] {
    const t = TEXTS[this.language];
    const body = el("tbody");
    let at = -1;
    const update = () => {
      const { seen } = this;
      if (at === (seen?.step ?? 0) || (seen && !seen.weights)) return;
      at = seen?.step ?? 0;
      const { runner, source, target } = this.trial;
      body.replaceChildren(
        ...this.task.heldOut.slice(0, SHOWN).map(([text, wanted]) => {
          const answer = target.decode(runner.greedy(runner.encode(source.encode(text))).ids);
          const right = answer === wanted;
          return el(
            "tr",
            {},
            el("td", {}, text),
            el("td", { class: right ? "right" : "wrong" }, `${right ? "✓" : "✗"}\u00a0${answer || t.empty}`),
            el("td", {}, wanted),
          );
        }),
      );
    };
    const head = [t.source, t.answer, t.wanted].map((words) => el("th", { scope: "col" }, words));
    const table = el("table", { class: "learn-examples" }, el("thead", {}, el("tr", {}, ...head)), body);
    return [el("section", { class: "card" }, el("h2", {}, t.examples), scrolling(t.examples, table)), update];
  }

  /** The gradient's length in every part, from the last step. */
  private sizes(): [HTMLElement, () => void] {
    const t = TEXTS[this.language];
    const list = el("ol", { class: "learn-sizes" });
    const parts = this.parts();
    const bars = parts.map(([name]) => {
      const bar = el("span", { class: "bar" });
      const value = el("span", { class: "p" });
      list.append(el("li", {}, el("span", { class: "name" }, name), el("span", { class: "track" }, bar), value));
      return [bar, value] as const;
    });
    const update = () => {
      const sizes = this.seen?.sizes ?? [];
      parts.forEach(([, tensors], i) => {
        const length = sizes.length > 0 ? Math.hypot(...tensors.map((n) => sizes[n]!)) : 0;
        const [bar, value] = bars[i]!;
        // 10⁻⁵ to 10: six powers of ten over the track.
        bar.style.width = `${(100 * Math.max(0, Math.min(1, (Math.log10(length || 1e-9) + 5) / 6))).toFixed(1)}%`;
        value.textContent = sizes.length > 0 ? length.toExponential(1).replace("-", "−") : "";
      });
    };
    return [el("section", { class: "card learn-parts" }, el("h2", {}, t.sizes), el("p", { class: "hint" }, t.sizesHint), list), update];
  }

  /** Names of the parts and the tensors in each, in the order of the forward pass. */
  private parts(): [string, number[]][] {
    const { parts: t } = TEXTS[this.language];
    const { stacks, output } = this.trial.runner.record;
    const given = (numbers: (number | null)[]) => numbers.filter((n) => n !== null);
    const of = (name: "encoder" | "decoder") =>
      stacks[name]!.blocks.map((block): [string, number[]] => {
        const own = block.kind === "network" ? [block.first, block.second] : [block.in, block.out];
        const what = block.kind === "network" ? t.network : block.memory ? t.cross : t.self;
        const tensors = [...own.flatMap(({ weight, bias }) => [weight, bias]), block.norm.weight, block.norm.bias];
        return [`${t[name](block.layer + 1)} · ${what}`, given(tensors)];
      });
    return [
      [t.source, [stacks.encoder!.embed.tokens]],
      ...of("encoder"),
      [t.target, [stacks.decoder!.embed.tokens]],
      ...of("decoder"),
      [t.output, given([output.weight, output.bias])],
    ];
  }
}

declare global {
  // For scripts and tests.
  var learning: Page;
}

globalThis.learning = new Page();
globalThis.learning.restart();
