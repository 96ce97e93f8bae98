// Runs the figures' functions in Node: node test/figures.mjs CASES.json, for tests/website/test_figures.py.
// CASES.json: [name of a function, its arguments] each; an activation is named "gelu.slope".

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const maths = await bundled(["figures/maths"], process.argv[2]);

const cases = JSON.parse(await readFile(process.argv[2], "utf8"));
const answers = cases.map(([name, ...given]) => {
  const [activation, part] = name.split(".");
  return part ? given[0].map(maths.ACTIVATIONS[activation][part]) : maths[name](...given);
});
process.stdout.write(JSON.stringify(answers));
