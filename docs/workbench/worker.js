// Python in a worker: Pyodide with NumPy and the library, so that the page never waits for it.
// Every file of the runtime is compared with its hash, wherever it comes from, and kept for use without a network.
"use strict";

const KEPT = "pellucid-python";
const load = self.fetch.bind(self);
let inside, drawing;

/** A file: from what was kept, or from the network, where the browser checks its hash. */
async function file(url, integrity) {
  const kept = self.caches && (await caches.open(KEPT)); // there is none where the page came unencrypted
  const known = kept && (await kept.match(url));
  if (known) return known;
  const response = await load(url, { integrity });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  if (kept) await kept.put(url, response.clone()).catch(() => {}); // no room: it is loaded again next time
  return response;
}

/** Forget what an older version of the site kept. */
async function forget(wanted) {
  if (!self.caches) return;
  const kept = await caches.open(KEPT);
  for (const { url } of await kept.keys()) if (!wanted.includes(url)) await kept.delete(url);
}

/** The files at addresses, each with its hash, as promises by address; the page hears how many have come. */
function files(wanted) {
  let done = 0;
  return Object.fromEntries(
    Object.entries(wanted).map(([url, integrity]) => {
      const promise = file(url, integrity);
      promise.then(() => postMessage({ loaded: ++done, of: Object.keys(wanted).length }), () => {});
      return [url, promise];
    }),
  );
}

async function start({ runtime, library }) {
  const { address, version, python: level, numpy } = runtime;
  const wanted = (names) => Object.fromEntries(Object.entries(names).map(([name, integrity]) => [address + name, integrity]));
  const got = files({ ...wanted(runtime.files), [library.address]: library.integrity });
  const take = async (url) => (await got[url]).clone();
  // What Pyodide asks for itself is among these files.
  self.fetch = (request, options) => {
    const url = String(request.url ?? request);
    return got[url] ? take(url) : load(request, options);
  };
  for (const name of ["pyodide.js", "pyodide.asm.js"]) {
    const code = await (await take(address + name)).blob();
    importScripts(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  }
  const info = { arch: "wasm32", platform: "emscripten", version, python: level };
  const lock = URL.createObjectURL(new Blob([JSON.stringify({ info, packages: {} })]));
  const python = await loadPyodide({ indexURL: address, lockFileURL: lock });
  const unpack = async (promise, ...how) => python.unpackArchive(await (await promise).arrayBuffer(), ...how);
  await unpack(take(address + numpy), "wheel");
  await unpack(take(library.address), "zip", { extractDir: "/library" });
  python.runPython("import sys; sys.path.insert(0, '/library')");
  inside = python.pyimport("in_browser");
  const pictures = wanted(runtime.pictures);
  drawing = async () => {
    for (const promise of Object.values(files(pictures))) await unpack(promise, "wheel");
    inside.draws();
    drawing = () => {};
  };
  forget([...Object.keys(got), ...Object.keys(pictures)]);
  return inside.about();
}

const doing = {
  start,
  check: (name, answers, language) => inside.check(name, answers, language),
  change: (op, source, language) => inside.change(op, source, language),
  train: (answers, language) => inside.train(answers, language, (line) => postMessage({ line })),
  ask: (number) => inside.ask(number),
  cell: async (name, source, ...how) => {
    if (source.includes("lesson.show(")) await drawing();
    return inside.cell(name, source, ...how);
  },
  values: (numbers, language) => inside.values(numbers, language),
};

onmessage = async ({ data: { id, ask, given } }) => {
  try {
    postMessage({ id, result: await doing[ask](...given) });
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error) });
  }
};
