// One gradient from one predicted token back to the embeddings: its length at every place.

import { slopeOf } from "../attention.ts";
import { unpackHead } from "../record.ts";
import type { AttentionMap, Flow, FlowStage, PackedArray, Rows, Side } from "../record.ts";
import type { Gradients } from "./backward.ts";
import { dot, norms } from "./forward.ts";
import { lastOf, stacksOf } from "./model.ts";
import type { StackName } from "./model.ts";
import { blockOf, lazy } from "./recorded.ts";
import type { Fed } from "./recorded.ts";

/** Tokens of the longest sequence that is followed back: a picture has a column for each. */
const LONGEST = 128;
/** The widest pairs of query and key that are kept of each attention. */
const EDGES = 48;
const SIDES: { [name in StackName]: Side } = { encoder: "source", decoder: "target" };

/** The gradients of −log p of single tokens, and of what stands between two; each is followed back when it is looked at. */
export function flowsOf(fed: Fed, maps: AttentionMap[]): Flow[] {
  const { runner, runs, read, expected } = fed;
  const stacks = stacksOf(runner.record).reverse();
  if (stacks.some(([name, { blocks }]) => blocks.length === 0 || read[name].length > LONGEST)) return [];
  const names = stacks.map(([name]) => name);
  const places = expected.flatMap((token, place) => (token === null ? [] : [place]));
  const flowOf = (step: number, place: number, other?: number): Flow => {
    const made = lazy(() => {
      const gradients = fed.back(place, other);
      const { values, width } = runner.logits(runs[lastOf(runner.record)[0]].rows);
      const logits = values.subarray(place * width, (place + 1) * width);
      const most = logits.reduce((a, b) => Math.max(a, b));
      const e = Float64Array.from(logits, (x) => Math.exp(x - most));
      const all = e.reduce((a, b) => a + b);
      const own = expected[place]!;
      const dlogits = other === undefined ? Math.hypot(...e.map((x, i) => x / all - (i === own ? 1 : 0))) : Math.SQRT2;
      const stages = names.flatMap((name) => stagesOf(fed, name, maps, gradients));
      const tables = Object.fromEntries(names.map((name) => [SIDES[name], table(fed, name, gradients)]));
      return { dlogits, stages, tables };
    });
    return {
      step,
      place: runner.record.labels === "text" ? -1 : place,
      get dlogits() {
        return made().dlogits;
      },
      get stages() {
        return made().stages;
      },
      get tables() {
        return made().tables;
      },
      between: (other) => flowOf(step, place, other),
    };
  };
  return places.map((place, step) => flowOf(step, place));
}

/** From the rows that a stack gives to those that enter it. */
function stagesOf({ runner }: Fed, name: StackName, maps: AttentionMap[], { passed, predicting, scores }: Gradients): FlowStage[] {
  const { blocks, norm } = runner.record.stacks[name]!;
  const { last, first, arrives, sums, heads } = passed[name]!;
  const about = { stack: name, side: SIDES[name] };
  const stages: FlowStage[] = [];
  const from = (i: number) => (i < 0 ? first : arrives[i]!);
  if (runner.record.mask !== undefined) stages.push({ role: "transform", layer: null, edges: [], ...about, lengths: lengths(predicting, null, last) });
  if (norm) stages.push({ role: "norm", layer: null, edges: [], ...about, lengths: lengths(last, null, from(blocks.length - 1)) });
  for (let i = blocks.length - 1; i >= 0; i--) {
    const block = blocks[i]!;
    const shared = { ...about, layer: block.layer, lengths: lengths(arrives[i]!, sums[i]!, from(i - 1)) };
    if (block.kind === "network") {
      stages.push({ role: "feed_forward", edges: [], ...shared });
      continue;
    }
    const map = maps.find((one) => {
      const { stack, at } = blockOf(runner, one);
      return stack === name && at === i;
    })!;
    const { dz, dkeys } = heads[i]!;
    stages.push({
      role: block.memory ? "cross" : "attention",
      ...shared,
      edges: edgesOf(map, dz, scores[name][i]!),
      heads: { shape: [block.heads, 1, dz.count], values: byHead(dz, block.heads) },
      ...(block.memory ? { memory: row(norms(dkeys)) } : {}),
    });
  }
  return stages;
}

