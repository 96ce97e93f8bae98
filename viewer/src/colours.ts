// Tables of 256 colours made from the page's style, so that light and dark follow it.

import { token } from "./dom.ts";
import type { Label } from "./record.ts";

export type Table = Uint32Array;

export interface Colours {
  /** Weight 0 … 1, by its square root. */
  weight: Table;
  /** −1 … 1 at 128 ± 127, by the square root of its size. */
  signed: Table;
  masked: number;
  ink: string;
  muted: string;
  accent: string;
  line: string;
  surface: string;
}

export function readColours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(name).trim();
  const ramp = ["--w0", "--w1", "--w2", "--w3", "--w4"].map((name) => parse(read(name)));
  const [low, zero, high] = ["--below", "--w0", "--above"].map((name) => parse(read(name)));
  return {
    weight: table(ramp),
    signed: table([low!, zero!, high!]),
    masked: pack(parse(read("--masked"))),
    ink: read("--ink"),
    muted: read("--muted"),
    accent: read("--accent"),
    line: read("--line"),
    surface: read("--surface"),
  };
}

/** Place of a weight in its table. */
export function weightIndex(w: number): number {
  return Math.round(255 * Math.sqrt(w));
}

/** Place of x in the table of signed values, `most` the largest size. */
export function signedIndex(x: number, most: number): number {
  if (most === 0) return 128;
  return 128 + Math.round(127 * Math.sign(x) * Math.sqrt(Math.abs(x) / most));
}

export function css(colour: number, alpha = 1): string {
  return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255} / ${alpha})`;
}

/** Black or white, whichever reads better on a colour (WCAG 2's contrast). */
export function readableOn(colour: number): string {
  const [r, g, b] = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255].map((channel) => {
    const c = channel / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#fff" : "#000";
}

/** A token on the colour of a weight. */
export function weighed(label: Label, w: number, { weight }: Colours): HTMLElement {
  const chip = token(label);
  const shade = weight[weightIndex(w)]!;
  chip.style.setProperty("--shade", css(shade));
  chip.style.setProperty("--on-shade", readableOn(shade));
  return chip;
}

function table(stops: [number, number, number][]): Table {
  const colours = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const before = Math.min(Math.floor(at), stops.length - 2);
    const [a, b] = [stops[before]!, stops[before + 1]!];
    const mixed = a.map((from, c) => from + (b[c]! - from) * (at - before));
    colours[i] = pack(mixed as [number, number, number]);
  }
  return colours;
}

/** As canvas pixels are laid out in memory: red first. */
function pack([r, g, b]: [number, number, number]): number {
  return ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
}

function parse(hex: string): [number, number, number] {
  const value = parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}
