// The record of the text that the model in the page reads, as pellucid.apps.view records it for a model that is
// too large for a page. What the eye does not ask for is not computed: gradients, derivations and flows are made
// at first asking.

import type { AttentionMap, Cell, Label, PackedArray, PageRecord, Part, Rows, Side, Step, TreeNode } from "../record.ts";
import { backward } from "./backward.ts";
import { derivationsOf } from "./derived.ts";
import { flowsOf } from "./flows.ts";
import { expectedOf } from "./edit.ts";
import { added, indices, largest, loss, norms } from "./forward.ts";
import type { Run, Runner } from "./forward.ts";
import type { Gradients } from "./backward.ts";
import { lastOf } from "./model.ts";
import type { Attention, StackName } from "./model.ts";
import { sum } from "./trial.ts";
import type { Reading, Trial } from "./trial.ts";

const CANDIDATES = 10;
/** By how much weights differ from the library's at most, which computes in other sums: as tested. */
const OFF = 1e-5;

/** A forward pass of one text, and its backward pass when it is asked for. */
export interface Fed {
  runner: Runner;
  reading: Reading;
  runs: { [name in StackName]: Run };
  read: { [name in StackName]: readonly number[] };
  /** The token that each row of logits should predict; null: not in the loss. */
  expected: (number | null)[];
  /** Of the loss of all expected tokens, or of a row alone, or there of its token's logit minus that of another. */
  back: (row?: number, other?: number) => Gradients;
}

export function lazy<T>(make: () => T): () => T {
  let made: { it: T } | null = null;
  return () => (made ??= { it: make() }).it;
}

function fedOf(trial: Trial, reading: Reading): Fed {
  const { runner } = trial;
  const { memory, run, answer } = reading;
  const expected = expectedOf(runner, run, answer);
  const read = { encoder: memory.ids, decoder: [...memory.prompt, ...answer.ids] };
  const all = lazy(() => backward(runner, memory, run, read.decoder, expected).gradients);
  return {
    runner,
    reading,
    runs: { encoder: memory.run, decoder: run },
    read,
    expected,
    back: (row, other) => {
      if (row === undefined) return all();
      const between = other === undefined ? null : { row, token: expected[row]!, other };
      return backward(runner, memory, run, read.decoder, between ?? expected.map((token, l) => (l === row ? token : null))).gradients;
    },
  };
}

/**
 * The record of what is read now. `about` is the record that the page came with: what does not depend on the text
 * is its. It also has the search and the check of the text that it was made of, which are kept for that one.
 */
export function recorded(trial: Trial, about: PageRecord): PageRecord {
  const reading = trial.whole!;
  const { answer } = reading;
  const fed = fedOf(trial, reading);
  const { stacks } = trial.runner.record;
  const source = stacks.encoder ? trial.labels("source") : []; // all tokens are the decoder's
  const target = stacks.decoder ? trial.labels("target") : [];
  const steps = stepsOf(trial, fed);
  const same =
    trial.text === trial.runner.record.text && !trial.taught && String(steps.map(({ token }) => token)) === String(about.steps.map(({ token }) => token));
  const sides = { source: source.length, target: stacks.decoder ? reading.memory.prompt.length + answer.ids.length : 0 };
  const shown = { source, target: target.slice(0, sides.target) };
  const maps = about.maps.map((map) => mapOf(map, fed));
  const opens = same && about.opens ? about.opens : cellOf(maps);
  const made = partsOf(about.parts ?? [], fed, sides);
  const tree = stacks.decoder ? treeOf(trial, target[reading.run.places[0]!]!) : [];
  const rest = same ? {} : { title: titleOf(trial), ...noted(trial, about), check: null, tree };
  const record: PageRecord = {
    ...about,
    ...rest,
    ...shown,
    loss: sum(answer.losses),
    off: OFF,
    maps,
    steps,
    opens,
    own: stacks.decoder || trial.asks ? trial.target.decode(trial.own!.ids) : "",
    parts: made,
    kept: { source: indices(sides.source), target: indices(sides.target) },
  };
  const { queries, keys } = maps.find(({ kind }) => kind === opens.kind)!;
  const derivations = lazy(() => derivationsOf(fed, made, { [keys]: opens.key, [queries]: opens.query }));
  const flows = lazy(() => flowsOf(fed, maps));
  return Object.defineProperties(record, {
    derivations: { get: derivations, enumerable: true },
    flows: { get: flows, enumerable: true },
  });
}

