// Text to tokens and back, for the tokenizers that pellucid.apps.view.runnable lets through.

import type { Label } from "../record.ts";
import type { TokenizerRecord } from "./model.ts";

const SPECIALS = 4;
const MASK = "[MASK]";
/** A mask while a text is divided: a character that no text has, and that is joined to no other. */
const HOLE = "\ufdd0";
const MARKS: { [character: string]: string } = { " ": "␣", "\t": "⇥", "\n": "↵", "\u00a0": "⍽" };

const NORMALISE: { [name: string]: (text: string) => string } = {
  nfc: (text) => text.normalize("NFC"),
  nfd: (text) => text.normalize("NFD"),
  lowercase: (text) => Array.from(text, (c) => c.toLowerCase()).join(""),
  whitespace: (text) => text.replace(/\p{White_Space}+/gu, " ").replace(/^ | $/g, ""),
  strip: (text) => text.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, ""),
  punctuation: (text) => text.replace(/[?.!,]/g, " $& "),
};

/** How GPT-2 divides a text before its bytes are joined; white space is Unicode's. */
const PIECES =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** The letter of each byte: those that print in Latin-1 are their own, the others follow U+0100. */
const LETTERS = Array.from({ length: 256 }, (_, byte) => byte);
const PRINTS = (b: number) => (b > 0x20 && b < 0x7f) || (b > 0xa0 && b < 0x100 && b !== 0xad);
const HIDDEN = LETTERS.filter((byte) => !PRINTS(byte));
const LETTER = LETTERS.map((b) => String.fromCharCode(PRINTS(b) ? b : 0x100 + HIDDEN.indexOf(b)));
const BYTE = new Map(LETTER.map((letter, byte) => [letter, byte]));

export class Tokenizer {
  protected readonly ids: Map<string, number>;
  private readonly ranks: Map<string, number>;
  private written: readonly [readonly string[], readonly string[]] | null = null;

  /** `mask` is the token of [MASK], where a text may have that. */
  constructor(protected readonly record: TokenizerRecord, protected readonly unknown: number, private readonly mask: number | null = null) {
    this.ids = new Map(record.vocabulary.map((token, id) => [token, id]));
    for (const special of record.vocabulary.slice(0, SPECIALS)) this.ids.delete(special);
    this.ranks = new Map(record.merges.map((pair, rank) => [pair.join(" "), rank]));
  }

  /** The characters, words or byte-level pieces of a text, normalised. */
  units(text: string): string[] {
    const { kind } = this.record;
    const normal = this.normal(this.holed(text));
    if (kind === "char") return Array.from(normal);
    if (kind === "label") return normal === "" ? [] : [normal];
    if (kind === "bpe") return (normal.match(PIECES) ?? []).flatMap((piece) => this.joined(piece));
    return normal.split(/\p{White_Space}+/u).filter((word) => word !== "");
  }

  protected normal(text: string): string {
    return this.record.normalise.reduce((t, name) => NORMALISE[name]!(t), this.read(text));
  }

  /** A text with a hole for each mask: between spaces among words, without a space before it among pieces. */
  private holed(text: string): string {
    if (this.mask === null) return text;
    const pieces = text.split(MASK);
    if (this.record.kind === "word") return pieces.join(` ${HOLE} `);
    return pieces.reduce((left, piece) => (this.record.kind === "bpe" ? left.replace(/\p{White_Space}+$/u, "") : left) + HOLE + piece);
  }

  /** A text with the characters of the texts that were learnt from. */
  private read(text: string): string {
    if (this.record.reading === null) return text;
    const { unseen, form, replaced, edges } = this.record.reading;
    const seen = text.replace(new RegExp(unseen, "gu"), "");
    const whole = Array.from(form ? seen.normalize(form) : seen, (c) => replaced[c] ?? c).join("");
    return edges ? NORMALISE[edges]!(whole) : whole;
  }

  /** The bytes of a piece, joined pair by pair in the order in which the merges were learned. */
  private joined(piece: string): string[] {
    const parts = Array.from(new TextEncoder().encode(piece), (byte) => LETTER[byte]!);
    for (;;) {
      const ranks = parts.slice(1).map((part, i) => this.ranks.get(`${parts[i]} ${part}`) ?? Infinity);
      const least = Math.min(Infinity, ...ranks);
      if (least === Infinity) return parts;
      const at = ranks.indexOf(least);
      parts.splice(at, 2, parts[at]! + parts[at + 1]!);
    }
  }

  known(unit: string): boolean {
    return this.record.kind === "bpe" || this.units(unit).every((one) => this.ids.has(one));
  }

  /** Whether more than half of a text's units have a token: of those with letters, if there are any. */
  knows(text: string): boolean {
    if (this.record.kind === "bpe") return true;
    const units = this.units(text).filter((unit) => unit.trim() !== "");
    const letters = units.filter((unit) => /[\p{L}\p{N}]/u.test(unit));
    const counted = letters.length > 0 ? letters : units;
    return 2 * counted.filter((unit) => (this.ids.get(unit) ?? this.unknown) === this.unknown).length < counted.length || counted.length === 0;
  }

