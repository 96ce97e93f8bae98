// Tokenizes texts in Node as the page does: node test/units.mjs CASES.json, for tests/apps/view/test_runnable.py.
// CASES.json: a tokenizer's record and texts, for each tokenizer; of each text its tokens, and their text.

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const { tokenizerOf } = await bundled(["run/pieces"], process.argv[2]);

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const answers = cases.map(([record, texts]) => {
  const tokenizer = tokenizerOf(record, 3);
  return texts.map((text) => {
    const ids = tokenizer.encode(text);
    return [ids, tokenizer.decode(ids), tokenizer.knows(text)];
  });
});
process.stdout.write(JSON.stringify(answers));
