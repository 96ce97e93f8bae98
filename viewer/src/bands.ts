// Letters above, what is written below, and between them bands as wide as the attention's weights.

import { percent, svg } from "./dom.ts";

/** Weights from here on are drawn. */
const SEEN = 0.04;
/** The picture's height and that of a row of letters; letters take this part of their column at most. */
const [HEIGHT, ROW, LARGE, FILLS] = [250, 46, 34, 0.8];

/** A text as a model reads it, what it writes, and how much each token written looks at each one read. */
export interface Looking {
  letters: string[];
  sounds: string[];
  chances: number[];
  /** (sounds, letters) */
  weights: number[][];
}

/** `chosen` is the sound whose bands stand out, unless all do. */
export function bands({ letters, sounds, chances, weights }: Looking, width: number, chosen: number | null = null): SVGElement {
  const columns = [letters, sounds].map((row) => Math.min(width / row.length, 2.6 * LARGE));
  const x = (row: 0 | 1, i: number) => width / 2 + (i + 0.5 - [letters, sounds][row]!.length / 2) * columns[row]!;
  const size = Math.min(LARGE, FILLS * Math.max(columns[0]!, columns[1]!));
  const [top, bottom] = [ROW, HEIGHT - ROW];
  const half = (top + bottom) / 2;
  const write = (row: 0 | 1, i: number, text: string, y: number, about: { [name: string]: string | number } = {}) =>
    svg("text", { x: x(row, i), y, "text-anchor": "middle", "font-size": size * Math.min(1, 2 / Array.from(text).length), ...about }, text);
  const drawn = weights.flatMap((row, l) =>
    row.map((weight, s) => {
      if (weight < SEEN) return null;
      const [from, to] = [x(0, s), x(1, l)];
      const d = `M${from} ${top}C${from} ${half} ${to} ${half} ${to} ${bottom}`;
      const faint = chosen === null || chosen === l ? {} : { class: "faint" };
      const band = svg("path", { d, "stroke-width": weight * 0.55 * Math.min(...columns), "data-weight": weight, ...faint });
      band.append(svg("title", {}, `${letters[s]} → ${sounds[l]}: ${percent(weight)}`));
      return band;
    }),
  );
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT },
    ...drawn,
    ...letters.map((letter, s) => write(0, s, letter, ROW - 14)),
    ...sounds.map((sound, l) => write(1, l, sound, HEIGHT - 16, { class: "written", opacity: 0.35 + 0.65 * chances[l]! })),
  );
}
