// The heads of the attention in view: everything computed at first asking and kept.

import * as attention from "./attention.ts";
import type { Matrix, Rule, Summary } from "./attention.ts";
import { unpackHead } from "./record.ts";
import type { AttentionMap, Rows } from "./record.ts";

export class Head {
  private kept: { [name: string]: unknown } = {};
  private scaled: { scale: number; weights: Matrix; summary: Summary } | undefined;

  constructor(readonly map: AttentionMap, readonly number: number) {}

  private once<T>(name: string, make: () => T): T {
    return (this.kept[name] ??= make()) as T;
  }

  /** What the model multiplies this head's scores by. */
  get scale(): number {
    return this.map.scales[this.number]!;
  }

  /** What becomes of its scaled products. */
  get rule(): Rule {
    return this.once("rule", () => {
      const { rule: parts, added } = this.map;
      return {
        parts,
        added: added ? unpackHead(added, this.number).values : null,
      };
    });
  }

  get q(): Rows {
    return this.once("q", () => unpackHead(this.map.q, this.number));
  }

  get k(): Rows {
    return this.once("k", () => unpackHead(this.map.k, this.number));
  }

  get v(): Rows {
    return this.once("v", () => unpackHead(this.map.v, this.number));
  }

  /** Q Kᵀ. */
  get products(): Matrix {
    return this.once("products", () => attention.products(this.q, this.k));
  }

  /** The weights under the model's own scale. */
  get own(): Matrix {
    return this.once("own", () => this.compute(this.scale));
  }

  get ownSummary(): Summary {
    return this.once("ownSummary", () => attention.summarise(this.own));
  }

  /** The weights under any scale; the last asked for is kept. */
  weights(scale: number): Matrix {
    return scale === this.scale ? this.own : this.at(scale).weights;
  }

  summary(scale: number): Summary {
    return scale === this.scale ? this.ownSummary : this.at(scale).summary;
  }

  /** Z of one query under a scale. */
  output(query: number, scale: number): Float32Array {
    return attention.output(this.weights(scale), this.v, query);
  }

  /** Gradient of the loss with respect to the head's output; like all gradients, at the model's
   * own scale. */
  get dz(): Rows {
    return this.once("dZ", () => unpackHead(this.map.doutputs, this.number));
  }

  get valueGradient(): Rows {
    return this.once("dV", () => attention.valueGradient(this.own, this.dz));
  }

  get weightGradient(): Matrix {
    return this.once("dW", () => attention.weightGradient(this.dz, this.v, this.rule));
  }

  /** Gradient with respect to the scores. */
  get scoreGradient(): Matrix {
    return this.once("dA", () =>
      attention.scoreGradient(this.own.values, this.weightGradient),
    );
  }

  /** Gradient with respect to the scaled products: the scores before a soft cap. */
  get scaledGradient(): Matrix {
    return this.once("dS", () =>
      attention.uncapped(this.scoreGradient, this.products, this.scale, this.rule),
    );
  }

  get queryGradient(): Rows {
    return this.once("dQ", () => attention.queryGradient(this.scaledGradient, this.k, this.scale));
  }

  get keyGradient(): Rows {
    return this.once("dK", () => attention.keyGradient(this.scaledGradient, this.q, this.scale));
  }

  finiteDifference(moved: attention.Moved, step: number): number {
    const { q, k, v, dz, scale, rule } = this;
    return attention.finiteDifference({ q, k, v, dz, scale, rule }, moved, step);
  }

  private at(scale: number): { weights: Matrix; summary: Summary } {
    if (this.scaled?.scale !== scale) {
      const weights = this.compute(scale, this.scaled?.weights);
      this.scaled = { scale, weights, summary: attention.summarise(weights) };
    }
    return this.scaled;
  }

  private compute(scale: number, reuse?: Matrix): Matrix {
    const { rows, columns } = this.products;
    const weights = reuse ?? { values: new Float32Array(rows * columns), rows, columns };
    attention.softmax(this.products, scale, this.rule, weights.values);
    return weights;
  }
}

/** All heads of all layers of one kind. */
export function headsOf(layers: AttentionMap[]): Head[][] {
  return layers.map((map) =>
    Array.from({ length: map.q.shape[0] }, (_, number) => new Head(map, number)),
  );
}
