// The record and the choices together: what the parts of the page ask for.

import type { Summary } from "./attention.ts";
import { readColours } from "./colours.ts";
import type { Colours } from "./colours.ts";
import { headsOf } from "./heads.ts";
import type { Head } from "./heads.ts";
import { kindsOf, layersOf } from "./record.ts";
import type { AttentionMap, Kind, Label, PageRecord, Part, Side, Step } from "./record.ts";
import { largest } from "./run/forward.ts";
import { Store } from "./store.ts";
import type { State } from "./store.ts";
import { clamp } from "./dom.ts";
import { preferred, t } from "./text.ts";

export const DARK = matchMedia("(prefers-color-scheme: dark)");

function showTheme(theme: State["theme"]): Colours {
  const dark = theme === "auto" ? DARK.matches : theme === "dark";
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  return readColours();
}

/** The token that the model was least sure of, whose gradient says most. */
function leastSure({ steps }: PageRecord): number {
  return largest(steps.map(({ probability }) => -probability));
}

/** The end of the best answer in the tree of the search. */
function bestNode({ tree }: PageRecord): number {
  return Math.max(0, tree.findIndex((node) => node[6] === 1));
}

export class Model {
  record: PageRecord;
  /** The record of another model or text, under the same cursor. */
  readonly other: PageRecord | null;
  readonly kinds: Kind[];
  readonly store: Store;
  colours: Colours;
  private readonly heads = new WeakMap<PageRecord, { [kind in Kind]?: Head[][] }>();

  constructor(record: PageRecord, state: State, other: PageRecord | null = null) {
    [this.record, this.other] = [record, other];
    this.colours = showTheme(state.theme);
    this.kinds = kindsOf(record);
    this.store = new Store(state);
  }

  /** The choices that a page opens with. */
  static opening(record: PageRecord, other: PageRecord | null = null): State {
    const kinds = kindsOf(record);
    const kind = kinds[kinds.length - 1]!;
    const last = { kind, layer: layersOf(record, kind).length - 1, head: 0, query: 0, key: 0 };
    const opens = record.opens ?? last;
    const map = layersOf(record, opens.kind)[opens.layer]!;
    const beside = other?.opens?.kind === opens.kind ? other.opens : opens;
    const next = (opens.head + 1) % map.q.shape[0];
    const part = record.parts?.findIndex((one) => one.map === map.name && one.role === "softmax");
    return {
      // Two maps are compared in Attention.
      tab: other ? "attention" : (record.tab ?? "attention"),
      ...opens,
      other: 0,
      part: Math.max(0, part ?? 0),
      through: null,
      entry: 0,
      scale: null,
      form: "matrix",
      beside: other ? "other" : "weights",
      layer2: beside.layer,
      head2: other ? beside.head : next,
      zoom: "readable",
      step: leastSure(record),
      rather: null,
      node: bestNode(record),
      frame: 0,
      tour: null,
      theme: "auto",
      colours: 0,
      language: preferred(record.language),
    };
  }

  /** Light, dark, or as the system has it now. */
  chooseTheme(theme: State["theme"]): void {
    this.colours = showTheme(theme);
    this.store.set({ theme, colours: this.state.colours + 1 });
  }

  /** Draw at once in light colours for paper, or again as chosen. */
  usePaper(paper: boolean): void {
    this.chooseTheme(this.state.theme);
    if (paper) this.colours = showTheme("light");
    this.store.flush();
  }

  get state(): State {
    return this.store.state;
  }

  /** Show the same text as it was at another frame of the film. */
  showFrame(frame: number, record: PageRecord): void {
    this.record = record;
    this.store.set({ frame, node: bestNode(record) });
  }

  /** Every head of the kind in view, by layer. */
  get all(): Head[][] {
    return this.headsOf(this.record);
  }

  private headsOf(record: PageRecord, kind = this.state.kind): Head[][] {
    const kept = this.heads.get(record) ?? {};
    this.heads.set(record, kept);
    return (kept[kind] ??= headsOf(layersOf(record, kind)));
  }

  /** The heads of one attention of the record in view. */
  headsIn({ kind, name }: AttentionMap): Head[] {
    return this.headsOf(this.record, kind).find((layer) => layer[0]!.map.name === name)!;
  }

