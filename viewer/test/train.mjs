// Trains a model in Node as the page does: node test/train.mjs CASE.json, for tests/apps/view/test_learn.py.
// CASE.json: the record, for each step its examples (source, read, expected) and its rate; with "plain"
// without the compiled kernel. Writes the loss of each step.

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const { Adam, Runner, lossOf } = await bundled(["run/forward", "learn/learner"], process.argv[2]);

const { record, steps, plain } = JSON.parse(await readFile(process.argv[2], "utf8"));
const runner = new Runner(record, undefined, plain);
if (runner.products.fast === plain) throw new Error("the kernel is not what was asked for");
const adam = new Adam(runner.tensors);
const losses = steps.map(({ examples, rate }) => {
  const { loss, tokens, gradients } = lossOf(runner, examples);
  adam.step(runner.tensors, gradients, 1 / tokens, rate);
  return loss;
});
process.stdout.write(JSON.stringify(losses));
