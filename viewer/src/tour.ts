// A tour of ten stops: each chooses what the page shows, marks it and says what it is.

import { clamp, el } from "./dom.ts";
import type { Model } from "./model.ts";
import type { State } from "./store.ts";
import { t } from "./text.ts";

interface Stop {
  name: keyof typeof t.tour.stops;
  /** What the page shows then. */
  shows: Partial<State>;
  /** What is marked. */
  part: string;
}

const STOPS: Stop[] = [
  { name: "search", shows: { tab: "attention", form: "matrix" }, part: ".large" },
  { name: "tokens", shows: { tab: "attention", form: "lines" }, part: ".large .map" },
  { name: "score", shows: { tab: "steps" }, part: ".strips" },
  { name: "scale", shows: { tab: "steps", scale: 1 }, part: ".stage:nth-child(2)" },
  { name: "softmax", shows: { tab: "steps" }, part: ".numbers-region" },
  { name: "output", shows: { tab: "steps" }, part: ".stage:nth-child(5)" },
  { name: "heads", shows: { tab: "attention", form: "matrix" }, part: ".overview" },
  { name: "mask", shows: { tab: "attention", form: "matrix" }, part: ".large" },
  { name: "gradient", shows: { tab: "backward" }, part: "[data-step=dA]" },
  { name: "answer", shows: { tab: "generation" }, part: ".generation > section:last-child" },
];

export class Tour {
  readonly button: HTMLElement;
  readonly root: HTMLElement;
  private readonly stops: Stop[];
  private readonly place = el("p", { class: "hint" });
  private readonly title = el("h2");
  private readonly text = el("p");
  private readonly back = this.step(-1, t.tour.back);
  private readonly next = this.step(1, t.tour.next);

  constructor(private readonly model: Model) {
    // What is not generated has no search.
    this.stops = model.guesses ? STOPS.filter(({ name }) => name !== "answer") : STOPS;
    this.button = el(
      "button",
      { type: "button", class: "quiet", id: "tour-start", onclick: () => this.go(0) },
      t.tour.name,
    );
    this.root = el(
      "section",
      { class: "tour", "aria-label": t.tour.name },
      el("div", { "aria-live": "polite" }, this.place, this.title, this.text),
      el(
        "div",
        { class: "presets" },
        this.back,
        this.next,
        el("button", { type: "button", onclick: () => this.close() }, t.close),
      ),
    );
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      else if (event.key === "ArrowRight") this.go((model.state.tour ?? 0) + 1);
      else if (event.key === "ArrowLeft") this.go((model.state.tour ?? 0) - 1);
    });
    model.store.listen(() => this.show(), "tour", "tab");
    this.show();
  }

  private step(by: number, name: string): HTMLButtonElement {
    return el(
      "button",
      { type: "button", onclick: () => this.go((this.model.state.tour ?? 0) + by) },
      name,
    );
  }

  private go(to: number): void {
    const { store, kinds, state } = this.model;
    const first = state.tour === null;
    const tour = clamp(to, this.stops.length);
    const stop = this.stops[tour]!;
    if (stop.name === "mask" && kinds.includes("decoder")) this.model.chooseKind("decoder");
    store.set({ scale: null, ...stop.shows, tour });
    if (first) requestAnimationFrame(() => this.next.focus());
  }

  private close(): void {
    this.model.store.set({ tour: null, scale: null });
    this.button.focus();
  }

  private show(): void {
    const { tour } = this.model.state;
    this.root.hidden = tour === null;
    document.body.toggleAttribute("data-tour", tour !== null);
    for (const marked of document.querySelectorAll(".toured")) marked.classList.remove("toured");
    if (tour === null) return;
    const stop = this.stops[tour]!;
    const [title, text] = t.tour.stops[stop.name];
    this.place.textContent = t.tour.place(tour + 1, this.stops.length);
    this.title.textContent = title!;
    this.text.textContent = text!;
    this.back.disabled = tour === 0;
    this.next.disabled = tour === this.stops.length - 1;
    const part = document.querySelector(stop.part);
    if (!part || this.model.state.tab !== stop.shows.tab) return;
    part.classList.add("toured");
    // After what else follows the change has its size.
    requestAnimationFrame(() => requestAnimationFrame(() => part.scrollIntoView()));
  }
}
