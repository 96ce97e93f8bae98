// A map as a matrix: queries down, keys across, one cell under the cursor.

import type { Matrix, Rule } from "./attention.ts";
import { span } from "./attention.ts";
import type { Colours, Table } from "./colours.ts";
import { MapView, font } from "./mapview.ts";
import type { Cell, MapEvents } from "./mapview.ts";
import type { Label } from "./record.ts";
import type { Zoom } from "./store.ts";
import type { View } from "./surface.ts";
import { t } from "./text.ts";

const LARGEST_CELL = 44;
/** Cells side by side with another map are at least so wide. */
const COMFORTABLE_CELL = 18;
/** Smaller cells have no labels; the reader alone makes them so small. */
const LABELLED_CELL = 12;
const LONGEST_LABEL = 110;
const SLANT = Math.SQRT1_2;

/** Paint a matrix, one pixel for each cell, and cover what the rule forbids. */
export function pixels(
  canvas: HTMLCanvasElement,
  matrix: Matrix,
  rule: Rule,
  table: Table,
  masked: number,
  index: (x: number) => number,
): void {
  const { rows, columns, values } = matrix;
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(columns, rows);
  const out = new Uint32Array(image.data.buffer);
  for (let l = 0; l < rows; l++) {
    const start = l * columns;
    const [first, end] = span(l, columns, rule);
    for (let i = start + first; i < start + end; i++) out[i] = table[index(values[i]!)]!;
    out.fill(masked, start, start + first);
    out.fill(masked, start + end, start + columns);
  }
  context.putImageData(image, 0, 0);
}

export class MatrixView extends MapView {
  readonly canvas = document.createElement("canvas");
  private zoom: Zoom = "readable";
  private paper = false;
  private slope = 0;
  private cell = 1;
  private left = 0;
  private top = 0;
  private slanted = true;
  /** What the pointer is on, in this map or in the one beside it. */
  private pointed: Cell | null = null;

  constructor(name: string, describedBy: string, colours: Colours, events: MapEvents) {
    super("matrix", t.matrixRole, name, describedBy, colours, events);
  }

  setColours(colours: Colours): void {
    this.colours = colours;
    this.redraw();
  }

  setCursor(query: number, key: number): void {
    this.cursor = { query, key };
    const { cell, left, top } = this;
    // With the label that leans to the right above it.
    const width = Math.max(3 * cell, cell + this.slope);
    this.surface.reveal(left + key * cell, top + query * cell, width, cell, left, top);
    this.redraw();
  }

  setZoom(zoom: Zoom): void {
    this.zoom = zoom;
    this.fit();
  }

  get cellSize(): number {
    return this.cell;
  }

  /** Width of the whole map with cells that are easy to read. */
  get readableWidth(): number {
    return this.left + this.columns.length * COMFORTABLE_CELL + this.slope;
  }

  redraw(): void {
    this.surface.redraw();
  }

  point(cell: Cell | null): void {
    this.pointed = cell;
    this.redrawCells();
  }

  /** Draw other cells under the same labels. */
  redrawCells(): void {
    this.surface.redraw(false);
  }

  /** Draw at once all that fits on paper, or again as chosen. */
  print(paper: boolean): void {
    this.paper = paper;
    this.fit();
    this.surface.flush();
  }

  protected fit(): void {
    const width = this.root.clientWidth;
    if (width === 0 || this.columns.length === 0) return;
    const context = this.canvas.getContext("2d")!;
    const measure = (labels: Label[], size: number) => {
      context.font = font(size);
      const widths = labels.map(([text]) => context.measureText(text).width);
      return Math.min(LONGEST_LABEL, Math.max(...widths));
    };
    // Whole pixels, so that cells can be drawn anew without a trace at the labels' edge.
    this.left = Math.ceil(measure(this.rows, 13)) + 12;
    const longest = measure(this.columns, 13);
    const room = width - this.left;
    const cell = (slope: number) => {
      const zoom = this.paper ? "whole" : this.zoom;
      if (typeof zoom === "number") return zoom;
      const wide = Math.min(LARGEST_CELL, (room - slope) / this.columns.length);
      const top = slope + 16;
      const high = (parseFloat(getComputedStyle(this.root).maxHeight) - top) / this.rows.length;
      if (zoom === "whole") return Math.max(1.5, Math.min(wide, high || wide));
      // All rows in view, unless that makes cells small.
      return Math.max(LABELLED_CELL, Math.min(wide, Math.max(COMFORTABLE_CELL, high || wide)));
    };
    this.slanted = longest > cell(0) - 2;
    this.slope = this.slanted ? longest * SLANT : 0;
    this.top = this.slanted ? Math.ceil(this.slope) + 16 : 22;
    this.cell = cell(this.slope);
    this.surface.setSize(
      this.left + this.columns.length * this.cell + this.slope,
      this.top + this.rows.length * this.cell + 1,
    );
    this.setCursor(this.cursor.query, this.cursor.key);
  }

