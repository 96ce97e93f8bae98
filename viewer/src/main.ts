// The page: its head, its three views, and what they share.

import { clamp, el } from "./dom.ts";
import { Generation } from "./generation.ts";
import { Grid } from "./grid.ts";
import { Large } from "./large.ts";
import { DARK, KIND_NAMES, Model } from "./model.ts";
import type { Kind, PageRecord } from "./record.ts";
import { ScalePanel } from "./scale.ts";
import { Steps } from "./steps.ts";
import type { State, Tab } from "./store.ts";

const FORMAT = 2;
const TABS: [Tab, string][] = [
  ["attention", "Attention"],
  ["steps", "Step by step"],
  ["generation", "Generation"],
];
const THEMES: State["theme"][] = ["auto", "light", "dark"];
const KEYS: [string, string][] = [
  ["Tab", "to the next part; arrow keys move inside it"],
  ["arrow keys", "in a map: to another query or key; in the overview: to another head"],
  ["[ ]", "in a map: the head before, the next head"],
  ["{ }", "in a map: the layer before, the next layer"],
  ["+ − 0", "in a map: larger, smaller, as fits"],
];

function header(model: Model): HTMLElement {
  const { record, store } = model;
  const theme = el("button", { type: "button", class: "quiet" });
  const name = () => {
    theme.textContent = `Theme: ${model.state.theme}`;
  };
  theme.addEventListener("click", () => {
    model.chooseTheme(THEMES[(THEMES.indexOf(model.state.theme) + 1) % THEMES.length]!);
  });
  store.listen((_, changed) => {
    if (changed.has("theme")) name();
  });
  name();
  const help = el(
    "dialog",
    { "aria-label": "Keys" },
    el("h2", {}, "Keys"),
    el("dl", {}, ...KEYS.flatMap(([key, act]) => [el("dt", {}, key), el("dd", {}, act)])),
    el("form", { method: "dialog" }, el("button", {}, "Close")),
  );
  return el(
    "header",
    { class: "page" },
    el("div", { class: "brand", "aria-hidden": "true" }, "pellucid"),
    el(
      "div",
      { class: "what" },
      el("h1", {}, record.title),
      el("p", { class: "hint" }, record.model),
      ...record.notes.map((note) => el("p", { class: "note" }, note)),
    ),
    el(
      "div",
      { class: "tools" },
      theme,
      el("button", { type: "button", class: "quiet", onclick: () => help.showModal() }, "Keys"),
    ),
    help,
  );
}

function tabs(model: Model, panels: { [tab in Tab]: HTMLElement }): HTMLElement {
  const { store } = model;
  const buttons = TABS.map(([tab, name]) =>
    el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${tab}`,
        "aria-controls": `panel-${tab}`,
        onclick: () => store.set({ tab }),
      },
      tab === "generation" && model.guesses ? "Guesses" : name,
    ),
  );
  const update = () => {
    TABS.forEach(([tab], i) => {
      const chosen = tab === model.state.tab;
      buttons[i]!.setAttribute("aria-selected", String(chosen));
      buttons[i]!.tabIndex = chosen ? 0 : -1;
      panels[tab].hidden = !chosen;
    });
    document.body.dataset["tab"] = model.state.tab;
  };
  const list = el("div", { role: "tablist", "aria-label": "Views" }, ...buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = TABS.findIndex(([tab]) => tab === model.state.tab);
    const to = clamp(at + step, TABS.length);
    store.set({ tab: TABS[to]![0] });
    buttons[to]!.focus();
  });
  store.listen((_, changed) => {
    if (changed.has("tab")) update();
  });
  update();
  return list;
}

/** Which attention is looked at: kind, layer, head. */
function choices(model: Model): HTMLElement {
  const { store } = model;
  const kinds = model.kinds.map((kind): [Kind, HTMLButtonElement] => [
    kind,
    el(
      "button",
      { type: "button", "aria-label": KIND_NAMES[kind], onclick: () => model.chooseKind(kind) },
      KIND_NAMES[kind].replace("-attention", ""),
      el("span", { class: "long" }, "-attention"),
    ),
  ]);
  const layer = el("select", { id: "layer-choice" });
  const head = el("select", { id: "head-choice" });
  layer.addEventListener("change", () => store.set({ layer: layer.selectedIndex }));
  head.addEventListener("change", () => store.set({ head: head.selectedIndex }));
  const numbers = (count: number) =>
    Array.from({ length: count }, (_, i) => el("option", {}, String(i + 1)));
  const update = () => {
    layer.replaceChildren(...numbers(model.all.length));
    head.replaceChildren(...numbers(model.all[0]!.length));
    layer.selectedIndex = model.state.layer;
    head.selectedIndex = model.state.head;
    for (const [kind, button] of kinds) {
      button.setAttribute("aria-pressed", String(kind === model.state.kind));
    }
  };
  store.listen((_, changed) => {
    if (changed.has("kind") || changed.has("layer") || changed.has("head")) update();
  });
  update();
  return el(
    "div",
    { class: "choices" },
    el(
      "div",
      { class: "segmented", role: "group", "aria-label": "Kind of attention" },
      ...kinds.map(([, button]) => button),
    ),
    el("span", { class: "together" }, el("label", { for: "layer-choice" }, "layer"), layer),
    el("span", { class: "together" }, el("label", { for: "head-choice" }, "head"), head),
  );
}

function start(record: PageRecord): void {
  const app = document.getElementById("app")!;
  if (record.format !== FORMAT || record.maps.length === 0) {
    app.append(el("p", { class: "note" }, "This file holds no attention that this page can show."));
    return;
  }
  const model = new Model(record);
  const [grid, large, steps] = [new Grid(model), new Large(model), new Steps(model)];
  const generation = new Generation(model);
  const panel = (tab: Tab, ...inside: HTMLElement[]) =>
    el(
      "div",
      { role: "tabpanel", id: `panel-${tab}`, "aria-labelledby": `tab-${tab}`, class: tab },
      ...inside,
    );
  const panels = {
    attention: panel("attention", large.root),
    steps: panel("steps", steps.root),
    generation: panel("generation", generation.root),
  };
  const scale = new ScalePanel(model);
  app.append(
    header(model),
    el("nav", { "aria-label": "Views and heads" }, tabs(model, panels), choices(model)),
    el(
      "main",
      {},
      el("aside", { "aria-label": "Heads and scale" }, grid.root, scale.controls, scale.effect),
      el("div", { class: "panels" }, ...Object.values(panels)),
    ),
    el(
      "footer",
      {},
      `Computed on this page from the queries, keys and values that the model made; weights differ ` +
        `from the library’s by at most ${record.off.toExponential(0)}. This file asks the network ` +
        `for nothing.`,
    ),
  );
  DARK.addEventListener("change", () => model.chooseTheme(model.state.theme));
  // For scripts and tests: the numbers behind the pictures.
  Object.assign(globalThis, { pellucid: { record, model } });
}

start(JSON.parse(document.getElementById("record")!.textContent!) as PageRecord);
