// Runs Pellucid's checks in Pyodide: Python and NumPy compiled to WebAssembly, with 32-bit addresses.
// node run.mjs PART PYODIDE REPOSITORY PACKAGES: a function of inside.py; folders of Pyodide's files, of the checkout, of pure packages.
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const [part, ...folders] = process.argv.slice(2);
const [pyodide, repository, packages] = folders.map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const python = await loadPyodide({
  indexURL: `${pyodide}/`,
  env: { HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1", PYTEST_ADDOPTS: process.env.PYTEST_ADDOPTS ?? "" },
});
await python.loadPackage(["numpy"], { messageCallback: () => {} });
for (const [from, to] of [[repository, "/pellucid"], [packages, "/packages"]]) {
  python.FS.mkdir(to);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: from }, to);
}
let code = 1;
try {
  code = await python.runPythonAsync(`
import sys
sys.path[:0] = ["/pellucid/tests/wasm", "/pellucid/src", "/pellucid", "/packages"]
import inside
inside.${part}()
`);
} catch (error) {
  console.error(error.message); // Python's traceback, without Pyodide's sources
}
process.exit(code);
