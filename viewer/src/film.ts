// The film of a run: the record of one text at several steps of its training, and a slider through
// them. A frame is a record like any other: it takes the place of the one in view.

import { weighed } from "./colours.ts";
import { clamp, el, number, svg } from "./dom.ts";
import type { Model } from "./model.ts";
import { dataOf } from "./record.ts";
import type { PageRecord } from "./record.ts";
import type { Language } from "./text.ts";

const en = {
  name: "How it learned",
  play: "Play",
  pause: "Pause",
  slider: "Step of the training",
  at: "step",
  step: (step: string, epoch: string) => `Step ${step}, epoch ${epoch}`,
  loss: (nats: string) => `this answer: ${nats} nats a token`,
  given: "The answer, token by token; the darker, the more likely",
  writes: "On its own it would write",
  nothing: "nothing",
  right: "as in the data",
  curve: (first: string, last: string, steps: string) =>
    `Loss in nats a token over ${steps} steps: this answer's falls from ${first} to ${last}`,
  lines: { text: "this answer", training: "training", held_out: "held out" },
  unit: (most: string) => `0 to ${most} nats a token`,
  keys: [", .", "the frame before, the next frame of the film"],
};

type Words = typeof en;

const ko: Words = {
  name: "학습 과정",
  play: "재생",
  pause: "일시 정지",
  slider: "학습 스텝",
  at: "스텝",
  step: (step, epoch) => `스텝 ${step}, 에폭 ${epoch}`,
  loss: (nats) => `이 답의 손실: 토큰당 ${nats} nat`,
  given: "답의 토큰입니다. 진할수록 확률이 높습니다",
  writes: "이때 모델이 직접 쓰는 답:",
  nothing: "없음",
  right: "데이터와 같음",
  curve: (first, last, steps) =>
    `${steps}스텝 동안의 토큰당 손실(nat): 이 답은 ${first}에서 ${last}까지 내려갑니다`,
  lines: { text: "이 답", training: "학습", held_out: "검증" },
  unit: (most) => `토큰당 0~${most} nat`,
  keys: [", .", "학습 과정의 이전 장면, 다음 장면"],
};

export const TEXTS: { [language in Language]: Words } = { en, ko };

type Curve = [step: number, loss: number][];
type Shot = Pick<PageRecord, "loss" | "maps" | "steps" | "tree" | "own">;

interface FilmRecord {
  frames: { step: number; epoch: number; record: Shot }[];
  /** Losses that the run has recorded, in nats a token. */
  training: Curve;
  held_out: Curve;
}

/** Milliseconds of a frame; for readers who want less motion, as slow as turning pages. */
const [QUICK, SLOW] = [320, 1200];
/** Half the slider's thumb: its middle goes from here to as far before the other end. */
const EDGE = 9;
/** Longer answers find no room under the map. */
const CHIPS = 32;
const REDUCED = "(prefers-reduced-motion: reduce)";

/** Where a step is among those of the frames, in frames: evenly in log step between two of them. */
export function position(steps: number[], step: number): number {
  const after = steps.findIndex((one) => one >= step);
  if (after === 0) return 0;
  if (after < 0) return steps.length - 1;
  const [low, high] = [steps[after - 1]!, steps[after]!];
  return after - 1 + Math.log((1 + step) / (1 + low)) / Math.log((1 + high) / (1 + low));
}