/** ‖d‖ that arrives, goes around, comes through, and leaves. */
function lengths(arrives: Rows, around: Rows | null, leaves: Rows): PackedArray {
  const through = around ? { ...leaves, values: leaves.values.map((d, i) => d - around.values[i]!) } : leaves;
  const none = new Float32Array(arrives.count);
  const all = [norms(arrives), around ? norms(around) : none, norms(through), norms(leaves)];
  return { shape: [4, 1, arrives.count], values: Float32Array.from(all.flatMap((one) => [...one])) };
}

/**
 * The widest gradients that one query sends to one key and its value, all heads. The squared length is
 * Σ_h ‖w dz‖² + ‖s da q‖²: what dv and dk of the key have from the query. In self-attention that of dq, which goes
 * back to the query's own token, is added.
 */
function edgesOf(map: AttentionMap, dz: Rows, scores: Float64Array): FlowStage["edges"] {
  const [heads, queries, width] = map.q.shape;
  const keys = map.k.shape[1];
  const squares = new Float64Array(queries * keys);
  const weights = map.weights!;
  for (let h = 0; h < heads; h++) {
    const [q, k] = [unpackHead(map.q, h).values, unpackHead(map.k, h).values];
    for (let l = 0; l < queries; l++) {
      const own = l * dz.width + h * width;
      const [ofZ, ofQ] = [dot(dz.values, own, dz.values, own, width), dot(q, l * width, q, l * width, width)];
      const dq = new Float64Array(width);
      for (let s = 0; s < keys; s++) {
        const at = (h * queries + l) * keys + s;
        const w = weights[at]!;
        if (w === 0) continue;
        const scaled = map.scales[h]! * dot(q, l * width, k, s * width, width);
        const da = scores[at]! * slopeOf(scaled, { parts: map.rule, added: null }) * map.scales[h]!;
        squares[l * keys + s]! += w * w * ofZ + da * da * ofQ;
        for (let i = 0; i < width; i++) dq[i]! += da * k[s * width + i]!;
      }
      if (map.kind !== "cross") squares[l * keys + l]! += dq.reduce((all, d) => all + d * d, 0);
    }
  }
  return Array.from(squares.keys())
    .filter((at) => squares[at]! > 0)
    .sort((a, b) => squares[b]! - squares[a]!)
    .slice(0, EDGES)
    .map((at) => [Math.floor(at / keys), at % keys, Math.sqrt(squares[at]!)]);
}

/** For each token read the length of the gradient of its row of the embedding; tokens read twice have one. */
function table({ runner, read }: Fed, name: StackName, { passed }: Gradients): PackedArray {
  const { factor } = runner.record.stacks[name]!.embed;
  const { values, width } = passed[name]!.embedded;
  const found = new Map<number, Float64Array>();
  read[name].forEach((id, t) => {
    const d = found.get(id) ?? new Float64Array(width);
    for (let i = 0; i < width; i++) d[i]! += factor * values[t * width + i]!;
    found.set(id, d);
  });
  return row(Float32Array.from(read[name], (id) => Math.hypot(...found.get(id)!)));
}

const row = (values: Float32Array): PackedArray => ({ shape: [1, 1, values.length], values });

function byHead({ values, count, width: all }: Rows, heads: number): Float32Array {
  const width = all / heads;
  return Float32Array.from({ length: heads * count }, (_, n) => {
    const from = (n % count) * all + Math.floor(n / count) * width;
    return Math.hypot(...values.subarray(from, from + width));
  });
}
