// A text that is continued, and what its continuation must begin with, as pellucid.tasks.causal_lm and
// pellucid.models.prefix have it: what one token could write together with something that follows is not read,
// and its bytes are written again, in any tokens.

import type { RunRecord } from "./model.ts";
import type { Tokenizer } from "./tokens.ts";

/** The tokens that are allowed in each state, and the state after each of them; FREE: any token, from then on. */
export type Prefix = readonly ReadonlyMap<number, number>[];

export const FREE = -1;

export interface Opening {
  /** What is read of the text. */
  ids: readonly number[];
  prefix: Prefix | null;
  /** How many of its tokens are written again: a continuation may have as many more. */
  again: number;
}

/** Bytes, a character each. */
type Bytes = string;

export function openingOf(text: string, tokenizer: Tokenizer, { prompt = [], end, suppressed = [] }: RunRecord): Opening {
  const ids = tokenizer.encode(text);
  const spelled = tokenizer.spelled;
  const whole = tokenizer.beginning(text);
  const longest = Math.max(...spelled.flatMap((all) => all.map((own) => own.length)));
  const reaches = (p: number) => spelled[p > 0 ? 1 : 0].some((own) => own.length > whole.length - p && own.startsWith(whole.slice(p)));
  let cut = Math.max(0, whole.length - longest + 1);
  while (cut < whole.length && !reaches(cut)) cut++;
  const kept = [...ids];
  const last = (): Bytes => spelled[kept.length > 1 ? 1 : 0][kept.at(-1)!]!;
  let at = whole.length;
  if (kept.length > 0 && !whole.endsWith(last())) at = whole.replace(/[ \t\n\r\v\f]+$/, "").length; // white space at the end has no token
  const least = prompt.length > 0 ? 0 : 1;
  while (at > cut && kept.length > least && last() !== "" && whole.slice(0, at).endsWith(last())) {
    at -= last().length;
    kept.pop();
  }
  const prefix = prefixOf(whole.slice(at), [spelled[kept.length > 0 ? 1 : 0], spelled[1]], new Set([end, ...suppressed]));
  return prefix ? { ids: kept, prefix, again: ids.length - kept.length } : { ids, prefix: null, again: 0 };
}

/** All ways to write some bytes; null: there are none, or nothing is to be written. */
function prefixOf(text: Bytes, spelled: readonly [readonly Bytes[], readonly Bytes[]], never: ReadonlySet<number>): Prefix | null {
  const steps: Map<number, number>[] = [];
  for (let place = text.length - 1; place >= 0; place--) {
    const rest = text.slice(place);
    const allowed = new Map<number, number>();
    spelled[place > 0 ? 1 : 0].forEach((own, token) => {
      if (own === "" || never.has(token)) return;
      if (own.startsWith(rest)) allowed.set(token, FREE);
      else if (rest.startsWith(own) && steps[place + own.length]!.size > 0) allowed.set(token, place + own.length);
    });
    steps[place] = allowed;
  }
  return steps[0] && steps[0].size > 0 ? steps : null;
}
