// Imports modules of the page in Node: the exports of `names`, bundled into a file beside the case's.

import { build } from "esbuild";
import { writeFile } from "node:fs/promises";

export async function bundled(names, beside) {
  const { outputFiles } = await build({
    absWorkingDir: new URL("..", import.meta.url).pathname,
    stdin: {
      contents: names.map((name) => `export * from "./src/${name}.ts";`).join(" "),
      resolveDir: new URL("..", import.meta.url).pathname,
    },
    bundle: true,
    format: "esm",
    target: "es2022",
    loader: { ".wasm": "binary" },
    write: false,
  });
  const file = `${beside}.bundle.mjs`;
  await writeFile(file, outputFiles[0].text);
  return import(file);
}
