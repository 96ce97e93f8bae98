// A canvas that scrolls: as large as what is seen of it, whatever the size of the whole picture.

import { el } from "./dom.ts";

export interface View {
  /** How far the picture is scrolled. */
  x: number;
  y: number;
  /** What is seen of it, in CSS pixels. */
  width: number;
  height: number;
}

/** Draw what is seen: the whole, or only the inside, whose labels stay as they are. */
type Draw = (context: CanvasRenderingContext2D, view: View, whole: boolean) => void;

export class Surface {
  readonly root: HTMLElement;
  private readonly canvas = el("canvas");
  private readonly spacer: HTMLElement;
  private scheduled = false;
  /** Whether more than the inside has changed. */
  private whole = true;

  constructor(
    attributes: Record<string, string>,
    private readonly draw: Draw,
    resized: () => void,
  ) {
    this.spacer = el("div", { class: "spacer" }, this.canvas);
    this.root = el("div", { tabindex: 0, ...attributes }, this.spacer);
    this.root.addEventListener("scroll", () => this.redraw());
    new ResizeObserver(resized).observe(this.root);
  }

  /** Set the size of the whole picture; what is seen of it follows the page's style. */
  setSize(width: number, height: number): void {
    this.spacer.style.width = `${width}px`;
    this.spacer.style.height = `${height}px`;
    this.redraw();
  }

  /** Paint before the browser's next picture: all, or only what is inside the labels. */
  redraw(whole = true): void {
    this.whole ||= whole;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.flush());
  }

  /** Paint now what is to be painted. */
  flush(): void {
    if (!this.scheduled) return;
    this.scheduled = false;
    this.paint();
  }

  /** Where a mouse event happened in the whole picture, and in what is seen of it. */
  place(event: MouseEvent): { x: number; y: number; seenX: number; seenY: number } {
    const box = this.canvas.getBoundingClientRect();
    const seenX = event.clientX - box.left;
    const seenY = event.clientY - box.top;
    return { x: seenX + this.root.scrollLeft, y: seenY + this.root.scrollTop, seenX, seenY };
  }

  /** Scroll just so far that a box lies in what is seen below and right of the margins. */
  reveal(x: number, y: number, width: number, height: number, left: number, top: number): void {
    const { root } = this;
    if (x - left < root.scrollLeft) root.scrollLeft = x - left;
    else if (x + width > root.scrollLeft + root.clientWidth)
      root.scrollLeft = x + width - root.clientWidth;
    if (y - top < root.scrollTop) root.scrollTop = y - top;
    else if (y + height > root.scrollTop + root.clientHeight)
      root.scrollTop = y + height - root.clientHeight;
  }

  private paint(): void {
    const { root, canvas } = this;
    const width = Math.min(root.clientWidth, this.spacer.offsetWidth);
    const height = Math.min(root.clientHeight, this.spacer.offsetHeight);
    if (width === 0 || height === 0) return;
    const ratio = devicePixelRatio;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      this.whole = true;
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.whole) context.clearRect(0, 0, width, height);
    this.draw(context, { x: root.scrollLeft, y: root.scrollTop, width, height }, this.whole);
    this.whole = false;
  }
}
