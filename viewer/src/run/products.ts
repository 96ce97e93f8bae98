// The three products of a linear layer and of its backward, on rows of float32. Where the browser
// lets the page have WebAssembly they are the library's own kernel (scripts/page_product.py), whose
// memory then holds the model's numbers; else, and for a few rows, the loops below.

import wasm from "./product.wasm";

const NAME = "pellucid.kernels.backend.tile.product";
/** Rows of B and C are a multiple of so many numbers. */
const LANES = 8;
/** Sums of fewer numbers are faster without the copies that the kernel needs. */
const FEW = 32;
const PAGE = 1 << 16;
/** Where the kernel's stack ends, and room for what a product reads and writes. */
const [STACK, SCRATCH] = [1 << 17, 1 << 24];

type Kernel = (...numbers: (bigint | number)[]) => number;

const padded = (n: number) => Math.ceil(n / LANES) * LANES;

export class Products {
  private readonly kernel: Kernel | null = null;
  private readonly numbers: Float32Array;
  /** Where the next array begins, and where the scratch does. */
  private next = STACK / 4;
  private readonly scratch: number;
  /** Sums that are added up in place, one array for each of those placed. */
  private sums: Float32Array[] = [];

  /** Room for arrays of so many numbers, and for sums of as many; `plain` is without the kernel. */
  constructor(private readonly sizes: readonly number[], plain = false) {
    this.scratch = this.next + 2 * sizes.reduce((sum, size) => sum + padded(size), 0);
    let memory: WebAssembly.Memory | null = null;
    try {
      if (!plain) {
        memory = new WebAssembly.Memory({ initial: Math.ceil((4 * this.scratch + SCRATCH) / PAGE) });
        const { exports } = new WebAssembly.Instance(new WebAssembly.Module(wasm), { env: { memory } });
        this.kernel = exports[NAME] as Kernel;
      }
    } catch {
      memory = null; // a page without WebAssembly computes the same numbers more slowly
    }
    this.numbers = new Float32Array(memory?.buffer ?? new ArrayBuffer(0));
  }

  get fast(): boolean {
    return this.kernel !== null;
  }

  /** Move an array to where the kernel reads it. */
  place(values: Float32Array): Float32Array {
    if (!this.kernel) return values;
    const placed = this.numbers.subarray(this.next, this.next + values.length);
    placed.set(values);
    this.next += padded(values.length);
    return placed;
  }

  /** Zeros to add to, as many as there are numbers; the same arrays every time. */
  zeros(): Float32Array[] {
    if (this.sums.length > 0) for (const sum of this.sums) sum.fill(0);
    else this.sums = this.sizes.map((size) => this.place(new Float32Array(size)));
    return this.sums;
  }

  /** x Wᵀ: x (count, columns), w (width, columns). */
  rowsTimes(x: Float32Array, count: number, w: Float32Array, columns: number): Float32Array {
    const [width, n] = [w.length / columns, padded(count)];
    if (columns < FEW || !this.holds(w) || !this.fits(n * (columns + width))) return rowsTimes(x, count, w, columns);
    const [at, to] = [this.scratch, this.scratch + n * columns];
    const { numbers } = this;
    for (let t = 0; t < count; t++) {
      for (let i = 0; i < columns; i++) numbers[at + i * n + t] = x[t * columns + i]!;
    }
    // C (width, n) = W xᵀ, whose columns beyond `count` are whatever they are.
    this.product(width, n, columns, w.byteOffset / 4, columns, 1, at, n, to, n);
    const made = new Float32Array(count * width);
    for (let o = 0; o < width; o++) {
      for (let t = 0; t < count; t++) made[t * width + o] = numbers[to + o * n + t]!;
    }
    return made;
  }

  /** dy W: dy (count, width), w (width, columns). */
  timesRows(dy: Float32Array, count: number, w: Float32Array, columns: number): Float32Array {
    const width = w.length / columns;
    const fits = columns % LANES === 0 && this.holds(w) && this.fits(count * (width + columns));
    if (width < FEW || !fits) return timesRows(dy, count, w, columns);
    const [at, to] = [this.scratch, this.scratch + padded(count * width)];
    this.numbers.set(dy, at);
    this.product(count, columns, width, at, width, 1, w.byteOffset / 4, columns, to, columns);
    return this.numbers.slice(to, to + count * columns);
  }