/** The frame of an address's step, or of the last one before it; the last frame without. */
export function frameAt(steps: number[], hash: string): number {
  const said = new URLSearchParams(hash.replace(/^#/, "")).get("at");
  const step = said === null ? NaN : Number(said);
  if (Number.isNaN(step)) return steps.length - 1;
  return clamp(steps.filter((one) => one <= step).length - 1, steps.length);
}

/** A mean over the tokens of the answer. */
function perToken({ loss, steps }: Shot): number {
  return loss / Math.max(1, steps.length);
}

export class Film {
  readonly steps: number[];
  private readonly base: PageRecord;
  private readonly film: FilmRecord;
  private timer: ReturnType<typeof setInterval> | undefined;
  private model: Model | null = null;

  private constructor(base: PageRecord, film: FilmRecord) {
    this.base = base;
    this.film = film;
    this.steps = film.frames.map(({ step }) => step);
    addEventListener("keydown", (event) => this.key(event));
  }

  /** The film that this page holds, if it holds one. */
  static here(record: PageRecord): Film | null {
    const kept = dataOf<FilmRecord>("film");
    return kept && new Film(record, kept);
  }

  /** The page's record as it was at a frame. */
  record(frame: number): PageRecord {
    const { step, record } = this.film.frames[frame]!;
    return { ...this.base, ...record, at: step };
  }

  /** Show every frame in turn, then the one before again; `drawn` is called when the page has drawn it. */
  async each(drawn: (frame: number) => void): Promise<void> {
    const { frame } = this.model!.state;
    this.pause();
    const picture = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    for (const at of this.steps.keys()) {
      this.go(at);
      await picture();
      await picture();
      drawn(at);
    }
    this.go(frame);
  }

  go(frame: number): void {
    const to = clamp(frame, this.steps.length);
    if (this.model && to !== this.model.state.frame) this.model.showFrame(to, this.record(to));
  }

  /** Commas and full stops, but where something is typed. */
  private key(event: KeyboardEvent): void {
    const by = { ",": -1, ".": 1 }[event.key];
    const typed = event.target as HTMLElement;
    if (by === undefined || !this.model || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typed.matches?.("input:not([type=range]), select, textarea")) return;
    this.pause();
    this.go(this.model.state.frame + by);
  }

  private pause: () => void = () => clearInterval(this.timer);

  /** The slider with the losses above it: a part of the page, under all tabs. */
  dock(model: Model): HTMLElement {
    this.pause();
    this.model = model;
    const t = TEXTS[model.state.language];
    const { frames } = this.film;
    const last = frames.length - 1;
    const play = el("button", { type: "button", class: "primary film-play" });
    const stop = () => {
      clearInterval(this.timer);
      this.timer = undefined;
      play.textContent = t.play;
      play.classList.remove("playing");
    };
    this.pause = stop;
    play.addEventListener("click", () => {
      if (this.timer !== undefined) {
        stop();
        return;
      }
      if (model.state.frame === last) this.go(0);
      play.textContent = t.pause;
      play.classList.add("playing");
      this.timer = setInterval(
        () => {
          this.go(model.state.frame + 1);
          if (model.state.frame === last) stop();
        },
        matchMedia(REDUCED).matches ? SLOW : QUICK,
      );
    });
    stop();
    const slider = el("input", {
      type: "range",
      id: "film-slider",
      min: 0,
      max: last,
      step: 1,
      "aria-label": t.slider,
      oninput: () => {
        stop();
        this.go(Number(slider.value));
      },
    });
    const said = el("p", { class: "film-said" });
    const chips = el("p", { class: "film-answer", "aria-label": t.given, title: t.given });
    const own = el("p", { class: "film-own" });
    const curve = new LossCurve(this.film, this.steps, t, (frame) => {
      stop();
      this.go(frame);
    });
    const update = () => {
      const { frame } = model.state;
      const { step, epoch, record } = frames[frame]!;
      const at = t.step(step.toLocaleString("en"), epoch.toFixed(2));
      const loss = t.loss(perToken(record).toFixed(2));
      said.replaceChildren(el("strong", {}, at), el("span", { class: "hint" }, loss));
      slider.value = String(frame);
      slider.setAttribute("aria-valuetext", `${at}, ${loss}, ${t.writes} ${record.own || t.nothing}`);
      const right = record.own !== "" && model.record.title.endsWith(` → ${record.own}`);
      own.hidden = record.tree.length === 0;
      own.classList.toggle("right", right);
      own.replaceChildren(
        el("span", { class: "hint" }, `${t.writes} `),
        el("span", { class: "film-text", lang: "" }, record.own || t.nothing),
        right ? el("span", { class: "hint" }, ` ✓ ${t.right}`) : "",
      );
      chips.hidden = record.steps.length > CHIPS;
      chips.replaceChildren(
        ...record.steps.map(({ label, probability }) => weighed(label, probability, model.colours)),
      );
      curve.mark(frame);
    };
    model.store.listen(({ tab }) => {
      if (tab === "run") stop();
    });
    model.store.listen(update, "frame", "colours");
    update();
    return el(
      "section",
      { class: "film", "aria-label": t.name },
      el("div", { class: "film-line" }, play, said, chips, own),
      curve.root,
      slider,
    );
  }
}

/** The losses over the training, on the slider's own scale, and the frame in view. */
class LossCurve {
  readonly root = el("div", { class: "film-curve" });
  private readonly film: FilmRecord;
  private readonly steps: number[];
  private readonly t: Words;
  private readonly most: number;
  private readonly marked = svg("g", { class: "now" });
  private frame = 0;

  constructor(film: FilmRecord, steps: number[], t: Words, go: (frame: number) => void) {
    [this.film, this.steps, this.t] = [film, steps, t];
    const own = this.own.map(([, loss]) => loss);
    this.most = Math.max(...[...own, ...film.training.map(([, loss]) => loss)], 1e-9);
    const pick = (event: PointerEvent) => {
      const box = this.root.getBoundingClientRect();
      const share = (event.clientX - box.left - EDGE) / (box.width - 2 * EDGE);
      go(Math.round(share * (steps.length - 1)));
    };
    this.root.addEventListener("pointerdown", (event) => {
      this.root.setPointerCapture(event.pointerId);
      pick(event);
    });
    this.root.addEventListener("pointermove", (event) => {
      if (event.buttons > 0) pick(event);
    });
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  /** Of the text, at every frame. */
  private get own(): Curve {
    return this.film.frames.map(({ step, record }) => [step, perToken(record)]);
  }

  private point([step, loss]: Curve[number]): [number, number] {
    const { clientWidth: width, clientHeight: height } = this.root;
    const share = position(this.steps, step) / Math.max(1, this.steps.length - 1);
    return [
      EDGE + share * (width - 2 * EDGE),
      4 + (1 - Math.min(1, loss / this.most)) * (height - 8),
    ];
  }

  private draw(): void {
    const { root, film, t } = this;
    const { clientWidth: width, clientHeight: height } = root;
    const { own } = this;
    const points = (curve: Curve) => curve.map((one) => this.point(one).map((x) => x.toFixed(1)).join(" "));
    const line = (name: string, curve: Curve) => svg("polyline", { class: name, points: points(curve).join(" ") });
    const dots = (name: string, curve: Curve) =>
      curve.map((one) => {
        const [cx, cy] = this.point(one);
        return svg("circle", { class: name, cx, cy, r: name === "held_out" ? 3.5 : 2.2 });
      });
    const names = Object.entries(t.lines).filter(
      ([name]) => name === "text" || film[name as "training"].length > 0,
    );
    const [first, last] = [own[0]![1], own.at(-1)![1]].map((loss) => number(loss, 3));
    root.replaceChildren(
      svg(
        "svg",
        {
          width,
          height,
          role: "img",
          "aria-label": t.curve(first!, last!, this.steps.at(-1)!.toLocaleString("en")),
        },
        svg("path", { class: "floor", d: `M${EDGE} ${height - 4}H${width - EDGE}` }),
        line("training", film.training),
        line("text", own),
        ...dots("text", own),
        ...dots("held_out", film.held_out),
        this.marked,
      ),
      el("span", { class: "film-unit", "aria-hidden": "true" }, t.unit(number(this.most, 2))),
      el(
        "span",
        { class: "film-legend", "aria-hidden": "true" },
        ...names.map(([name, word]) => el("span", { class: name }, word)),
      ),
    );
    this.mark(this.frame);
  }

  mark(frame: number): void {
    this.frame = frame;
    const { step, record } = this.film.frames[frame]!;
    const [x, y] = this.point([step, perToken(record)]);
    this.marked.replaceChildren(
      svg("path", { d: `M${x} 0V${this.root.clientHeight}` }),
      svg("circle", { cx: x, cy: y, r: 5 }),
    );
  }
}
