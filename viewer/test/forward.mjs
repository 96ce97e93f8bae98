// Runs the page's forward pass in Node: node test/forward.mjs CASES.json, for tests/apps/view/test_runnable.py.
// CASES.json: the record, and for each case a text, an answer to feed (or null: greedy) and what is off.

import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

const { outputFiles } = await build({
  absWorkingDir: new URL("..", import.meta.url).pathname,
  stdin: {
    contents: 'export * from "./src/run/forward.ts"; export * from "./src/run/tokens.ts";' +
      ' export * from "./src/run/ledger.ts";',
    resolveDir: new URL("..", import.meta.url).pathname,
  },
  bundle: true,
  format: "esm",
  write: false,
});
const bundle = join(dirname(process.argv[2]), "forward.bundle.mjs");
await writeFile(bundle, outputFiles[0].text);
const { Runner, Tokenizer, ledger, lens } = await import(bundle);

const { record, cases } = JSON.parse(await readFile(process.argv[2], "utf8"));
const runner = new Runner(record);
const source = new Tokenizer(record.tokenizers.source, record.unknown);
const target = new Tokenizer(record.tokenizers.target, record.unknown);
const plain = (run) => ({
  rows: [...run.rows.values],
  inputs: run.inputs.map((x) => [...x.values]),
  outputs: run.outputs.map((x) => [...x.values]),
  weights: run.looks.map((look) => (look ? [...look.weights] : null)),
});

const answers = cases.map(({ text, answer, off }) => {
  const ids = source.encode(text);
  const switched = new Set(off);
  const base = runner.encode(ids);
  const memory = runner.encode(ids, switched, base);
  const own = runner.greedy(memory, switched);
  const given = answer ?? own.ids;
  const whole = runner.decode(base, given);
  const run = runner.decode(memory, given, switched, memory === base ? whole : undefined);
  return {
    ids,
    answer: own,
    text: target.decode(own.ids),
    again: target.encode(target.decode(own.ids)),
    encoder: plain(memory.run),
    decoder: plain(run),
    logits: [...runner.logits(run.rows).values],
    ...runner.losses(run, { ids: given, ended: true }),
    ledger: ledger(runner, run, 0, given[0] ?? record.end),
    lens: lens(runner, run, 0),
  };
});
process.stdout.write(JSON.stringify(answers));