  /** Add dyᵀ x to dw: dy (count, width), x (count, columns). */
  addOuter(dy: Float32Array, x: Float32Array, count: number, dw: Float32Array, columns: number): void {
    const width = dw.length / columns;
    const fits = columns % LANES === 0 && this.holds(dw) && this.fits(padded(count * width) + count * columns);
    if (columns < FEW || !fits) return addOuter(dy, x, count, dw, columns);
    const a = this.scratch;
    const b = a + padded(count * width);
    this.numbers.set(dy, a);
    this.numbers.set(x, b);
    const to = dw.byteOffset / 4;
    this.product(width, columns, count, a, 1, width, b, columns, to, columns, to);
  }

  private holds(w: Float32Array): boolean {
    return w.buffer === this.numbers.buffer;
  }

  private fits(numbers: number): boolean {
    return this.kernel !== null && 4 * (numbers + 2 * LANES) <= SCRATCH;
  }

  /** C (m, n) = D + A (m, k) B (k, n); places and steps count numbers, as `tile.product` has them. Without D: A B. */
  private product(m: number, n: number, k: number, a: number, row: number, step: number, b: number, bRow: number, c: number, cRow: number, d = 0): void {
    const long = BigInt; // counts and steps have 64 bits, places 32
    this.kernel!(0, 0, long(m), long(n), long(k), 4 * a, long(row), long(step), 4 * b, long(bRow), 4 * c, long(cRow), 4 * d, long(cRow));
  }
}

/** As the method. Four sums at a time do not wait for each other. */
function rowsTimes(x: Float32Array, count: number, w: Float32Array, columns: number): Float32Array {
  const width = w.length / columns;
  const made = new Float32Array(count * width);
  for (let o = 0; o < width; o += 4) {
    const w0 = o * columns;
    // Past the last row of W the first of the four is read again, and not written.
    const w1 = o + 1 < width ? w0 + columns : w0;
    const w2 = o + 2 < width ? w0 + 2 * columns : w0;
    const w3 = o + 3 < width ? w0 + 3 * columns : w0;
    for (let t = 0; t < count; t++) {
      const start = t * columns;
      let s0 = 0;
      let s1 = 0;
      let s2 = 0;
      let s3 = 0;
      for (let i = 0; i < columns; i++) {
        const each = x[start + i]!;
        s0 += w[w0 + i]! * each;
        s1 += w[w1 + i]! * each;
        s2 += w[w2 + i]! * each;
        s3 += w[w3 + i]! * each;
      }
      const at = t * width + o;
      made[at] = s0;
      if (w1 > w0) made[at + 1] = s1;
      if (w2 > w0) made[at + 2] = s2;
      if (w3 > w0) made[at + 3] = s3;
    }
  }
  return made;
}

/** As the method: four rows of W a pass over the result. */
function timesRows(dy: Float32Array, count: number, w: Float32Array, columns: number): Float32Array {
  const width = w.length / columns;
  const made = new Float32Array(count * columns);
  for (let t = 0; t < count; t++) {
    const to = t * columns;
    let o = 0;
    for (; o + 3 < width; o += 4) {
      const at = t * width + o;
      const [d0, d1, d2, d3] = [dy[at]!, dy[at + 1]!, dy[at + 2]!, dy[at + 3]!];
      const [w0, w1, w2, w3] = [o * columns, (o + 1) * columns, (o + 2) * columns, (o + 3) * columns];
      for (let i = 0; i < columns; i++) {
        made[to + i]! += d0 * w[w0 + i]! + d1 * w[w1 + i]! + d2 * w[w2 + i]! + d3 * w[w3 + i]!;
      }
    }
    for (; o < width; o++) {
      const d = dy[t * width + o]!;
      for (let i = 0; i < columns; i++) made[to + i]! += d * w[o * columns + i]!;
    }
  }
  return made;
}

/** As the method: four rows of x a pass over dw. */
function addOuter(dy: Float32Array, x: Float32Array, count: number, dw: Float32Array, columns: number): void {
  const width = dw.length / columns;
  let t = 0;
  for (; t + 3 < count; t += 4) {
    const [x0, x1, x2, x3] = [t * columns, (t + 1) * columns, (t + 2) * columns, (t + 3) * columns];
    for (let o = 0; o < width; o++) {
      const at = t * width + o;
      const [d0, d1, d2, d3] = [dy[at]!, dy[at + width]!, dy[at + 2 * width]!, dy[at + 3 * width]!];
      const to = o * columns;
      for (let i = 0; i < columns; i++) {
        dw[to + i]! += d0 * x[x0 + i]! + d1 * x[x1 + i]! + d2 * x[x2 + i]! + d3 * x[x3 + i]!;
      }
    }
  }
  for (; t < count; t++) {
    for (let o = 0; o < width; o++) {
      const d = dy[t * width + o]!;
      for (let i = 0; i < columns; i++) dw[o * columns + i]! += d * x[t * columns + i]!;
    }
  }
}
