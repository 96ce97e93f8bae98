// What a model can be taught in the page: made tasks, or the reader's own pairs.

import type { TokenizerRecord } from "../run/model.ts";
import { Tokenizer } from "../run/tokens.ts";
import { Random } from "./random.ts";

export const SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"];
export const [BEGIN, END, UNKNOWN] = [1, 2, 3];

export type Pair = readonly [source: string, target: string];
export type TaskName = "numbers" | "reverse" | "sort" | "pairs";

/** A task: what is drawn for training, what is held out of it, and the right answer if one is known. */
export interface Task {
  kinds: { source: "char" | "word"; target: "char" | "word" };
  vocabulary: { source: string[]; target: string[] };
  draw: (random: Random) => Pair;
  heldOut: readonly Pair[];
  right: (source: string) => string | null;
  example: string;
}

const ENGLISH: [number, string][] = [
  ...("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " +
    "seventeen eighteen nineteen").split(" ").map((word, i): [number, string] => [i + 1, word]),
  ...("twenty thirty forty fifty sixty seventy eighty ninety").split(" ").map((word, i): [number, string] => [10 * (i + 2), word]),
  [100, "hundred"],
  [1000, "thousand"],
];
const KOREAN: [number, string][] = [
  ...Array.from("일이삼사오육칠팔구십").map((word, i): [number, string] => [i + 1, word]),
  [100, "백"],
  [1000, "천"],
  [10_000, "만"],
];
const LETTERS = "abcdefghij";
/** One number in so many is held out, and one word. */
const [SEVENTH, REST] = [7, 3];
/** So many unseen examples are asked at most, and so many pairs of a reader's are held out, one in ten. */
const ASKED = 500;
export const FEWEST_PAIRS = 20;
export const MOST_PAIRS = 2000;

/** A number in words: the largest size that fits, before it how often, after it the rest. */
export function words(n: number, names: readonly [number, string][]): string[] {
  for (let i = names.length - 1; i >= 0; i--) {
    const [size, name] = names[i]!;
    if (n < size) continue;
    const counted = n >= 2 * size || name === "hundred" || name === "thousand"; // one hundred; 백
    const count = counted ? words(Math.floor(n / size), names) : [];
    return [...count, name, ...words(n % size, names)];
  }
  return [];
}

/** The number that English words say; null where they say none. */
function valueOf(said: readonly string[]): number | null {
  const sizes = new Map(ENGLISH.map(([size, word]) => [word, size]));
  let [whole, part] = [0, 0];
  for (const word of said) {
    const size = sizes.get(word);
    if (size === undefined) return null;
    if (size === 1000) [whole, part] = [whole + part * 1000, 0];
    else part = size === 100 ? part * 100 : part + size;
  }
  return inEnglish(whole + part) === said.join(" ") ? whole + part : null;
}

export const inEnglish = (n: number) => words(n, ENGLISH).join(" ");
export const inKorean = (n: number) => words(n, KOREAN).join("");

/** Numbers of up to six digits, half of which are 0, as in examples/transformer.py. */
function number(random: Random): number {
  let n = 0;
  for (let i = 0; i < 6; i++) n = 10 * n + random.below(1, 10) * random.below(0, 2);
  return Math.max(n, 1);
}

function numbers(): Task {
  const random = new Random(7);
  const held = new Set<number>();
  while (held.size < ASKED) {
    const n = number(random);
    if (n % SEVENTH === REST) held.add(n);
  }
  const pair = (n: number): Pair => [inEnglish(n), inKorean(n)];
  return {
    kinds: { source: "word", target: "char" },
    vocabulary: { source: ENGLISH.map(([, word]) => word), target: KOREAN.map(([, word]) => word) },
    draw: (random) => {
      for (;;) {
        const n = number(random);
        if (n % SEVENTH !== REST) return pair(n);
      }
    },
    heldOut: [...held].map(pair),
    right: (source) => {
      const n = valueOf(source.trim().toLowerCase().split(/\s+/));
      return n !== null && n < 1_000_000 ? inKorean(n) : null;
    },
    example: inEnglish(456_788),
  };
}

