// The equations in MathML, which every browser draws by itself, from a line of TeX's notation each.

import { partOf } from "./attention.ts";
import type { Rule } from "./attention.ts";
import { t } from "./text.ts";

const TOKENS = /\\[a-z]+|\p{L}+′?|\d+(\.\d+)?|"[^"]*"|\S/gu;

/** What the page needs of TeX: indices, powers, groups, \frac, \sqrt, \hat, and "words". */
export function math(text: string): string {
  const tokens = text.match(TOKENS) ?? [];
  let at = 0;
  const group = (): string => {
    if (tokens[at] !== "{") return one(tokens[at++]!);
    at++;
    const inside = row();
    at++;
    return `<mrow>${inside}</mrow>`;
  };
  const one = (token: string): string => {
    if (token === "{") {
      at--;
      return group();
    }
    if (token === "\\frac") return `<mfrac>${group()}${group()}</mfrac>`;
    if (token === "\\sqrt") return `<msqrt>${group()}</msqrt>`;
    if (token === "\\hat") return `<mover>${group()}<mo>^</mo></mover>`;
    if (token.startsWith('"')) return `<mtext>${token.slice(1, -1)}</mtext>`;
    if (/^\d/.test(token)) return `<mn>${token}</mn>`;
    if (/^[\p{L}∞]/u.test(token)) return `<mi>${token}</mi>`;
    return `<mo>${token.replace(">", "&gt;")}</mo>`;
  };
  const row = (): string => {
    let made = "";
    while (at < tokens.length && tokens[at] !== "}") {
      const token = tokens[at++]!;
      const base = one(token);
      const under = tokens[at] === "_" ? (at++, group()) : "";
      const over = tokens[at] === "^" ? (at++, group()) : "";
      const kind = under && token === "∑" ? "munder" : under ? (over ? "msubsup" : "msub") : over ? "msup" : "";
      made += kind ? `<${kind}>${base}${under}${over}</${kind}>` : base;
    }
    return made;
  };
  return `<math displaystyle="true">${row()}</math>`;
}

const SPREAD = String.raw`\sqrt{σ^2 + ε}`;
const SQUARES = String.raw`\sqrt{m(x^2) + ε}`;

const EQUATIONS: { [name: string]: string } = {
  scores: "S = Q K^⊤",
  scaled: "A = c S",
  softmax: String.raw`w_{i j} = \frac{e^{a_{i j}}}{∑_s e^{a_{i s}}}`,
  output: "Z = W V",
  embedding: "t = s · E_{id}",
  positions: "p = P_i",
  segments: "g",
  sum: "x_0 = t + p",
  layer_norm: String.raw`n = γ ⊙ \frac{x − μ}{${SPREAD}} + β`,
  rms_norm: String.raw`n = γ ⊙ \frac{x}{${SQUARES}}`,
  queries: "Q = x W_Q^⊤",
  keys: "K = x W_K^⊤",
  values: "V = x W_V^⊤",
  attended: "A = c Q K^⊤",
  heads: "Z = W V",
  projection: 'y = "concat"(Z_h) W_O^⊤',
  feed_forward: "y = φ(x W_1^⊤ + b_1) W_2^⊤ + b_2",
  residual: "x ← x + y",
  transform: 'n = "norm"(φ(x W^⊤))',
  pooler: 'h = "tanh"(x_1 W^⊤ + b)',
  mean: String.raw`m = \frac{1}{S} ∑_s x_s`,
  logits: "ℓ = x W^⊤",
  "logits with bias": "ℓ = x W^⊤ + b",
  "norm.g": "g = dn ⊙ γ",
  "layer_norm.dx": String.raw`dx = \frac{g − m(g) − \hat{x} m(g ⊙ \hat{x})}{${SPREAD}}`,
  "rms_norm.dx": String.raw`dx = \frac{g − \hat{x} m(g ⊙ \hat{x})}{${SQUARES}}`,
  "norm.dweight": String.raw`dγ = ∑_t dn ⊙ \hat{x}`,
  "norm.dbias": "dβ = ∑_t dn",
  "feed_forward.da": "da = dy W_2",
  "feed_forward.dh": "dh = da ⊙ φ′(h)",
  "feed_forward.dx": "dx = dh W_1",
  "feed_forward.dW1": "dW_1 = ∑_t dh_t^⊤ x_t",
  "output.dlog_p": "dlog p = −y",
  "output.dlogits": "dℓ = dlog p − p ∑ dlog p = p − y",
  "output.dx": "dx = dℓ W",
  dlogits: "dℓ = p − y",
  dZ: "dZ = dY W_O",
  dV: "dV = W^⊤ dZ",
  dW: "dW = dZ V^⊤",
  dA: "da_{i j} = w_{i j}(dw_{i j} − ∑_s w_{i s} dw_{i s})",
  dQ: "dQ = c dA K",
  dK: "dK = c dA^⊤ Q",
  /** The gradient of a scaled score behind a soft cap, which dQ and dK have in place of dA. */
  capped: 'dA ← dA ⊙ (1 − tanh^2(c S / "cap"))',
  dx: "dx = dQ W_Q + dK W_K + dV W_V",
};

/** An equation by its name; null without one. */
export function equation(name: string): string | null {
  return name in EQUATIONS ? math(EQUATIONS[name]!) : null;
}

/** What a rule makes of scaled scores. */
export function ruled(rule: Rule): string {
  const [cap, size] = [partOf(rule, "SoftCap")?.cap, partOf(rule, "Window")?.size];
  const capped = cap === undefined ? "a_{i j}" : `${cap} tanh(a_{i j} / ${cap})`;
  const plus = rule.added ? " + b_{i − j}" : "";
  const lines = cap === undefined && !plus ? [] : [`a_{i j} ← ${capped}${plus}`];
  const away = [partOf(rule, "Causal") ? "j > i" : "", size === undefined ? "" : `|i − j| ≥ ${size}`];
  const hidden = away.filter((one) => one !== "").join(' ",\u00a0" ');
  if (hidden) lines.push(`a_{i j} = −∞ "\u00a0${t.ifAhead}\u00a0" ${hidden}`);
  return math(lines.join(' ";\u00a0" ') || "A");
}
