// Records texts as the page does: node test/recorded.mjs CASES.json, for tests/apps/view/test_recorded.py. CASES.json:
// for each case the record that a page comes with, its model, a text, and an answer to feed ("": the model's own).

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const { Trial, recorded } = await bundled(["run/recorded", "run/trial"], process.argv[2]);

const plain = (value) => (ArrayBuffer.isView(value) ? [...value] : value);
const made = JSON.parse(await readFile(process.argv[2], "utf8")).map(({ record, run, text, answer }) => {
  const trial = new Trial(run);
  trial.expected = answer;
  trial.read(text, false);
  return recorded(trial, record);
});
process.stdout.write(JSON.stringify(made, (_, value) => plain(value)));
