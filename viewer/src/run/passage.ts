// A text in pieces that the model answers one by one, as pellucid.tasks.passage and Seq2SeqTask split it.

import type { PassageRecord } from "./model.ts";
import { escaped } from "./tokens.ts";
import type { Tokenizer } from "./tokens.ts";

export interface Passage {
  pieces: string[];
  /** What is before, between and behind them: one more. */
  kept: string[];
}

/** As Python's strip; trim() also takes byte order marks. */
const ENDS = /^\p{White_Space}+|\p{White_Space}+$/gu;
const LETTERS = /[\p{L}\p{N}]/u;

export function passageOf(text: string, rule: PassageRecord | undefined, source: Tokenizer, longest: number): Passage {
  const fits = (part: string) => source.encode(part).length <= longest;
  if (!rule || (rule.sentences === null && fits(text))) return { pieces: [text], kept: ["", ""] };
  const lines = text.split(new RegExp(rule.lines, "u"));
  const groups = rule.columns > 1 ? lines : lines.flatMap((line) => grouped(sentences(line, rule), rule.sentences, fits));
  const found: Passage = { pieces: [], kept: [""] };
  for (const part of rule.words ? groups.flatMap((group) => words(group, source)) : groups) {
    const core = part.replace(ENDS, "");
    if (core !== "" && (!rule.words || LETTERS.test(Array.from(core)[0]!)) && source.knows(core)) {
      const at = part.indexOf(core);
      found.kept.push(found.kept.pop()! + part.slice(0, at), part.slice(at + core.length));
      found.pieces.push(core);
    } else {
      found.kept.push(found.kept.pop()! + part);
    }
  }
  const unseen = new RegExp(rule.unseen, "gu");
  found.kept = found.kept.map((part) => part.replace(unseen, ""));
  if (found.pieces.length > 0) {
    found.kept[0] = found.kept[0]!.replace(/^[^\S\r\n]+/, "");
    found.kept.push(found.kept.pop()!.replace(/[^\S\r\n]+$/, ""));
  }
  return found;
}

/** The answers to the pieces with what is kept of the text. */
export function joined({ kept }: Passage, answers: readonly string[]): string {
  const each = answers.map((answer, i) => {
    const abut = kept[i + 1] === "" && i + 1 < answers.length && !/[。！？]$/u.test(answer);
    return answer + (abut ? " " : kept[i + 1]!);
  });
  return kept[0]! + each.join("");
}

function sentences(line: string, rule: PassageRecord): string[] {
  const parts: string[] = [];
  let start = 0;
  for (const match of line.matchAll(new RegExp(rule.sentence, "gu"))) {
    if (new RegExp(rule.no_end, "iu").test(line.slice(0, match.index + 1))) continue;
    const end = match.index + match[0].length;
    parts.push(line.slice(start, end));
    start = end;
  }
  return [...parts, line.slice(start)].filter((part) => part !== "");
}

/** As many sentences together as the model learnt to read. */
function grouped(parts: string[], most: number | null, fits: (text: string) => boolean): string[] {
  const groups: string[][] = [];
  for (const part of parts) {
    const last = groups.at(-1);
    if (!last || last.length === most || !fits([...last, part].join("").trim())) groups.push([part]);
    else last.push(part);
  }
  return groups.map((group) => group.join(""));
}

function words(text: string, source: Tokenizer): string[] {
  const composed = text.normalize("NFC");
  const marks = [...new Set(composed)].filter((c) => !LETTERS.test(c) && c.trim() !== "");
  const inside = escaped(marks.filter((c) => source.known(c)).join(""));
  return composed.split(new RegExp(`([\\p{L}\\p{N}](?:[\\p{L}\\p{N}_${inside}]*[\\p{L}\\p{N}])?)`, "u"));
}