/** "text → answer", as the library writes it: of what is masked the text with it; a text without a mask alone. */
export function titleOf(trial: Trial): string {
  const { runner: { record }, piece, source, target } = trial;
  const { answer, memory, run } = trial.whole!;
  if (record.mask !== undefined) {
    const filled = [...memory.ids];
    run.places.forEach((place, l) => (filled[place] = answer.ids[l]!));
    return trial.asks ? `${piece} → ${source.decode(filled)}` : piece;
  }
  const read = record.stacks.encoder ? piece : source.decode(memory.ids);
  return `${read === "" ? "" : `${read} → `}${target.decode(answer.ids)}`;
}

function noted(trial: Trial, about: PageRecord): Pick<PageRecord, "notes" | "korean"> {
  const [notes, korean]: [string[], string[]] = [[], []];
  const { ids, ended } = trial.whole!.answer;
  if (!trial.asks) {
    notes.push("Nothing is masked: every token is predicted while the model sees it. Try [MASK].");
    korean.push("마스크가 없어 모델이 모든 토큰을 보면서 예측합니다. [MASK]를 넣어 보세요.");
  }
  if (trial.runner.record.stacks.decoder && !ended) {
    notes.push(`The answer did not end within ${ids.length} tokens.`);
    korean.push(`토큰 ${ids.length}개 안에 답이 끝나지 않았습니다.`);
  }
  const unknown = [...new Set(trial.labels("source").flatMap(([text, kind]) => (kind === "unknown" ? [text] : [])))].join(" ");
  if (unknown) {
    notes.push(`Never seen in training: ${unknown}`);
    korean.push(`학습에 없던 문자: ${unknown}`);
  }
  return { notes, korean: { model: about.korean?.model ?? about.model, notes: korean } };
}

/** Each expected token with the most likely ones in its place. */
function stepsOf({ runner, target }: Trial, { runs, expected }: Fed): Step[] {
  const { values, width } = runner.logits(runs[lastOf(runner.record)[0]].rows);
  const never = new Set(runner.record.suppressed ?? []);
  return expected.flatMap((token, row) => {
    if (token === null) return [];
    const place = runner.record.labels === "text" ? -1 : row;
    const logits = values.subarray(row * width, (row + 1) * width);
    const p = (id: number) => Math.exp(-loss(logits, id));
    const likely = indices(width)
      .filter((id) => !never.has(id))
      .sort((a, b) => logits[b]! - logits[a]!)
      .slice(0, CANDIDATES);
    const candidates = likely.map((id): Step["candidates"][0] => [...target.label(id), p(id), id]);
    return [{ label: target.label(token), probability: p(token), place, token, candidates }];
  });
}

