// The rows of every part of the forward pass and their gradients, for a record that leaves them to the
// model in its page.

import type { PageRecord, Rows } from "../record.ts";
import { gradients } from "./backward.ts";
import { added } from "./forward.ts";
import type { StackName } from "./model.ts";
import type { Trial } from "./trial.ts";

/** What a part returned, and its gradient. */
export interface Returned {
  rows: Rows | null;
  drows: Rows | null;
}

/** Feed the record's text and answer, and return what each part of the record returned. */
export function returned({ runner, source }: Trial, { parts = [], steps, target }: PageRecord): Returned[] {
  const { begin, stacks, text } = runner.record;
  const answer = steps.map(({ token }) => token).slice(0, target.length - 1);
  const memory = runner.encode(source.encode(text));
  const run = runner.decode(memory, answer);
  const expected: (number | null)[] = target.map(() => null);
  for (const { place, token } of steps) expected[place] = token;
  const { passed } = gradients(runner, memory, run, answer, expected);
  const runs = { encoder: memory.run, decoder: run };
  const read = { encoder: memory.ids, decoder: [begin, ...answer] };
  const block = { encoder: -1, decoder: -1 };
  let last = "";
  return parts.map(({ role, kind, stack, layer, block: number }) => {
    const place = `${stack} ${layer} ${number}`;
    if (layer !== null && place !== last) block[stack]++;
    last = place;
    const i = block[stack];
    const [{ embed, blocks }, { inputs, outputs, rows }, back] = [stacks[stack], runs[stack], passed[stack as StackName]!];
    const before = i < 0;
    if (layer === null) {
      if (role === "norm") return before ? { rows: inputs[0]!, drows: back.first } : { rows, drows: back.last };
      if (role === "sum") {
        return { rows: runner.embedded(stacks[stack], read[stack]), drows: embed.norm ? null : back.first };
      }
      const made = role === "embedding" && kind === "tokens"
        ? runner.tokenRows(stacks[stack], read[stack])
        : role === "positions" ? runner.places(stacks[stack], read[stack].length) : null;
      return { rows: made, drows: null };
    }
    const { norm, norm_first } = blocks[i]!;
    if (role === "norm") {
      return norm_first
        ? { rows: runner.norm(inputs[i]!, norm), drows: back.given[i]! }
        : { rows: inputs[i + 1]!, drows: back.arrives[i]! };
    }
    if (role === "residual" && norm_first) return { rows: inputs[i + 1]!, drows: back.arrives[i]! };
    const y = outputs[i]!;
    return { rows: role === "residual" ? added(inputs[i]!, y) : y, drows: back.sums[i]! };
  });
}
