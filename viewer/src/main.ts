// The page: its head, its views, and what they share.

import { address, addressed, addressedChoice, addressedTrial, turnTo } from "./address.ts";
import { Backward } from "./backward.ts";
import { chapters } from "./chapters.ts";
import { choose, el, hears, moving, offer, segmented, select, textField } from "./dom.ts";
import { Film, TEXTS as FILM, frameAt } from "./film.ts";
import { Generation } from "./generation.ts";
import { glossary } from "./glossary.ts";
import { Grid } from "./grid.ts";
import { Large } from "./large.ts";
import { Live } from "./live.ts";
import { DARK, Model } from "./model.ts";
import { Opening } from "./opening.ts";
import { dataOf } from "./record.ts";
import type { Kind, PageRecord } from "./record.ts";
import { River } from "./river.ts";
import { ScalePanel } from "./scale.ts";
import { embedded, sharing, wholePage } from "./share/share.ts";
import { Steps } from "./steps.ts";
import type { State, Tab } from "./store.ts";
import { Story, storyAt } from "./story/story.ts";
import { TEXTS as STORY } from "./story/text.ts";
import type { RunRecord } from "./run/model.ts";
import { cellOf, recorded, titleOf } from "./run/recorded.ts";
import { trialPanel } from "./run/tab.ts";
import { TEXTS as RUN } from "./run/text.ts";
import { Trial } from "./run/trial.ts";
import { preferred, speak, t } from "./text.ts";
import { Tour } from "./tour.ts";

const FORMAT = 3;
/** Hundredths of a second of a film's frame in a GIF. */
const PACE = 32;
const TABS: Tab[] = ["whole", "attention", "steps", "backward", "generation", "run"];
const IN_ADDRESS = [
  "tab", "kind", "layer", "head", "query", "key", "frame", "beside", "layer2", "head2", "step", "rather",
] as const;
const THEMES: State["theme"][] = ["auto", "light", "dark"];

/** "text → answer": a long text is cut, the answer never. */
function title(text: string): HTMLElement {
  const at = text.lastIndexOf(" → ");
  if (at < 0) return el("h1", {}, text);
  return el(
    "h1",
    {},
    el("span", { class: "asked", title: text.slice(0, at) }, text.slice(0, at)),
    el("span", {}, text.slice(at)),
  );
}

function header(model: Model, tour: Tour): HTMLElement {
  const { record, store, state } = model;
  const korean = state.language === "ko" ? record.korean : undefined;
  const theme = el("button", { type: "button", class: "quiet" });
  const name = () => {
    theme.textContent = t.theme(t.themes[model.state.theme]);
  };
  theme.addEventListener("click", () => {
    model.chooseTheme(THEMES[(THEMES.indexOf(model.state.theme) + 1) % THEMES.length]!);
  });
  store.listen(name, "theme");
  name();
  const language = el(
    "button",
    {
      type: "button",
      class: "quiet",
      id: "language",
      lang: state.language === "ko" ? "en" : "ko",
      onclick: () => {
        show(record, { ...model.state, language: state.language === "ko" ? "en" : "ko" });
        document.getElementById("language")!.focus();
      },
    },
    t.languageName,
  );
  const keys = film ? [...t.keyHelp, FILM[state.language].keys] : t.keyHelp;
  const help = el(
    "dialog",
    { "aria-label": t.keys },
    el("h2", {}, t.keys),
    el("dl", {}, ...keys.flatMap(([key, act]) => [el("dt", {}, key!), el("dd", {}, act!)])),
    el("form", { method: "dialog" }, el("button", {}, t.close)),
  );
  return el(
    "header",
    { class: "page" },
    el("div", { class: "brand", "aria-hidden": "true" }, "pellucid"),
    el(
      "div",
      { class: "what" },
      title(record.title),
      el("p", { class: "hint" }, korean?.model ?? record.model),
      ...(korean?.notes ?? record.notes).map((note) => el("p", { class: "note" }, note)),
    ),
    el(
      "div",
      { class: "tools" },
      tour.button,
      ...(runs ? [el("button", { type: "button", class: "quiet", id: "story-open", onclick: () => tell(0) }, STORY[state.language].open)] : []),
      ...shares(model, () => [
        record.title,
        t.tabs[model.state.tab],
        ...(model.state.tab === "attention" ? [model.headName] : []),
        ...(model.record.at === undefined ? [] : [`${FILM[state.language].at} ${model.record.at}`]),
      ]),
      language,
      theme,
      el("button", { type: "button", class: "quiet", onclick: () => help.showModal() }, t.keys),
    ),
    help,
  );
}