/** The greedy search: the answer's tokens, and the second likeliest of each place. */
function treeOf(trial: Trial, root: Label): TreeNode[] {
  const { runner, target } = trial;
  const own = trial.own!;
  const { rows, places } = runner.decode(trial.whole!.memory, own.ids);
  const { values, width } = runner.logits(rows);
  const nodes: TreeNode[] = [[-1, ...root, 1, 0, "kept", 0]];
  const others: TreeNode[] = [];
  let [logP, parent] = [0, 0];
  const never = new Set(runner.record.suppressed ?? []);
  for (let l = 0; l < own.ids.length + (own.ended ? 1 : 0); l++) {
    const logits = values.subarray(places[l]! * width, (places[l]! + 1) * width);
    const id = own.ids[l] ?? runner.record.end;
    const second = indices(width).reduce((best, i) => (i !== id && !never.has(i) && (best < 0 || logits[i]! > logits[best]!) ? i : best), -1);
    const node = (token: number, state: TreeNode[5], rank: number): TreeNode => {
      const own = -loss(logits, token);
      return [parent, ...target.label(token), Math.exp(own), logP + own, state, rank];
    };
    if (second >= 0) others.push(node(second, "dropped", 0));
    const ends = l === own.ids.length;
    const made = node(id, ends ? "end" : "kept", ends || (!own.ended && l === own.ids.length - 1) ? 1 : 0);
    (ends ? others : nodes).push(made);
    logP = made[4];
    if (!ends) parent = nodes.length - 1;
  }
  return [...nodes, ...others];
}

/** The block of an attention of the record. */
export function blockOf(runner: Runner, map: AttentionMap): { stack: StackName; at: number; block: Attention } {
  const stack = map.kind === "encoder" ? "encoder" : "decoder";
  const { blocks } = runner.record.stacks[stack]!;
  const at = blocks.findIndex((b) => b.kind === "attention" && b.layer === map.layer - 1 && b.memory === (map.kind === "cross"));
  return { stack, at, block: blocks[at] as Attention };
}

/** Rows (T, H · D) by head, (H, T, D); heads of one group have the same. */
function byHeads(rows: Rows, heads: number, width: number): PackedArray {
  const group = (heads * width) / rows.width;
  const values = new Float32Array(heads * rows.count * width);
  for (let h = 0, to = 0; h < heads; h++) {
    const from = Math.floor(h / group) * width;
    for (let t = 0; t < rows.count; t++, to += width) {
      values.set(rows.values.subarray(t * rows.width + from, t * rows.width + from + width), to);
    }
  }
  return { shape: [heads, rows.count, width], values };
}

const whole = ({ values, count, width }: Rows): PackedArray => ({ shape: [1, count, width], values });

function mapOf(map: AttentionMap, { runner, runs, back }: Fed): AttentionMap {
  const { stack, at, block } = blockOf(runner, map);
  const { heads, width } = block;
  const look = runs[stack].looks[at]!;
  const array = (rows: Rows) => byHeads(rows, heads, width);
  const distances = block.distances && runner.rule(block, 0).added!.length;
  const made = {
    ...map,
    scales: indices(heads).map((h) => runner.factor(block, h)),
    entropies: indices(heads).map((h) => entropies(look.weights, h, look.q.count, look.keys).mean),
    q: array(look.q),
    k: array(look.k),
    v: array(look.v),
    weights: look.weights,
  };
  if (distances) made.added = { shape: [heads, 1, distances], values: runner.tensors[block.distances!.table]!.values };
  const passed = () => back().passed[stack]!.heads[at]!;
  return Object.defineProperties(made, {
    doutputs: { get: lazy(() => array(passed().dz)), enumerable: true },
    dqueries: { get: lazy(() => whole(passed().dqueries)), enumerable: true },
    dkeys: { get: lazy(() => whole(passed().dkeys)), enumerable: true },
  });
}

/** The mean entropy of a head's rows, and how far its keys depend on the query, in nats. */
export function entropies(weights: Float32Array, head: number, queries: number, keys: number): { mean: number; information: number } {
  const entropy = (p: ArrayLike<number>) => -sum(Array.from(p, (w) => (w > 0 ? w * Math.log(w) : 0)));
  const rows = indices(queries).map((l) => weights.subarray((head * queries + l) * keys, (head * queries + l + 1) * keys));
  const mean = sum(rows.map(entropy)) / queries;
  const middle = indices(keys).map((s) => sum(rows.map((row) => row[s]!)) / queries);
  return { mean, information: entropy(middle) - mean };
}

