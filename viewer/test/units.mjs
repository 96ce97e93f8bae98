// Tokenizes texts in Node as the page does: node test/units.mjs CASES.json, for tests/apps/view/test_units.py.
// CASES.json: a tokenizer's record and texts, for each tokenizer.

import { build } from "esbuild";
import { readFile } from "node:fs/promises";

const { outputFiles } = await build({
  absWorkingDir: new URL("..", import.meta.url).pathname,
  entryPoints: ["src/run/tokens.ts"],
  bundle: true,
  format: "esm",
  target: "es2022",
  write: false,
});
const { Tokenizer } = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const answers = cases.map(([record, texts]) => {
  const tokenizer = new Tokenizer(record, 3);
  return texts.map((text) => tokenizer.encode(text));
});
process.stdout.write(JSON.stringify(answers));
