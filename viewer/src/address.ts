// The state of the page in its address, so that a finding can be linked: #tab=attention&layer=2&head=3.
// Layers, heads, queries and keys count from 1 there.

import { clamp } from "./dom.ts";
import type { Model } from "./model.ts";
import { kindsOf, layersOf } from "./record.ts";
import type { Kind, PageRecord } from "./record.ts";
import type { Trial } from "./run/trial.ts";
import { embedded } from "./share/share.ts";
import type { State, Tab } from "./store.ts";

const PLACES = ["layer", "head", "query", "key"] as const;
const BESIDES = ["weights", "scores", "change", "head", "other"] as const;
/** Of the head that is compared with the one in view. */
const COMPARED = ["layer2", "head2"] as const;

/** The state with what the address says; what it says of things that there are not is left out. */
export function addressed(
  record: PageRecord,
  state: State,
  tabs: readonly Tab[],
  hash: string,
  other = false,
): State {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const kind = said.get("kind") as Kind | null;
  const found = { ...state };
  if (kind !== null && kindsOf(record).includes(kind)) found.kind = kind;
  const tab = said.get("tab") as Tab | null;
  if (tab !== null && tabs.includes(tab)) found.tab = tab;
  const layers = layersOf(record, found.kind);
  const [heads, queries] = layers[0]!.q.shape;
  const counts = { layer: layers.length, head: heads, query: queries, key: layers[0]!.k.shape[1] };
  for (const name of PLACES) {
    const value = Number(said.get(name) ?? NaN);
    found[name] = clamp(Number.isInteger(value) ? value - 1 : found[name], counts[name]);
  }
  const beside = BESIDES.find((name) => name === said.get("beside"));
  if (beside && (beside !== "other" || other)) found.beside = beside;
  for (const name of COMPARED) {
    const value = Number(said.get(name) ?? NaN);
    if (Number.isInteger(value) && value > 0) found[name] = value - 1;
  }
  return found;
}

/** Give a trial the text, the parts that are off and the lessons of the address. */
export function addressedTrial(trial: Trial, hash: string): void {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  trial.text = said.get("text") ?? trial.text;
  const known = trial.sites.map(({ name }) => name);
  const off = (said.get("off") ?? "").split(",").filter((part) => {
    const [where, at] = part.split(".");
    return /^[a-z]+(\.\d+)+$/.test(part) && (where === "source" || known.includes(`${where}.${at}`));
  });
  trial.off = new Set(off);
  trial.expected = said.get("expected") ?? "";
  trial.from = said.get("from") ?? "";
  trial.mode = said.get("instead") === "mean" ? "mean" : said.has("from") ? "text" : "zero";
  const rights = said.getAll("right");
  const lessons = said.getAll("learn").map((text, i) => ({ text, right: rights[i] ?? "" }));
  if (lessons.length > 0) trial.learn(lessons);
}

/** Write the state into the address, where the browser lets a page do that. */
export function address({ record, state, other, compared }: Model, trial: Trial | null): void {
  const said = new URLSearchParams({ ...(embedded() ? { embed: "" } : {}), tab: state.tab, kind: state.kind });
  if (record.at !== undefined) said.set("at", String(record.at));
  for (const name of PLACES) said.set(name, String(state[name] + 1));
  if (state.beside !== (other ? "other" : "weights") || compared) said.set("beside", state.beside);
  if (compared) for (const name of COMPARED) said.set(name, String(state[name] + 1));
  if (trial && (state.tab === "run" || trial.text !== trial.runner.record.text)) {
    said.set("text", trial.text);
    if (trial.expected !== "") said.set("expected", trial.expected);
    if (trial.off.size > 0) said.set("off", [...trial.off].join(","));
    if (trial.mode === "mean") said.set("instead", "mean");
    if (trial.mode === "text") said.set("from", trial.from);
    for (const { text, right } of trial.linked ? trial.lessons : []) {
      said.append("learn", text);
      said.append("right", right);
    }
  }
  turnTo(said);
}

export function turnTo(said: URLSearchParams): void {
  try {
    history.replaceState(null, "", `#${String(said).replaceAll("%2C", ",")}`);
  } catch {
    // A page within another, such as a notebook's, has no address of its own.
  }
}
