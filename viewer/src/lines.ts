// A map as tokens linked by lines: queries on the left, keys on the right, the darker the heavier.

import type { Matrix } from "./attention.ts";
import { css, weightIndex } from "./colours.ts";
import type { Colours } from "./colours.ts";
import { MapView } from "./mapview.ts";
import type { Cell, MapEvents } from "./mapview.ts";
import type { Label } from "./record.ts";
import type { View } from "./surface.ts";
import { t } from "./text.ts";

/** Height of a row: few tokens have more, many have less, so that all are in view. */
const [LEAST_ROW, MOST_ROW] = [12, 36];
const HEIGHT = 660;
const TOP = 10;
/** Lighter lines are left out where every query's lines are drawn. */
const FAINTEST = 0.02;
const SHADES = 12;

export class LinesView extends MapView {
  private weights: Matrix | null = null;
  private row = LEAST_ROW;

  constructor(name: string, describedBy: string, colours: Colours, events: MapEvents) {
    super("lines", t.linesRole, name, describedBy, colours, events);
  }

  get rowHeight(): number {
    return this.row;
  }

  print(): void {
    this.fit();
    this.surface.flush();
  }

  setWeights(weights: Matrix, colours: Colours): void {
    this.weights = weights;
    this.colours = colours;
    this.surface.redraw();
  }

  setCursor(query: number, key: number): void {
    this.cursor = { query, key };
    for (const y of [this.place(query, this.rows), this.place(key, this.columns)]) {
      this.surface.reveal(0, y - this.row / 2, 0, this.row, 0, TOP);
    }
    this.surface.redraw();
  }

  protected fit(): void {
    const longest = Math.max(this.rows.length, this.columns.length);
    this.row = Math.max(LEAST_ROW, Math.min(MOST_ROW, (HEIGHT - 2 * TOP) / longest));
    this.surface.setSize(this.root.clientWidth, TOP * 2 + longest * this.row);
  }

  /** Middle of a token of a side: the shorter side is spread over the height of the longer. */
  private place(i: number, side: Label[]): number {
    const height = Math.max(this.rows.length, this.columns.length) * this.row;
    return TOP + ((i + 0.5) * height) / side.length;
  }

  /** The side of the mouse decides whether it moves the query or the key. */
  protected at(event: MouseEvent): Cell | null {
    const { x, y } = this.surface.place(event);
    const left = x < this.root.clientWidth / 2;
    const side = left ? this.rows : this.columns;
    const height = this.place(side.length - 0.5, side) - TOP;
    const i = Math.floor(((y - TOP) / height) * side.length);
    if (i < 0 || i >= side.length) return null;
    const { query, key } = this.cursor;
    return left ? { query: i, key } : { query, key: i };
  }

  protected get page(): number {
    return Math.max(1, Math.floor(this.root.clientHeight / this.row));
  }

  protected draw(context: CanvasRenderingContext2D, view: View): void {
    if (!this.weights) return;
    const side = Math.min(130, view.width * 0.3);
    const [from, to] = [side, view.width - side];
    const query = (i: number) => this.place(i, this.rows) - view.y;
    const key = (i: number) => this.place(i, this.columns) - view.y;
    this.drawAll(context, view, from, to, query, key);
    this.drawChosen(context, from, to, query, key);
    const size = Math.min(13, this.row - 1);
    context.textBaseline = "middle";
    const seen = (y: number) => y > -this.row && y < view.height + this.row;
    context.textAlign = "right";
    this.rows.forEach((label, i) => {
      if (!seen(query(i))) return;
      this.style(context, label, i === this.cursor.query, size);
      context.fillText(label[0], from - 8, query(i), side - 12);
    });
    context.textAlign = "left";
    this.columns.forEach((label, i) => {
      if (!seen(key(i))) return;
      this.style(context, label, i === this.cursor.key, size);
      context.fillText(label[0], to + 8, key(i), side - 12);
    });
  }

  /** Every line, faint, those of one shade in one stroke. */
  private drawAll(
    context: CanvasRenderingContext2D,
    view: View,
    from: number,
    to: number,
    query: (i: number) => number,
    key: (i: number) => number,
  ): void {
    const { values, rows, columns } = this.weights!;
    const paths = Array.from({ length: SHADES + 1 }, () => new Path2D());
    for (let l = 0; l < rows; l++) {
      if (l === this.cursor.query) continue;
      for (let s = 0; s < columns; s++) {
        const w = values[l * columns + s]!;
        if (w < FAINTEST) continue;
        const [a, b] = [query(l), key(s)];
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
    queryAt: (i: number) => number,
    keyAt: (i: number) => number,
  ): void {
    const { values, columns } = this.weights!;
    const { query, key } = this.cursor;
    const start = queryAt(query);
    for (let s = 0; s < columns; s++) {
      const w = values[query * columns + s]!;
      if (w <= 0) continue;
      const colour = this.colours.weight[Math.max(90, weightIndex(w))]!;
      context.strokeStyle = s === key ? this.colours.accent : css(colour, Math.sqrt(w));
      context.lineWidth = 0.5 + 5 * w;
      context.beginPath();
      const end = keyAt(s);
      context.moveTo(from, start);
      context.bezierCurveTo((from + to) / 2, start, (from + to) / 2, end, to, end);
      context.stroke();
      context.fillStyle = css(this.colours.weight[weightIndex(w)]!);
      context.fillRect(to, end - this.row / 2 + 2, 5, this.row - 4);
    }
  }
}