  protected at(event: MouseEvent): Cell | null {
    const { x, y, seenX, seenY } = this.surface.place(event);
    const key = Math.floor((x - this.left) / this.cell);
    const query = Math.floor((y - this.top) / this.cell);
    const inside = key >= 0 && query >= 0 && key < this.columns.length && query < this.rows.length;
    return inside && seenX >= this.left && seenY >= this.top ? { query, key } : null;
  }

  protected get page(): number {
    return Math.max(1, Math.floor((this.root.clientHeight - this.top) / this.cell));
  }

  protected draw(context: CanvasRenderingContext2D, view: View, whole: boolean): void {
    const { cell, left, top, colours } = this;
    const [across, down] = [this.columns.length * cell, this.rows.length * cell];
    context.save();
    context.beginPath();
    context.rect(left, top, view.width - left, view.height - top);
    context.clip();
    context.clearRect(left, top, view.width - left, view.height - top);
    context.translate(left - view.x, top - view.y);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(this.canvas, 0, 0, across, down);
    context.strokeStyle = colours.line;
    context.strokeRect(0.5, 0.5, across - 1, down - 1);
    const { query, key } = this.cursor;
    context.lineWidth = 1;
    const bands = [[this.cursor, colours.accent, 0.6], [this.pointed, colours.muted, 0.5]] as const;
    for (const [at, colour, alpha] of bands) {
      if (!at) continue;
      context.strokeStyle = colour;
      context.globalAlpha = alpha;
      context.strokeRect(0.5, at.query * cell + 0.5, across - 1, cell - 1);
      context.strokeRect(at.key * cell + 0.5, 0.5, cell - 1, down - 1);
    }
    context.strokeStyle = colours.accent;
    context.globalAlpha = 1;
    context.lineWidth = 2;
    const size = Math.max(cell, 4);
    context.strokeRect(key * cell, query * cell, size, size);
    context.restore();
    if (whole) this.drawLabels(context, view);
  }

  private drawLabels(context: CanvasRenderingContext2D, view: View): void {
    const { cell, left, top } = this;
    const all = cell >= LABELLED_CELL;
    const size = all ? Math.min(15, Math.max(9, cell * 0.7)) : 13;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, top, left, view.height - top);
    context.clip();
    context.textAlign = "right";
    this.eachLabel(this.rows, this.cursor.query, view.y, view.height - top, all, (label, i) => {
      this.style(context, label, i === this.cursor.query, size);
      const y = Math.max(top + size / 2, top + (i + 0.5) * cell - view.y);
      context.fillText(label[0], left - 6, y, left - 8);
    });
    context.restore();
    context.save();
    context.beginPath();
    context.moveTo(left, top);
    context.lineTo(left, 0);
    context.lineTo(view.width, 0);
    context.lineTo(view.width, top);
    context.clip();
    this.eachLabel(this.columns, this.cursor.key, view.x, view.width - left, all, (label, i) => {
      this.style(context, label, i === this.cursor.key, size);
      const x = left + (i + 0.5) * cell - view.x;
      if (this.slanted) {
        context.save();
        context.translate(x + 2, top - 5);
        context.rotate(-Math.PI / 4);
        context.textAlign = "left";
        context.fillText(label[0], 0, 0, LONGEST_LABEL);
        context.restore();
      } else {
        context.textAlign = "center";
        context.fillText(label[0], x, top - 10);
      }
    });
    context.restore();
  }

  /** Visit the labels in view, or where cells are too small to be labelled only the cursor's. */
  private eachLabel(
    labels: Label[],
    cursor: number,
    scrolled: number,
    room: number,
    all: boolean,
    visit: (label: Label, i: number) => void,
  ): void {
    const first = all ? Math.max(0, Math.floor(scrolled / this.cell)) : cursor;
    const last = all ? Math.ceil((scrolled + room) / this.cell) : cursor + 1;
    for (let i = first; i < Math.min(last, labels.length); i++) visit(labels[i]!, i);
  }
}
