// A map as tokens linked by lines: queries on the left, keys on the right, the darker the heavier.

import type { Matrix } from "./attention.ts";
import { css, weightIndex } from "./colours.ts";
import type { Colours } from "./colours.ts";
import { clamp } from "./dom.ts";
import type { Cell, MatrixEvents } from "./matrix.ts";
import { font } from "./matrix.ts";
import type { Label } from "./record.ts";
import { Surface } from "./surface.ts";
import type { View } from "./surface.ts";
import { t } from "./text.ts";

export const ROW = 22;
const TOP = 10;
/** Lighter lines are left out where every query's lines are drawn. */
const FAINTEST = 0.02;
const SHADES = 12;

export class LinesView {
  private readonly surface: Surface;
  private rows: Label[] = [];
  private columns: Label[] = [];
  private weights: Matrix | null = null;
  private cursor: Cell = { query: 0, key: 0 };
  private colours: Colours;

  constructor(name: string, describedBy: string, colours: Colours, events: MatrixEvents) {
    this.colours = colours;
    const attributes = {
      class: "surface lines",
      role: "application",
      "aria-roledescription": t.linesRole,
      "aria-label": name,
      "aria-describedby": describedBy,
    };
    const draw = (context: CanvasRenderingContext2D, view: View) => this.draw(context, view);
    this.surface = new Surface(attributes, draw, () => this.fit());
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
    this.rows = rows;
    this.columns = columns;
    this.fit();
  }

  setWeights(weights: Matrix, colours: Colours): void {
    this.weights = weights;
    this.colours = colours;
    this.surface.redraw();
  }

  setCursor(query: number, key: number): void {
    this.cursor = { query, key };
    this.surface.reveal(0, TOP + query * ROW, 0, ROW, 0, TOP);
    this.surface.redraw();
  }

  private fit(): void {
    const longest = Math.max(this.rows.length, this.columns.length);
    this.surface.setSize(this.root.clientWidth, TOP * 2 + longest * ROW);
  }

  /** The side of the mouse decides whether it moves the query or the key. */
  private at(event: MouseEvent): Cell | null {
    const { x, y } = this.surface.place(event);
    const i = Math.floor((y - TOP) / ROW);
    if (i < 0) return null;
    const { query, key } = this.cursor;
    if (x < this.root.clientWidth / 2) return i < this.rows.length ? { query: i, key } : null;
    return i < this.columns.length ? { query, key: i } : null;
  }

  private key(event: KeyboardEvent, events: MatrixEvents): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { query, key } = this.cursor;
    const moves: { [name: string]: [number, number] } = {
      ArrowUp: [query - 1, key],
      ArrowDown: [query + 1, key],
      ArrowLeft: [query, key - 1],
      ArrowRight: [query, key + 1],
      Home: [0, key],
      End: [this.rows.length - 1, key],
    };
    const move = moves[event.key];
    if (move) {
      events.picked({
        query: clamp(move[0], this.rows.length),
        key: clamp(move[1], this.columns.length),
      });
    }
    if (move || events.pressed(event.key)) event.preventDefault();
  }

  private draw(context: CanvasRenderingContext2D, view: View): void {
    if (!this.weights) return;
    const side = Math.min(130, view.width * 0.3);
    const [from, to] = [side, view.width - side];
    const y = (i: number) => TOP + (i + 0.5) * ROW - view.y;
    this.drawAll(context, view, from, to, y);
    this.drawChosen(context, from, to, y);
    context.textBaseline = "middle";
    const first = Math.max(0, Math.floor((view.y - TOP) / ROW));
    const last = Math.ceil((view.y + view.height) / ROW);
    context.textAlign = "right";
    this.rows.slice(first, last).forEach((label, i) => {
      this.style(context, label, first + i === this.cursor.query);
      context.fillText(label[0], from - 8, y(first + i), side - 12);
    });
    context.textAlign = "left";
    this.columns.slice(first, last).forEach((label, i) => {
      this.style(context, label, first + i === this.cursor.key);
      context.fillText(label[0], to + 8, y(first + i), side - 12);
    });
  }

  /** Every line, faint, those of one shade in one stroke. */
  private drawAll(
    context: CanvasRenderingContext2D,
    view: View,
    from: number,
    to: number,
    y: (i: number) => number,
  ): void {
    const { values, rows, columns } = this.weights!;
    const paths = Array.from({ length: SHADES + 1 }, () => new Path2D());
    for (let l = 0; l < rows; l++) {
      if (l === this.cursor.query) continue;
      for (let s = 0; s < columns; s++) {
        const w = values[l * columns + s]!;
        if (w < FAINTEST) continue;
        const [a, b] = [y(l), y(s)];
        if (Math.max(a, b) < 0 || Math.min(a, b) > view.height) continue;
        const path = paths[Math.ceil(w * SHADES)]!;
        path.moveTo(from, a);
        path.lineTo(to, b);
      }
    }
    context.strokeStyle = this.colours.muted;
    context.lineWidth = 1;
    paths.forEach((path, shade) => {
      context.globalAlpha = 0.5 * (shade / SHADES);
      context.stroke(path);
    });
    context.globalAlpha = 1;
  }

  private drawChosen(
    context: CanvasRenderingContext2D,
    from: number,
    to: number,
    y: (i: number) => number,
  ): void {
    const { values, columns } = this.weights!;
    const { query, key } = this.cursor;
    for (let s = 0; s < columns; s++) {
      const w = values[query * columns + s]!;
      if (w <= 0) continue;
      const colour = this.colours.weight[Math.max(90, weightIndex(w))]!;
      context.strokeStyle = s === key ? this.colours.accent : css(colour, Math.sqrt(w));
      context.lineWidth = 0.5 + 5 * w;
      context.beginPath();
      context.moveTo(from, y(query));
      context.bezierCurveTo((from + to) / 2, y(query), (from + to) / 2, y(s), to, y(s));
      context.stroke();
      context.fillStyle = css(this.colours.weight[weightIndex(w)]!);
      context.fillRect(to, y(s) - ROW / 2 + 2, 5, ROW - 4);
    }
  }

  private style(context: CanvasRenderingContext2D, label: Label, chosen: boolean): void {
    context.font = font(13, chosen ? 700 : 400);
    const plain = label[1] === "text" ? this.colours.ink : this.colours.muted;
    context.fillStyle = chosen ? this.colours.accent : plain;
  }
}