  /** The record that the head in view is compared within, where it is compared. */
  get second(): PageRecord | null {
    return { head: this.record, other: this.other }[this.state.beside as "head"] ?? null;
  }

  /** The heads of that record, and the one that is compared; none where it lacks the kind in view. */
  get compared(): { all: Head[][]; head: Head; record: PageRecord } | null {
    const { second: record, state: { layer2, head2 } } = this;
    const all = record ? this.headsOf(record) : [];
    const layer = all[clamp(layer2, all.length)];
    return record && layer ? { all, record, head: layer[clamp(head2, layer.length)]! } : null;
  }

  get head(): Head {
    return this.all[this.state.layer]![this.state.head]!;
  }

  /** What the head's scores are multiplied by now. */
  scaleOf(head: Head): number {
    return this.state.scale ?? head.scale;
  }

  get scale(): number {
    return this.scaleOf(this.head);
  }

  /** Whether this is an encoder alone, which predicts masked tokens and generates none. */
  get guesses(): boolean {
    return this.record.target.length === 0;
  }

  /** Whether what is predicted is made of one row for the whole text: its label. */
  get pooled(): boolean {
    return this.record.steps[0]?.place === -1;
  }

  /** What a row predicts; the label of the text is every row's. */
  stepAt(row: number): Step | undefined {
    return this.record.steps.find(({ place }) => place === row || place < 0);
  }

  get queries(): Label[] {
    return this.record[this.head.map.queries];
  }

  get keys(): Label[] {
    return this.record[this.head.map.keys];
  }

  /** The tokens of queries and of keys, each with its place, to choose one from. */
  get numbered(): [queries: string[], keys: string[]] {
    return [this.queries, this.keys].map((side) => side.map(([text], i) => `${i + 1} ${text}`)) as [string[], string[]];
  }

  get headName(): string {
    const { kind, layer, head } = this.state;
    return `${t.kinds[kind]}, ${t.layerAndHead(layer + 1, head + 1)}`;
  }

  summary(head: Head): Summary {
    return head.summary(this.scaleOf(head));
  }

  /** Go to another kind of attention, as far as it has the same layer, head and tokens. */
  chooseKind(kind: Kind): void {
    const layers = layersOf(this.record, kind);
    const first = layers[0]!;
    const { layer, head, query, key, entry } = this.state;
    this.store.set({
      kind,
      entry: Math.min(entry, first.q.shape[2] - 1),
      layer: Math.min(layer, layers.length - 1),
      head: Math.min(head, first.q.shape[0] - 1),
      query: Math.min(query, first.q.shape[1] - 1),
      key: Math.min(key, first.k.shape[1] - 1),
    });
  }

  /** The chosen token of each side. */
  get tokens(): { [side in Side]: number } {
    const { query, key, other } = this.state;
    const { queries, keys } = this.head.map;
    return { source: other, target: other, [keys]: key, [queries]: query };
  }

  chooseToken(side: Side, token: number): void {
    const { queries, keys } = this.head.map;
    const name = side === queries ? "query" : side === keys ? "key" : "other";
    this.store.set({ [name]: token });
  }

  /** Put a part of the whole model in view, and the attention that it belongs to. */
  choosePart(part: number): void {
    const { map } = this.parts[part]!;
    const found = this.record.maps.find(({ name }) => name === map);
    if (!found) {
      this.store.set({ part });
      return;
    }
    const { tokens } = this;
    const { kind, layer, queries, keys } = found;
    const same = queries === keys;
    this.store.set({
      part,
      kind,
      layer: layer - 1,
      head: Math.min(this.state.head, found.q.shape[0] - 1),
      entry: Math.min(this.state.entry, found.q.shape[2] - 1),
      query: tokens[queries],
      key: tokens[keys],
      other: same ? tokens[queries === "source" ? "target" : "source"] : 0,
    });
  }

  get parts(): Part[] {
    return this.record.parts ?? [];
  }

  chooseHead(layer: number, head: number): void {
    const layers = this.all.length;
    const heads = this.all[0]!.length;
    this.store.set({ layer: (layer + layers) % layers, head: (head + heads) % heads });
  }
}
