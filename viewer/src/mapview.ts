// What a matrix and linked tokens have in common: labels, a cursor, and how mouse and keys move it.

import type { Colours } from "./colours.ts";
import { clamp } from "./dom.ts";
import type { Label } from "./record.ts";
import { Surface } from "./surface.ts";
import type { View } from "./surface.ts";

export interface Cell {
  query: number;
  key: number;
}

export interface MapEvents {
  picked(cell: Cell): void;
  hovered(cell: Cell | null): void;
  /** A key that the map does not use itself; true if it was of use. */
  pressed(key: string): boolean;
}

export abstract class MapView {
  protected readonly surface: Surface;
  protected rows: Label[] = [];
  protected columns: Label[] = [];
  protected cursor: Cell = { query: 0, key: 0 };

  constructor(form: string, role: string, name: string, describedBy: string, protected colours: Colours, events: MapEvents) {
    const attributes = {
      class: `surface ${form}`,
      role: "application",
      "aria-roledescription": role,
      "aria-label": name,
      "aria-describedby": describedBy,
    };
    this.surface = new Surface(attributes, (...given) => this.draw(...given), () => this.fit());
    const { root } = this.surface;
    root.addEventListener("keydown", (event) => this.key(event, events));
    root.addEventListener("click", (event) => {
      const cell = this.at(event);
      if (cell) events.picked(cell);
    });
    root.addEventListener("mousemove", (event) => events.hovered(this.at(event)));
    root.addEventListener("mouseleave", () => events.hovered(null));
  }

  get root(): HTMLElement {
    return this.surface.root;
  }

  setLabels(rows: Label[], columns: Label[]): void {
    if (rows === this.rows && columns === this.columns) return;
    [this.rows, this.columns] = [rows, columns];
    this.fit();
  }

  protected abstract draw(context: CanvasRenderingContext2D, view: View, whole: boolean): void;

  protected abstract fit(): void;

  /** The cell that a mouse event is on. */
  protected abstract at(event: MouseEvent): Cell | null;

  /** How many rows are in view. */
  protected abstract get page(): number;

  /** How a label is written, in pixels of height. */
  protected style(context: CanvasRenderingContext2D, [, kind]: Label, chosen: boolean, size: number): void {
    const { accent, ink, muted } = this.colours;
    context.font = font(size, chosen ? 700 : 400);
    context.fillStyle = chosen ? accent : kind === "text" ? ink : muted;
  }

  private key(event: KeyboardEvent, events: MapEvents): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { query, key } = this.cursor;
    const moves: { [name: string]: [number, number] } = {
      ArrowUp: [query - 1, key],
      ArrowDown: [query + 1, key],
      ArrowLeft: [query, key - 1],
      ArrowRight: [query, key + 1],
      PageUp: [query - this.page, key],
      PageDown: [query + this.page, key],
      Home: [query, 0],
      End: [query, this.columns.length - 1],
    };
    const move = moves[event.key];
    if (move) {
      const [to, at] = move;
      events.picked({ query: clamp(to, this.rows.length), key: clamp(at, this.columns.length) });
    }
    if (move || events.pressed(event.key)) event.preventDefault();
  }
}

let family = "";

export function font(size: number, weight = 400): string {
  family ||= getComputedStyle(document.body).fontFamily;
  return `${weight} ${size}px ${family}`;
}