/** The button for what leaves the page; `words` are those below a picture. */
function shares(model: Model, words: () => string[]): HTMLElement[] {
  return sharing({
    language: model.state.language,
    title: () => words()[0]!,
    words: () => [...words(), "pellucid"].join(" · "),
    look: () => ({ ground: model.colours.surface, ink: model.colours.muted, family: getComputedStyle(document.body).fontFamily }),
    film: film ? { frames: () => film.steps.length, pace: PACE, each: (drawn) => film.each(drawn) } : undefined,
  });
}

/** Records of earlier versions lack the whole model, and most pages the one that they could run. */
function shownTabs(record: PageRecord): Tab[] {
  const has = { whole: (record.parts ?? []).length > 0, run: runs };
  return TABS.filter((tab) => has[tab as keyof typeof has] ?? true);
}

function tabs(model: Model, panels: { [tab in Tab]: HTMLElement }): HTMLElement {
  const { store } = model;
  const shown = shownTabs(model.record);
  const buttons = shown.map((tab) =>
    el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${tab}`,
        "aria-controls": `panel-${tab}`,
        onclick: () => store.set({ tab }),
      },
      tab === "generation" && model.guesses ? (model.pooled ? t.label : t.guesses) : t.tabs[tab],
    ),
  );
  const update = () => {
    panels.whole.hidden = panels.run.hidden = true;
    for (const tab of shown) panels[tab].hidden = tab !== model.state.tab;
    choose(buttons, shown.indexOf(model.state.tab));
    document.body.dataset["tab"] = model.state.tab;
  };
  const list = el("div", { role: "tablist", "aria-label": t.views }, ...buttons);
  moving(list, () => [shown.indexOf(model.state.tab), shown.length], (to) => store.set({ tab: shown[to]! }));
  store.listen(update, "tab");
  update();
  return list;
}

/** The attention in view: kind, layer, head. */
function choices(model: Model): HTMLElement {
  const { store } = model;
  const kinds = segmented(
    t.kindOfAttention,
    model.kinds.map((kind) => [
      kind,
      el("span", { class: "long" }, t.kinds[kind]),
      el("span", { class: "short" }, t.shortKinds[kind]),
    ]),
    (kind: Kind) => model.chooseKind(kind),
  );
  for (const [kind, button] of kinds.buttons) button.setAttribute("aria-label", t.kinds[kind]);
  const [layer, layers] = select("layer-choice", t.layer, (layer) => store.set({ layer }));
  const [head, heads] = select("head-choice", t.head, (head) => store.set({ head }));
  const update = () => {
    const { all, state } = model;
    offer(layer, all.map((_, i) => String(i + 1)), state.layer);
    offer(head, all[0]!.map((_, i) => String(i + 1)), state.head);
    kinds.press(state.kind);
  };
  store.listen(update, "kind", "layer", "head");
  update();
  return el("div", { class: "choices" }, kinds.root, layers, heads);
}

/** Build the page; done again for another language, and for another record. */
function show(record: PageRecord, state: State): void {
  speak(state.language);
  const app = document.getElementById("app")!;
  const model = new Model(film?.record(state.frame) ?? record, state, other);
  const [grid, large, steps] = [new Grid(model), new Large(model), new Steps(model)];
  const generation = new Generation(model);
  const panel = (tab: Tab, ...inside: HTMLElement[]) =>
    el(
      "div",
      { role: "tabpanel", id: `panel-${tab}`, "aria-labelledby": `tab-${tab}`, class: tab },
      ...inside,
    );
  const questions = chapters(model);
  const asks = (tab: keyof typeof questions) => new Opening(model, tab, questions[tab]).root;
  const panels = {
    whole: panel("whole", new River(model).root, asks("whole")),
    attention: panel("attention", asks("attention"), large.root),
    steps: panel("steps", asks("steps"), steps.root),
    backward: panel("backward", asks("backward"), new Backward(model, readTrial).root),
    generation: panel("generation", asks("generation"), generation.root),
    run: panel("run"),
  };
  const scale = new ScalePanel(model);
  const tour = new Tour(model);
  app.replaceChildren(
    header(model, tour),
    live?.form(() => model.state) ?? (follows ? asking(model) : ""),
    el("nav", { "aria-label": t.viewsAndHeads }, tabs(model, panels), choices(model)),
    el(
      "main",
      {},
      el("aside", { "aria-label": t.headsAndScale }, grid.root, scale.controls, scale.effect),
      el("div", { class: "panels" }, ...Object.values(panels)),
    ),
    film?.dock(model) ?? "",
    el("footer", {}, `${t.footer(record.off.toExponential(0))} ${live ? t.asks : t.offline}`),
    tour.root,
    glossary(),
    embedded() ? wholePage(state.language) : "",
  );
  document.documentElement.toggleAttribute("data-embed", embedded());
  model.store.listen(() => {
    if (!runs) return;
    if (model.state.tab !== "run") {
      follow(model);
      return;
    }
    const trial = readTrial();
    if (!trial.measured) trial.rank();
    if (panels.run.firstChild) return;
    panels.run.append(trialPanel(trial, {
      language: state.language,
      colours: () => model.colours,
      changed: () => {
        if (model.state.tab !== "run" || story) return;
        address(model, trial);
        if (follows && trial.readings !== followed) app.querySelector("h1")!.replaceWith(title(trial.whole ? titleOf(trial) : trial.piece));
      },
      links: true,
    }));
  }, "tab");
  // The model's tab draws in the theme's colours too, and for paper in those of paper.
  model.store.listen(() => {
    if (panels.run.firstChild) trial?.choose({});
    story?.draw();
  }, "colours");
  let written = state; // what the address says
  model.store.listen((now) => {
    if (IN_ADDRESS.some((name) => now[name] !== written[name])) {
      address(model, trial);
      written = now;
    }
  });
  model.store.redraw();
  // Paper is white and shows no scrolled part: draw for it before the browser lays it out.
  globalThis.onbeforeprint = () => {
    document.documentElement.dataset["printing"] = "";
    model.usePaper(true);
    large.print(true);
    generation.print(true);
  };
  globalThis.onafterprint = () => {
    delete document.documentElement.dataset["printing"];
    model.usePaper(false);
    large.print(false);
    generation.print(false);
  };
  DARK.onchange = () => model.chooseTheme(model.state.theme);
  globalThis.pellucid = {
    get record() {
      return model.record;
    },
    model,
    get trial() {
      return trial;
    },
  };
}

/** Type on any tab: all of them show the text that the model has read. */
function asking(model: Model): HTMLElement {
  const said = el("p", { class: "hint", role: "status" });
  const input = hears(textField("ask-text", trial?.text ?? "", {}), (text) => {
    const trial = readTrial();
    trial.expected = "";
    trial.read(text, false);
    said.textContent = trial.whole ? "" : unread(trial, model.state.language);
    follow(model);
  });
  return el("div", { class: "card asking" }, el("div", { class: "live-line" }, el("label", { for: "ask-text" }, RUN[model.state.language].ask), input), said);
}

function unread(trial: Trial, language: State["language"]): string {
  const words = RUN[language];
  return trial.ids.length > 0 ? words.tooLong(trial.ids.length, trial.longest) : words.empty;
}

/** Show the record of what the model in the page has read, in the tab and at the head in view. */
function follow(model: Model): void {
  if (!follows || !trial?.whole || trial.readings === followed) return;
  followed = trial.readings;
  const { state } = model;
  const record = recorded(trial, opened);
  const opens = cellOf(record.maps, state);
  const field = document.getElementById("ask-text") as HTMLInputElement | null;
  const at = field && field === document.activeElement ? field.selectionStart : null;
  record.opens = opens;
  load(record);
  address(globalThis.pellucid!.model, trial);
  const again = document.getElementById("ask-text") as HTMLInputElement;
  if (at !== null) {
    again.focus();
    again.setSelectionRange(at, at);
  }
}

function start(record: PageRecord): void {
  if (record.format === FORMAT && record.maps.length > 0) {
    const frame = film ? frameAt(film.steps, location.hash) : 0;
    const opening = { ...Model.opening(film?.record(frame) ?? record, other), frame };
    show(record, addressed(record, opening, shownTabs(record), location.hash, other !== null));
    return;
  }
  speak(preferred(record.language));
  document
    .getElementById("app")!
    .append(live?.form(() => null) ?? "", el("p", { class: "note" }, t.nothing));
}

/** Show the record of another text in the tab, theme and language of the one before. */
function load(record: PageRecord): void {
  const before = globalThis.pellucid?.model.state;
  if (!before || record.format !== FORMAT || record.maps.length === 0) {
    document.getElementById("app")!.replaceChildren();
    start(record);
    return;
  }
  const { tab, theme, language, form, beside } = before;
  show(record, { ...Model.opening(record), tab, theme, language, form, beside });
  document.title = record.title;
}

/** Tell the story from a screen on, in place of the page, until it is closed. */
function tell(screen: number): void {
  const trial = readTrial();
  const app = document.getElementById("app")!;
  // The page below is built anew for another text.
  const model = () => globalThis.pellucid!.model;
  const { language } = model().state;
  const turned = language === "ko" ? "en" : "ko";
  let at = screen;
  const other = el("button", { type: "button", class: "quiet", id: "story-language", lang: turned }, t.languageName);
  other.addEventListener("click", () => {
    show(model().record, { ...model().state, language: turned });
    tell(at);
    document.getElementById("story-language")!.focus();
  });
  const moved = (to: number | null) => {
    if (to === null) {
      story!.root.remove();
      story = null;
      app.hidden = false;
      model().store.set({ tab: "run" });
      model().store.redraw();
      return;
    }
    at = to;
    const said = new URLSearchParams({ story: String(to + 1), text: trial.text });
    if (trial.expected !== "") said.set("expected", trial.expected);
    turnTo(said);
  };
  const words = () => [titleOf(trial), STORY[language].titles[at]!];
  story?.root.remove();
  story = new Story(trial, screen, { language, colours: () => model().colours, moved, tools: [...shares(model(), words), other] });
  app.hidden = true;
  app.after(story.root);
}

declare global {
  // For scripts and tests: the numbers behind the pictures.
  var pellucid: { readonly record: PageRecord; model: Model; readonly trial: Trial | null } | undefined;
}

/** The model that this page can run, if it holds one; it is read when its tab is first opened. */
const runs = document.getElementById("run") !== null;
const openedAt = location.hash;
let trial: Trial | null = null;
let story: Story | null = null;
/** The reading that the page shows. */
let followed = 0;

function readTrial(): Trial {
  if (trial) return trial;
  trial = new Trial(dataOf<RunRecord>("run")!);
  addressedTrial(trial, openedAt);
  trial.read(trial.text, false);
  if (!trial.whole) trial.read(trial.runner.record.text, false);
  const { own, runner, target } = trial;
  // The answer that the page was made with, where the model itself writes another.
  const given = opened.steps.map(({ token }) => token).filter((token) => token !== runner.record.end);
  const before = runner.record.stacks.encoder ? [] : (trial.whole?.memory.ids ?? []);
  const written = target.decode([...before, ...given]).slice(before.length > 0 ? target.decode(target.encode(trial.text)).length : 0);
  const whole = !trial.taught && trial.expected === "" && trial.text === runner.record.text && own !== null && String(own.ids) !== String(given);
  if (whole && (before.length > 0 || String(target.encode(written)) === String(given))) trial.expect(written);
  addressedChoice(trial, openedAt);
  return trial;
}

/** The record of a page that leaves its numbers to its model. */
function computed(): PageRecord {
  const trial = readTrial();
  followed = trial.readings;
  return recorded(trial, opened);
}

const live = Live.here(load);
const opened = dataOf<PageRecord>("record")!;
const film = Film.here(opened);
/** Whether all tabs show the text that the model in the page has read: the frames of a film are of earlier models. */
const follows = runs && !film;
/** The record of another model or text, to compare with. */
const other = dataOf<PageRecord>("other");
start(follows && !opened.maps[0]?.q ? computed() : opened);
if (runs && storyAt(openedAt) !== null) tell(storyAt(openedAt)!);
addEventListener("keydown", (event) => story?.press(event));
addEventListener("hashchange", () => {
  const screen = storyAt(location.hash);
  if (runs && screen !== null) tell(screen);
  const { record, model } = globalThis.pellucid ?? {};
  if (!record || !model) return;
  model.store.set(addressed(record, model.state, shownTabs(record), location.hash, other !== null));
  film?.go(frameAt(film.steps, location.hash));
});
