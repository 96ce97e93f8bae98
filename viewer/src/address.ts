// The state of the page in its address, so that a finding can be linked: #tab=attention&layer=2&head=3.
// Layers, heads, queries and keys count from 1 there.

import { clamp } from "./dom.ts";
import type { Model } from "./model.ts";
import { kindsOf, layersOf } from "./record.ts";
import type { Kind, PageRecord } from "./record.ts";
import { parameters } from "./run/edit.ts";
import type { Named } from "./run/edit.ts";
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
  const cell = ["kind", ...PLACES].some((name) => said.has(name));
  if (tab !== null && tabs.includes(tab)) found.tab = tab;
  else if (cell && found.tab === "whole") found.tab = "attention";
  const layers = layersOf(record, found.kind);
  const [heads, queries] = layers[0]!.q.shape;
  const counts = { layer: layers.length, head: heads, query: queries, key: layers[0]!.k.shape[1] };
  for (const name of PLACES) {
    const value = Number(said.get(name) ?? NaN);
    found[name] = clamp(Number.isInteger(value) ? value - 1 : found[name], counts[name]);
  }
  const step = Number(said.get("step") ?? NaN);
  if (Number.isInteger(step) && step > 0 && step <= record.steps.length) found.step = step - 1;
  const rather = Number(said.get("rather") ?? NaN);
  if (Number.isInteger(rather)) found.rather = rather;
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

/** Of a text that was read: the token, the one rather, the head and the edit that the address says. */
export function addressedChoice(trial: Trial, hash: string): void {
  if (!trial.whole) return;
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const pair = (name: string): [number, number] | null => {
    const places = (said.get(name) ?? "").split(".").map((place) => Number(place) - 1);
    return places.length === 2 && places.every((place) => Number.isInteger(place) && place >= 0) ? (places as [number, number]) : null;
  };
  trial.token = clamp(Number(said.get("token") ?? trial.token + 1) - 1 || 0, trial.whole.answer.losses.length);
  const rather = Number(said.get("rather") ?? NaN);
  if (Number.isInteger(rather) && rather >= 0 && rather < trial.target.size && rather !== trial.decides.token) trial.rather = rather;
  const look = said.get("look") ?? "";
  const site = trial.sites.find(({ name, block }) => block.kind === "attention" && look.startsWith(`${name}.`));
  if (site?.block.kind === "attention" && Number(look.slice(site.name.length + 1)) < site.block.heads) trial.look = look;
  const all = parameters(trial.runner.record);
  const matrix = all.findIndex((one) => nameOf(one) === said.get("matrix"));
  const [row, column] = pair("cell") ?? [Infinity, 0];
  const by = Number(said.get("by") ?? NaN);
  trial.edit = {
    kind: (["weight", "step"] as const).find((kind) => kind === said.get("edit")) ?? "score",
    score: pair("score"),
    matrix: Math.max(0, matrix),
    cell: matrix >= 0 && row < all[matrix]!.rows && column < all[matrix]!.columns ? [row, column] : null,
    whole: said.get("loss") !== "token",
    by: Number.isFinite(by) ? by : null,
  };
}

const nameOf = ({ where, symbol }: Named) => `${where}.${symbol}`;

function writeChoice(said: URLSearchParams, { token, leastSure, rather, look, opens, edit, runner }: Trial): void {
  const places = (pair: [number, number]) => pair.map((place) => place + 1).join(".");
  if (token !== leastSure) said.set("token", String(token + 1));
  if (rather !== null) said.set("rather", String(rather));
  if (look !== opens) said.set("look", look);
  if (edit.kind !== "score") said.set("edit", edit.kind);
  if (edit.kind === "score" && edit.score) said.set("score", places(edit.score));
  if (edit.kind === "weight") said.set("matrix", nameOf(parameters(runner.record)[edit.matrix]!));
  if (edit.kind === "weight" && edit.cell) said.set("cell", places(edit.cell));
  if (!edit.whole) said.set("loss", "token");
  if (edit.by !== null) said.set("by", String(Number(edit.by.toPrecision(6))));
}

/** Write the state into the address, where the browser lets a page do that. */
export function address({ record, state, other, compared }: Model, trial: Trial | null): void {
  const said = new URLSearchParams({ ...(embedded() ? { embed: "" } : {}), tab: state.tab, kind: state.kind });
  if (record.at !== undefined) said.set("at", String(record.at));
  for (const name of PLACES) said.set(name, String(state[name] + 1));
  if (state.beside !== (other ? "other" : "weights") || compared) said.set("beside", state.beside);
  if (compared) for (const name of COMPARED) said.set(name, String(state[name] + 1));
  if (state.tab === "backward" || state.tab === "generation") said.set("step", String(state.step + 1));
  if (state.tab === "backward" && state.rather !== null) said.set("rather", String(state.rather));
  if (trial && (state.tab === "run" || trial.text !== trial.runner.record.text)) {
    said.set("text", trial.text);
    if (trial.expected !== "") said.set("expected", trial.expected);
    if (trial.off.size > 0) said.set("off", [...trial.off].join(","));
    if (trial.mode === "mean") said.set("instead", "mean");
    if (trial.mode === "text") said.set("from", trial.from);
    if (state.tab === "run") writeChoice(said, trial);
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