  encode(text: string): number[] {
    const units = this.units(text);
    const ids = units.map((unit) => (unit === HOLE && this.mask !== null ? this.mask : (this.ids.get(unit) ?? this.unknown)));
    return this.mask !== null && this.record.kind === "bpe" ? this.masked(units, ids) : ids;
  }

  /** The pieces that write a hole are one mask. */
  private masked(units: string[], ids: number[]): number[] {
    const hole = Array.from(new TextEncoder().encode(HOLE), (byte) => LETTER[byte]!).join("");
    const whole = units.join("");
    const starts = [...whole.matchAll(new RegExp(hole, "gu"))].map(({ index }) => index);
    let [at, last] = [0, -1];
    return units.flatMap((unit, n) => {
      const [from, end] = [at, (at += unit.length)];
      const inside = starts.filter((start) => start < end && start + hole.length > from);
      if (inside.length === 0) return [ids[n]!];
      const added = inside.filter((start) => start > last);
      last = inside.at(-1)!;
      return added.map(() => this.mask!);
    });
  }

  protected special(id: number): boolean {
    return id < SPECIALS || id === this.mask;
  }

  decode(ids: readonly number[]): string {
    const { kind, vocabulary, composes } = this.record;
    // Among bytes nothing is unknown, and what stands for it leaves no trace.
    const first = kind === "bpe" ? SPECIALS : this.unknown;
    const shown = ids.filter((id) => id >= first && id !== this.mask).map((id) => vocabulary[id]!);
    let text = shown.join(kind === "word" ? " " : "");
    if (kind === "bpe") text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(text));
    return composes ? text.normalize("NFC") : text;
  }

  /** The bytes that each token writes at the beginning of a text, and elsewhere; none for a special one. */
  get spelled(): readonly [readonly string[], readonly string[]] {
    return (this.written ??= this.spell());
  }

  private spell(): readonly [readonly string[], readonly string[]] {
    const { kind, vocabulary } = this.record;
    const alone = vocabulary.map((token, id) => (id < SPECIALS ? "" : latin(kind === "bpe" ? bytesOf(token) : new TextEncoder().encode(token))));
    return [alone, kind === "word" ? alone.map((own, id) => (id < SPECIALS ? "" : ` ${own}`)) : alone];
  }

  /** The bytes of a text that goes on, normalised but for white space at its end. */
  beginning(text: string): string {
    const { kind } = this.record;
    let normal = this.normal(text);
    if (kind !== "bpe" && normal !== "" && /\p{White_Space}$/u.test(text) && !/\p{White_Space}$/u.test(normal)) normal += " ";
    return latin(new TextEncoder().encode(normal));
  }

  /** How many tokens it knows. */
  get size(): number {
    return this.record.vocabulary.length;
  }

  /** A token as a picture shows it; an unknown one by what was typed. */
  label(id: number, typed?: string): Label {
    const { kind, vocabulary } = this.record;
    if (id === this.unknown) return [visible(typed ?? vocabulary[id]!), "unknown"];
    const token = id === this.mask ? MASK : vocabulary[id]!;
    if (this.special(id)) return [token, "special"];
    return [kind === "bpe" ? shownBytes(token) : visible(token), "text"];
  }

  /** The tokens of a text; pieces that share a character show it and the part's number: 한₁ 한₂. */
  labels(ids: readonly number[], typed: readonly string[] = []): Label[] {
    const labels = ids.map((id, i) => this.label(id, typed[i]));
    if (this.record.kind !== "bpe") return labels;
    const of = ids.flatMap((id, holder) => (this.special(id) ? [] : Array.from(bytesOf(this.record.vocabulary[id]!), (byte) => ({ byte, holder }))));
    const texts = ids.map(() => "");
    const split = new Set<number>();
    for (let at = 0; at < of.length; ) {
      const lead = of[at]!.byte;
      const bytes = of.slice(at, at + (lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4));
      const holders = [...new Set(bytes.map(({ holder }) => holder))];
      const shown = characterOf(bytes.map(({ byte }) => byte));
      holders.forEach((holder, n) => (texts[holder] += (shown ?? "\ufffd") + (holders.length > 1 ? SUBSCRIPTS[n] : "")));
      if (shown !== null && holders.length > 1) holders.forEach((holder) => split.add(holder));
      at += bytes.length;
    }
    return labels.map((label, i) => (split.has(i) && !texts[i]!.includes("\ufffd") ? [visible(texts[i]!), "text"] : label));
  }
}

/** Characters as a regular expression has them, by their numbers. */
export function escaped(text: string): string {
  return Array.from(text, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`).join("");
}

const SUBSCRIPTS = "₁₂₃₄";

function characterOf(bytes: number[]): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return null;
  }
}

function visible(text: string): string {
  return text.replace(/[ \t\n\u00a0]/g, (c) => MARKS[c]!);
}

function bytesOf(letters: string): Uint8Array {
  return Uint8Array.from(letters, (letter) => BYTE.get(letter)!);
}

/** Bytes as a string, a character each. */
function latin(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

/** A piece as text, or where it is part of a character by its bytes: ‹ED95›. */
function shownBytes(piece: string): string {
  const bytes = bytesOf(piece);
  try {
    return visible(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return `‹${Array.from(bytes, (b) => b.toString(16).toUpperCase().padStart(2, "0")).join("")}›`;
  }
}
