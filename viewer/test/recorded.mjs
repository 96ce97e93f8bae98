// Records texts as the page does: node test/recorded.mjs CASES.json, for tests/apps/view/test_recorded.py. CASES.json:
// for each case the record that a page comes with, its model, a text, and an answer to feed ("": the model's own).

import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

const { outputFiles } = await build({
  absWorkingDir: new URL("..", import.meta.url).pathname,
  stdin: {
    contents: 'export * from "./src/run/recorded.ts"; export * from "./src/run/trial.ts";',
    resolveDir: new URL("..", import.meta.url).pathname,
  },
  bundle: true,
  format: "esm",
  target: "es2022",
  loader: { ".wasm": "binary" },
  write: false,
});
const bundle = join(dirname(process.argv[2]), "recorded.bundle.mjs");
await writeFile(bundle, outputFiles[0].text);
const { Trial, recorded } = await import(bundle);

const plain = (value) => (ArrayBuffer.isView(value) ? [...value] : value);
const made = JSON.parse(await readFile(process.argv[2], "utf8")).map(({ record, run, text, answer }) => {
  const trial = new Trial(run);
  trial.expected = answer;
  trial.read(text, false);
  return recorded(trial, record);
});
process.stdout.write(JSON.stringify(made, (_, value) => plain(value)));