/** The largest weight of the head whose keys depend most on the query, or of the head `within`. */
export function cellOf(maps: AttentionMap[], within?: { kind: string; layer: number; head: number }): Cell {
  const last = (["cross", "decoder", "encoder"] as const).find((kind) => maps.some((map) => map.kind === kind));
  let [best, cell]: [number, Cell | null] = [-Infinity, null];
  for (const map of maps) {
    const { kind, layer, q, k } = map;
    const [heads, queries] = q.shape;
    const keys = k.shape[1];
    const weights = map.weights!;
    if (kind !== (within?.kind ?? last) || (within && layer !== within.layer + 1)) continue;
    for (let head = within?.head ?? 0; head < (within ? within.head + 1 : heads); head++) {
      const { information } = entropies(weights, head, queries, keys);
      if (information <= best) continue;
      const first = kind === "decoder" && queries > 1 ? 1 : 0; // a first query sees itself alone
      const own = weights.subarray((head * queries + first) * keys, (head + 1) * queries * keys);
      const at = largest(own);
      best = information;
      cell = { kind, layer: layer - 1, head, query: first + Math.floor(at / keys), key: at % keys };
    }
  }
  return cell!;
}

const lengths = (rows: Rows): PackedArray => ({ shape: [1, 1, rows.count], values: norms(rows) });

const byRow = ({ values, count, width }: Rows): PackedArray => ({ shape: [count, 1, width], values });

/** Every part with its rows, and their gradients where the backward pass has them. */
function partsOf(parts: Part[], fed: Fed, sides: { [side in Side]: number }): Part[] {
  const { runner, runs, read, back } = fed;
  const { stacks } = runner.record;
  const block = { encoder: -1, decoder: -1 };
  const sizes: { [letter: string]: number } = { S: sides.source, L: sides.target };
  let last = "";
  return parts.map((part) => {
    const { role, kind, stack, layer } = part;
    const place = `${stack} ${layer} ${part.block}`;
    if (layer !== null && place !== last) block[stack]++;
    last = place;
    const whole = stacks[stack]!;
    const [i, { embed, blocks }, run] = [block[stack], whole, runs[stack]];
    const passed = () => back().passed[stack]!;
    const shape = part.shape.map(([letter, size]): [string, number] => [letter, sizes[letter] ?? size]);
    const made = (rows: Rows | null, drows?: () => Rows): Part => {
      const own = { ...part, shape, ...(rows ? { rows: byRow(rows), rows_norms: lengths(rows) } : {}) };
      if (!drows) return own;
      return Object.defineProperties(own, {
        drows: { get: lazy(() => byRow(drows())), enumerable: true },
        drows_norms: { get: lazy(() => lengths(drows())), enumerable: true },
      });
    };
    if (part.map || ["mean", "pooler", "output"].includes(role)) return { ...part, shape };
    if (role === "transform") return made(runner.predicting(run.rows), () => back().predicting);
    if (layer === null) {
      const before = i < 0;
      if (role === "norm") return before ? made(run.inputs[0]!, () => passed().first) : made(run.rows, () => passed().last);
      if (role === "sum") return made(runner.embedded(whole, read[stack]), embed.norm ? undefined : () => passed().first);
      if (role === "embedding" && kind === "tokens") return made(runner.tokenRows(whole, read[stack]));
      return made(role === "positions" ? runner.places(whole, read[stack].length) : runner.segments(whole, read[stack].length));
    }
    const { norm, norm_first } = blocks[i]!;
    const [x, y, next] = [run.inputs[i]!, run.outputs[i]!, run.inputs[i + 1]!];
    if (role === "norm") {
      return norm_first ? made(runner.norm(x, norm), () => passed().given[i]!) : made(next, () => passed().arrives[i]!);
    }
    if (role === "residual") {
      return norm_first ? made(next, () => passed().arrives[i]!) : made(added(x, y), () => passed().sums[i]!);
    }
    return made(y, () => passed().sums[i]!);
  });
}
