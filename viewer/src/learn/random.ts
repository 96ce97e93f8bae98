// Numbers drawn from a seed, the same in every browser: a counter through MurmurHash3's finaliser,
// as pellucid.core.rng scrambles it.

/** The step of the counter: 2³² over the golden ratio. */
export const GOLDEN = 0x9e3779b9;

export class Random {
  private count: number;

  constructor(seed: number) {
    this.count = mix(seed ^ GOLDEN);
  }

  /** Uniform in [0, 1). */
  next(): number {
    this.count = (this.count + GOLDEN) >>> 0;
    return mix(this.count) / 2 ** 32;
  }

  /** A whole number from `low` up to `end`. */
  below(low: number, end: number): number {
    return low + Math.floor(this.next() * (end - low));
  }

  /** Standard normal, by G. Box and M. Muller. */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
  }
}

export function mix(h: number): number {
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
