// What the reader has chosen. Every part of the page draws itself from it and changes only it.

import type { Cell } from "./record.ts";
import type { Language } from "./text.ts";

export type Tab = "whole" | "attention" | "steps" | "backward" | "generation" | "run";
export type Beside = "weights" | "scores" | "change" | "head" | "other";

/** Cell width in pixels, or large enough to read, or the whole map in view. */
export type Zoom = number | "readable" | "whole";

/** Layer, head, query and key count from 0 here and from 1 on the page. */
export interface State extends Cell {
  tab: Tab;
  /** The chosen token of the side that the attention in view does not read. */
  other: number;
  /** The part of the whole model in view, from 0. */
  part: number;
  /** The derivation that Backward shows; null: the attention in view. */
  through: number | null;
  /** An entry of a head's vectors, from 0. */
  entry: number;
  /** What scores are multiplied by; null: by the model's own scale. */
  scale: number | null;
  form: "matrix" | "lines";
  beside: Beside;
  /** The head that the one in view is compared with, of this record or of the one beside it. */
  layer2: number;
  head2: number;
  zoom: Zoom;
  step: number;
  /** The token that the one of this step is compared with in Backward, by its id; null: none. */
  rather: number | null;
  node: number;
  /** Of a page with a film the frame in view, from 0. */
  frame: number;
  /** The stop of the tour, from 0; null: none. */
  tour: number | null;
  theme: "auto" | "light" | "dark";
  /** Which time the colours were read; a new number asks for new pictures. */
  colours: number;
  language: Language;
}

type Listener = (state: State, changed: ReadonlySet<keyof State>) => void;

export class Store {
  private listeners: { listener: Listener; of: readonly (keyof State)[] }[] = [];
  private changed = new Set<keyof State>();
  private scheduled = false;

  constructor(public state: State) {}

  /** Change some choices; listeners are called once, before the next picture. */
  set(change: Partial<State>): void {
    for (const name of Object.keys(change) as (keyof State)[]) {
      if (this.state[name] !== change[name]) this.changed.add(name);
    }
    this.state = { ...this.state, ...change };
    if (this.changed.size > 0 && !this.scheduled) {
      this.scheduled = true;
      requestAnimationFrame(() => this.flush());
    }
  }

  /** Ask every part to draw itself, as after a change of tab. */
  redraw(): void {
    this.changed.add("tab");
    this.set({});
  }

  /** Call the listeners now. */
  flush(): void {
    if (this.scheduled) this.notify();
  }

  /** Call the listener after every change, or after those of some choices. */
  listen(listener: Listener, ...of: readonly (keyof State)[]): void {
    this.listeners.push({ listener, of });
  }

  private notify(): void {
    const changed = this.changed;
    this.changed = new Set();
    this.scheduled = false;
    for (const { listener, of } of this.listeners) {
      if (of.length === 0 || of.some((name) => changed.has(name))) listener(this.state, changed);
    }
  }
}
