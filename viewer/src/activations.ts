// The activations and their slopes, by their names in the library.

/** erf by the series 2/√π e^(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!, whose terms have one sign. */
export function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, total] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    total += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * total;
}

export interface Activation {
  y: (x: number) => number;
  slope: (x: number) => number;
}

const C = Math.sqrt(2 / Math.PI);
const inner = (x: number) => C * (x + 0.044715 * x * x * x);
/** Through exp, which browsers compute several times as fast as tanh. */
const tanh = (u: number) => 1 - 2 / (Math.exp(2 * u) + 1);
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** At a kink the slope is that of the left side. */
export const ACTIVATIONS = {
  gelu: {
    y: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
    slope: (x) => 0.5 * (1 + erf(x / Math.SQRT2)) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI),
  },
  gelu_tanh: {
    y: (x) => 0.5 * x * (1 + tanh(inner(x))),
    slope: (x) => {
      const t = tanh(inner(x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * 0.044715 * x * x);
    },
  },
  relu: { y: (x) => Math.max(0, x), slope: (x) => (x > 0 ? 1 : 0) },
  leaky_relu: { y: (x) => (x > 0 ? x : 0.01 * x), slope: (x) => (x > 0 ? 1 : 0.01) },
  silu: { y: (x) => x * sigmoid(x), slope: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))) },
} satisfies { [name: string]: Activation };

/** Of BERT's pooler. */
const TANH: Activation = { y: Math.tanh, slope: (x) => 1 - Math.tanh(x) ** 2 };

/** A gated activation multiplies the second half of a row by this of the first half. */
export const GATES: { [name: string]: keyof typeof ACTIVATIONS } = {
  swiglu: "silu",
  geglu: "gelu",
  geglu_tanh: "gelu_tanh",
};

/** What is applied to a row, or to its first half. */
export function activationOf(name: string): Activation {
  return name === "tanh" ? TANH : ACTIVATIONS[GATES[name] ?? (name as "relu")];
}
