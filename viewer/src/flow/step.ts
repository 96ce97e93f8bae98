// The step that the gradient is for: parameters move against it, and p of the token rises.

import { el, number, percent } from "../dom.ts";
import type { Model } from "../model.ts";
import type { Candidate, Flow, Side } from "../record.ts";
import { Curve } from "../run/curve.ts";
import { Edited, gradientsOf, slope, step, stepOpens, stepRange } from "../run/edit.ts";
import type { Fed } from "../run/edit.ts";
import type { Trial } from "../run/trial.ts";
import { TEXTS } from "./text.ts";

export class Step {
  readonly root: HTMLElement;
  private readonly model: Model;
  private readonly trial: () => Trial | null;
  private readonly t;
  private readonly said = el("p", { class: "flow-said", role: "status" });
  private readonly moves = el("select", { id: "flow-moves" });
  private readonly inside = el("div", { hidden: true });
  private readonly open: HTMLButtonElement;
  private readonly curve: Curve;
  private chosen: { flow: Flow; side: Side; place: number; other: Required<Candidate> | null } | null = null;

  constructor(model: Model, trial: () => Trial | null) {
    [this.model, this.trial] = [model, trial];
    const { language } = model.state;
    const t = (this.t = TEXTS[language]);
    this.curve = new Curve("flow-eta", language, (_, now, before) => {
      const { flow, other } = this.chosen!;
      const [p, after] = [before, now].map(({ losses }) => percent(Math.exp(-losses[flow.step]!)));
      const name = model.record.steps[flow.step]!.label[0];
      const losses = [number(before.loss), number(now.loss)] as const;
      this.said.textContent = other ? t.nears(name, other[0], p!, after!, ...losses) : t.rises(name, p!, after!, ...losses);
    });
    this.open = el("button", { type: "button", onclick: () => this.show() }, t.take);
    this.moves.addEventListener("change", () => this.show());
    this.inside.append(
      el("p", { class: "hint" }, t.takeHint),
      el("div", { class: "choices" }, el("label", { for: "flow-moves" }, t.take), this.moves),
      this.said,
      this.curve.root,
    );
    // The frames of a film are of earlier models than the one in the page.
    const runs = document.getElementById("run") !== null && document.getElementById("film") === null;
    this.root = el("div", { class: "flow-step", hidden: !runs }, this.open, this.inside);
  }

  /** The gradient in view, the token whose row of the embedding it reaches most, and that of the logit taken away. */
  of(flow: Flow, side: Side, place: number, other: Required<Candidate> | null): void {
    this.chosen = { flow, side, place, other };
    const { all, row } = this.t.movers;
    const at = Math.max(0, this.moves.selectedIndex);
    const name = this.model.record[side][place]![0];
    this.moves.replaceChildren(el("option", {}, all), el("option", {}, row(name)));
    this.moves.selectedIndex = at;
    if (!this.inside.hidden) this.show();
  }

  private show(): void {
    const trial = this.trial();
    if (!trial || !this.chosen) return;
    const { record } = this.model;
    const { flow, side, place, other } = this.chosen;
    const { runner } = trial;
    const tokens = record.steps.map(({ token }) => token);
    const ended = runner.record.stacks.decoder !== undefined && tokens.at(-1) === runner.record.end;
    const answer = { ids: ended ? tokens.slice(0, -1) : tokens, losses: [], ended };
    const reading = trial.readingOf(trial.piece, answer, trial.expected === "");
    this.root.hidden = reading === null; // a record of token ids has no text that the page could read
    if (!reading) return;
    this.open.hidden = true;
    this.inside.hidden = false;
    const between = other && { row: flow.place, token: record.steps[flow.step]!.token, other: other[3] };
    const fed: Fed = { ...reading, off: new Set(), counted: (l) => l === flow.step, between };
    const gradients = gradientsOf(runner, fed);
    const all = step(gradients);
    const stack = side === "source" ? "encoder" : "decoder";
    const tensor = runner.record.stacks[stack]!.embed.tokens;
    const id = side === "source" ? reading.memory.ids[place]! : [...reading.memory.prompt, ...answer.ids][place]!;
    const width = runner.tensors[tensor]!.columns;
    const by = (all[tensor]!.by as Float32Array).subarray(id * width, (id + 1) * width);
    const edit = { parts: this.moves.selectedIndex === 0 ? all : [{ tensor, at: id * width, by }] };
    const edited = new Edited(runner, fed, edit);
    const known = slope(edit, gradients, fed);
    const range = stepRange(edited, known);
    void this.curve.show({ edited, slope: known, range, opens: stepOpens(range), symbol: "η", name: this.moves.value, letter: other ? "ℓ − ℓ′" : "L" });
  }
}
