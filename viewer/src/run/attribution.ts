// What each token that is read has to do with a logit, or with the difference of two.

import { dot } from "./forward.ts";
import type { Memory, Run, Runner } from "./forward.ts";
import type { Answer } from "./forward.ts";
import type { Gradients } from "./backward.ts";
import { stacksOf } from "./model.ts";
import type { StackName } from "./model.ts";

/**
 * Gradient times input: Σ_e dx_e x_e, with x the token's row of the embedding and dx the gradient that reaches it.
 * To first order, what would be lost if the row were 0.
 */
export function attribution(
  runner: Runner,
  { memory, answer }: { memory: Memory; run: Run; answer: Answer },
  { passed }: Gradients,
): { [name in StackName]?: number[] } {
  const read = { encoder: memory.ids, decoder: [...memory.prompt, ...answer.ids] };
  return Object.fromEntries(
    stacksOf(runner.record).map(([name, stack]) => {
      const x = runner.tokenRows(stack, read[name]);
      const dx = passed[name]!.embedded;
      return [name, read[name].map((_, t) => dot(dx.values, t * dx.width, x.values, t * x.width, x.width))];
    }),
  );
}
