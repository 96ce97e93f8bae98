// Builds the viewer into HTML files, ../src/pellucid/apps/view/page.html and learn.html, and the
// figures of the documentation into ../docs/assets/figures.js and .css. All are committed, so that
// nobody who uses Pellucid needs Node. With --test: bundles test/*.test.ts into build/ instead.

import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";

const here = new URL("./", import.meta.url);
const pages = process.env.PELLUCID_PAGES ?? new URL("../src/pellucid/apps/view", here).pathname;
const figures = process.env.PELLUCID_FIGURES ?? new URL("../docs/assets", here).pathname;

async function bundle(options) {
  const loader = { ".wasm": "binary" };
  return build({ absWorkingDir: here.pathname, bundle: true, charset: "utf8", target: "es2022", loader, ...options });
}

async function text(options) {
  const result = await bundle({ write: false, minify: true, ...options });
  return result.outputFiles[0].text.trim();
}

const script = (path) => text({ entryPoints: [path], format: "iife" });
const style = (path) => text({ entryPoints: [path] });

/** Put each part into the frame, where the frame has its name: /*script*\/ and so on. */
async function page(name, frame, parts) {
  let whole = await readFile(new URL(frame, here), "utf8");
  for (const [place, part] of Object.entries(parts)) {
    if (/<\/(script|style)|<!--/i.test(part)) throw new Error(`the ${place} would end its own element`);
    whole = whole.replace(`/*${place}*/`, () => part);
  }
  await writeFile(`${pages}/${name}`, whole);
}

if (process.argv.includes("--test")) {
  const names = (await readdir(new URL("test/", here))).filter((name) => name.endsWith(".test.ts"));
  await bundle({
    entryPoints: names.map((name) => `test/${name}`),
    outdir: "build",
    outExtension: { ".js": ".mjs" },
    platform: "node",
    format: "esm",
  });
} else {
  await page("page.html", "src/page.html", { style: await style("src/style.css"), script: await script("src/main.ts") });
  await page("learn.html", "src/learn/learn.html", {
    style: await style("src/learn/style.css"),
    worker: await script("src/learn/worker.ts"),
    script: await script("src/learn/main.ts"),
  });
  await writeFile(`${figures}/figures.js`, `${await script("src/figures/main.ts")}\n`);
  await writeFile(`${figures}/figures.css`, `${await style("src/figures/style.css")}\n`);
}
