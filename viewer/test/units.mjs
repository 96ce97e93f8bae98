// Tokenizes texts in Node as the page does: node test/units.mjs CASES.json, for tests/apps/view/test_runnable.py.
// CASES.json: a tokenizer's record and texts, for each tokenizer.

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const { Tokenizer } = await bundled(["run/tokens"], process.argv[2]);

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const answers = cases.map(([record, texts]) => {
  const tokenizer = new Tokenizer(record, 3);
  return texts.map((text) => tokenizer.encode(text));
});
process.stdout.write(JSON.stringify(answers));
