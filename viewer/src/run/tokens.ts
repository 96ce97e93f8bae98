// Text to tokens and back, for the tokenizers that pellucid.apps.view.runnable lets through.

import type { Label } from "../record.ts";
import type { TokenizerRecord } from "./model.ts";

const SPECIALS = 4;
const MARKS: { [character: string]: string } = { " ": "␣", "\t": "⇥", "\n": "↵", "\u00a0": "⍽" };

const NORMALISE: { [name: string]: (text: string) => string } = {
  nfc: (text) => text.normalize("NFC"),
  nfd: (text) => text.normalize("NFD"),
  lowercase: (text) => Array.from(text, (c) => c.toLowerCase()).join(""),
  whitespace: (text) => text.replace(/\p{White_Space}+/gu, " ").replace(/^ | $/g, ""),
  punctuation: (text) => text.replace(/[?.!,]/g, " $& "),
};

export class Tokenizer {
  private readonly record: TokenizerRecord;
  private readonly ids: Map<string, number>;
  private readonly unknown: number;

  constructor(record: TokenizerRecord, unknown: number) {
    this.record = record;
    this.unknown = unknown;
    this.ids = new Map(record.vocabulary.map((token, id) => [token, id]));
    for (const special of record.vocabulary.slice(0, SPECIALS)) this.ids.delete(special);
  }

  /** The characters or words of a text, normalised. */
  units(text: string): string[] {
    const { kind, normalise } = this.record;
    const normal = normalise.reduce((t, name) => NORMALISE[name]!(t), text);
    if (kind === "char") return Array.from(normal);
    return normal.split(/\p{White_Space}+/u).filter((word) => word !== "");
  }

  encode(text: string): number[] {
    return this.units(text).map((unit) => this.ids.get(unit) ?? this.unknown);
  }

  decode(ids: readonly number[]): string {
    const { kind, vocabulary, composes } = this.record;
    const shown = ids.filter((id) => id >= this.unknown).map((id) => vocabulary[id]!);
    const text = shown.join(kind === "char" ? "" : " ");
    return composes ? text.normalize("NFC") : text;
  }

  /** A token as a picture shows it; an unknown one by what was typed. */
  label(id: number, typed?: string): Label {
    if (id === this.unknown && typed !== undefined) return [MARKS[typed] ?? typed, "unknown"];
    const token = this.record.vocabulary[id]!;
    return [MARKS[token] ?? token, id < SPECIALS ? "special" : "text"];
  }
}
