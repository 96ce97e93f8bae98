// Builds the viewer into one HTML file, ../src/pellucid/apps/view/page.html, and the figures of the
// documentation into ../docs/assets/figures.js and .css. All are committed, so that nobody who uses
// Pellucid needs Node. With --test: bundles test/*.test.ts into build/ instead.

import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";

const here = new URL("./", import.meta.url);
const page = process.env.PELLUCID_PAGE ?? new URL("../src/pellucid/apps/view/page.html", here).pathname;
const figures = process.env.PELLUCID_FIGURES ?? new URL("../docs/assets/", here).pathname;

async function bundle(options) {
  return build({ absWorkingDir: here.pathname, bundle: true, charset: "utf8", ...options });
}

async function text(options) {
  const result = await bundle({ write: false, minify: true, target: "es2022", ...options });
  return result.outputFiles[0].text.trim();
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
  const script = await text({ entryPoints: ["src/main.ts"], format: "iife" });
  const style = await text({ entryPoints: ["src/style.css"] });
  for (const part of [script, style]) {
    if (/<\/(script|style)|<!--/i.test(part)) throw new Error("a part would end its own element");
  }
  const frame = await readFile(new URL("src/page.html", here), "utf8");
  const whole = frame
    .replace("/*style*/", () => style)
    .replace("/*script*/", () => script);
  await writeFile(page, whole);
  const drawn = await text({ entryPoints: ["src/figures/main.ts"], format: "iife" });
  await writeFile(`${figures}/figures.js`, `${drawn}\n`);
  await writeFile(`${figures}/figures.css`, `${await text({ entryPoints: ["src/figures/style.css"] })}\n`);
}
