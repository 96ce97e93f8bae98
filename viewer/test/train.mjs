// Trains a model in Node as the page does: node test/train.mjs CASE.json, for tests/apps/view/test_learn.py.
// CASE.json: the record, for each step its examples (source, read, expected) and its rate; with "plain"
// without the compiled kernel. Writes the loss of each step.

import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

const { outputFiles } = await build({
  absWorkingDir: new URL("..", import.meta.url).pathname,
  stdin: {
    contents: 'export * from "./src/run/forward.ts"; export * from "./src/learn/learner.ts";',
    resolveDir: new URL("..", import.meta.url).pathname,
  },
  bundle: true,
  format: "esm",
  target: "es2022",
  loader: { ".wasm": "binary" },
  write: false,
});
const bundle = join(dirname(process.argv[2]), "train.bundle.mjs");
await writeFile(bundle, outputFiles[0].text);
const { Adam, Runner, lossOf } = await import(bundle);

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
