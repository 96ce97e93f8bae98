// BERT's tokenizer, WordPiece: a word is cut into the longest pieces that there are, from its beginning.

import type { Label } from "../record.ts";
import type { BertRecord, TokenizerRecord } from "./model.ts";
import { Tokenizer, escaped } from "./tokens.ts";

const MASK = "[MASK]";
const IDEOGRAPHS =
  "\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{2a6df}\\u{2a700}-\\u{2b81f}\\u{2b920}-\\u{2ceaf}\\u{2f800}-\\u{2fa1f}";

export function tokenizerOf(record: TokenizerRecord, unknown: number, mask?: number): Tokenizer {
  return record.pieces ? new WordPieces(record.pieces, mask) : new Tokenizer(record, unknown, mask);
}

class WordPieces extends Tokenizer {
  private readonly file: BertRecord;
  /** What is a token wherever it is, between what is not; a word, or a character that is a word. */
  private readonly added: RegExp;
  private readonly words: RegExp;
  private readonly silent: ReadonlySet<number>;

  constructor(file: BertRecord, mask?: number) {
    const { normalizer, model, added_tokens: added } = file;
    const vocabulary: string[] = [];
    for (const [piece, id] of Object.entries(model.vocab)) vocabulary[id] = piece;
    for (const { content, id } of added) vocabulary[id] = content;
    const accents = normalizer.strip_accents ?? normalizer.lowercase;
    const reading = {
      unseen: normalizer.clean_text ? `[\\p{Co}${escaped(file.unseen)}]` : "[]",
      form: accents ? ("NFD" as const) : ("" as const),
      replaced: Object.fromEntries(Array.from(accents ? file.marks : "", (mark) => [mark, ""])),
      edges: "",
    };
    const normalise = normalizer.lowercase ? ["lowercase"] : [];
    super({ kind: "pieces", vocabulary: Array.from(vocabulary, (name) => name ?? ""), reading, normalise, composes: false, merges: [] }, model.vocab[model.unk_token]!);
    this.file = file;
    vocabulary.forEach((name, id) => this.ids.set(name, id));
    if (mask !== undefined) this.ids.set(MASK, mask);
    const names = [...added.map(({ content }) => content), ...(mask === undefined ? [] : [MASK])];
    this.added = new RegExp(`(${names.sort((a, b) => b.length - a.length).map(escaped).join("|") || "(?!)"})`, "u");
    const alone = escaped(file.alone) + (normalizer.handle_chinese_chars ? IDEOGRAPHS : "");
    this.words = new RegExp(`[${alone}]|[^\\p{White_Space}${alone}]+`, "gu");
    this.silent = new Set(added.flatMap(({ id, special }) => (special ? [id] : [])));
  }

  override units(text: string): string[] {
    return text.split(this.added).flatMap((part, i) => (i % 2 ? [part] : (this.normal(part).match(this.words) ?? []).flatMap((word) => this.pieced(word))));
  }

  /** Of what is left of a word the longest beginning that has a token; a word that ends in none is unknown. */
  private pieced(word: string): string[] {
    const { continuing_subword_prefix: prefix, max_input_chars_per_word: longest } = this.file.model;
    const letters = Array.from(word);
    const found: string[] = [];
    for (let [at, end] = [0, 0]; at < letters.length; at = end) {
      const piece = () => (at > 0 ? prefix : "") + letters.slice(at, end).join("");
      for (end = letters.length; end > at && !this.ids.has(piece()); ) end--;
      if (end === at || letters.length > longest) return [word];
      found.push(piece());
    }
    return found;
  }

  override encode(text: string): number[] {
    const [before, behind] = this.file.around;
    return [...before, ...super.encode(text), ...behind];
  }

  override decode(ids: readonly number[]): string {
    const { prefix, cleanup } = this.file.decoder;
    const pieces = ids.filter((id) => !this.silent.has(id)).map((id) => this.record.vocabulary[id] ?? "");
    const spaced = pieces.map((piece, i) => (i === 0 ? piece : piece.startsWith(prefix) ? piece.slice(prefix.length) : ` ${piece}`));
    return spaced.map((piece) => (cleanup ? piece.replace(/ (?=[.?!,]|n't|'(m|s|ve|re))/g, "") : piece)).join("");
  }

  protected override special(id: number): boolean {
    return id in this.file.specials;
  }

  override label(id: number, typed?: string): Label {
    const name = this.file.specials[id];
    return name === undefined ? super.label(id, typed) : [name, "special"];
  }

  override labels(ids: readonly number[], typed: readonly string[] = []): Label[] {
    return super.labels(ids, [...this.file.around[0].map(() => ""), ...typed]);
  }
}