/** Words of letters that a function rewrites; those whose letters add up to 3 modulo 7 are held out. */
function rewriting(rewrite: (letters: string[]) => string[]): Task {
  const word = (random: Random) =>
    Array.from({ length: random.below(3, 9) }, () => LETTERS[random.below(0, LETTERS.length)]!).join("");
  const out = (text: string) => Array.from(text).reduce((sum, c) => sum + c.charCodeAt(0), 0) % SEVENTH === REST;
  const right = (source: string) => rewrite(Array.from(source)).join("");
  const random = new Random(7);
  const held = new Set<string>();
  while (held.size < ASKED) {
    const text = word(random);
    if (out(text)) held.add(text);
  }
  return {
    kinds: { source: "char", target: "char" },
    vocabulary: { source: [...LETTERS], target: [...LETTERS] },
    draw: (random) => {
      for (;;) {
        const text = word(random);
        if (!out(text)) return [text, right(text)];
      }
    },
    heldOut: [...held].map((text) => [text, right(text)]),
    right,
    example: "jabhcdi",
  };
}

/** Lines of a reader's: source, tab, target. Returns the lines that are no pair, by their number. */
export function readPairs(text: string): { pairs: Pair[]; wrong: number[] } {
  const pairs: Pair[] = [];
  const wrong: number[] = [];
  text.replace(/^\uFEFF/, "").split(/\r?\n/).forEach((line, i) => {
    if (line.trim() === "") return;
    const columns = line.split("\t").map((column) => column.trim());
    if (columns.length < 2 || !columns[0] || !columns[1]) wrong.push(i + 1);
    else pairs.push([columns[0].normalize("NFC"), columns[1].normalize("NFC")]);
  });
  return { pairs, wrong };
}

function ownPairs(text: string): Task {
  const { pairs } = readPairs(text);
  // One source is on one side: every tenth of the different ones is held out.
  const sources = [...new Set(pairs.map(([source]) => source))];
  const out = new Set(sources.filter((_, i) => i % 10 === 9));
  const heldOut = pairs.filter(([source]) => out.has(source)).slice(0, ASKED);
  const learnt = pairs.filter(([source]) => !out.has(source));
  const letters = (side: 0 | 1) => [...new Set(pairs.flatMap((pair) => Array.from(pair[side])))].sort();
  const known = new Map(pairs.map(([source, target]) => [source, target]));
  return {
    kinds: { source: "char", target: "char" },
    vocabulary: { source: letters(0), target: letters(1) },
    draw: (random) => learnt[random.below(0, learnt.length)]!,
    heldOut,
    right: (source) => known.get(source) ?? null,
    example: (heldOut[0] ?? pairs[0] ?? ["", ""])[0],
  };
}

export function taskOf(name: TaskName, own = ""): Task {
  if (name === "pairs") return ownPairs(own);
  if (name === "numbers") return numbers();
  return rewriting(name === "reverse" ? (letters) => letters.reverse() : (letters) => letters.sort());
}

export function tokenizersOf({ kinds, vocabulary }: Task): { source: TokenizerRecord; target: TokenizerRecord } {
  const of = (side: "source" | "target"): TokenizerRecord => ({
    kind: kinds[side],
    vocabulary: [...SPECIALS, ...vocabulary[side]],
    normalise: kinds[side] === "word" ? ["whitespace", "lowercase"] : ["nfc"],
    reading: null,
    composes: false,
    merges: [],
  });
  return { source: of("source"), target: of("target") };
}

/** Ids of a pair: the source, what the decoder reads, and what it should write. */
export function idsOf(source: Tokenizer, target: Tokenizer, [text, answer]: Pair): [number[], number[], number[]] {
  const ids = target.encode(answer);
  return [source.encode(text), [BEGIN, ...ids], [...ids, END]];
}
