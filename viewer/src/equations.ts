// The equations of the five steps in MathML, which every browser draws by itself.

import type { Rule } from "./attention.ts";
import { t } from "./text.ts";

const math = (inner: string) => `<math displaystyle="true">${inner}</math>`;
const mi = (name: string) => `<mi>${name}</mi>`;
const mo = (sign: string) => `<mo>${sign}</mo>`;
const sub = (name: string, index: string) =>
  `<msub><mi>${name}</mi><mrow>${index}</mrow></msub>`;
const ij = mi("i") + mi("j");
const transposed = `<msup><mi>K</mi><mo>⊤</mo></msup>`;

const mn = (number: number) => `<mn>${number}</mn>`;
const projection = (name: string) => `<msubsup><mi>W</mi><mi>${name}</mi><mo>⊤</mo></msubsup>`;
/** A weight (out, in) as a linear layer multiplies by it. */
const weight = (index: number) => `<msubsup><mi>W</mi><mn>${index}</mn><mo>⊤</mo></msubsup>`;
const plain = `<msup><mi>W</mi><mo>⊤</mo></msup>`;
const hat = `<mover><mi>x</mi><mo>^</mo></mover>`;
const mean = (...names: string[]) =>
  `<mi>m</mi><mo>(</mo>${names.map((n) => (n.startsWith("<") ? n : mi(n))).join("<mo>⊙</mo>")}<mo>)</mo>`;
const rowSum = `<munder><mo>∑</mo><mi>t</mi></munder>`;

export const equations = {
  scores: () => math(mi("S") + mo("=") + mi("Q") + transposed),
  scaled: () => math(mi("A") + mo("=") + mi("c") + mi("S")),
  masked: ({ causal, window, softcap, added }: Rule) => {
    const a = sub("a", ij);
    const tanh = mi("tanh") + mo("(") + a + mo("/") + mn(softcap ?? 1) + mo(")");
    const capped = softcap === null ? a : mn(softcap) + tanh;
    const plus = added === null ? "" : mo("+") + sub("b", mi("i") + mo("−") + mi("j"));
    const lines = [...(softcap === null && added === null ? [] : [a + mo("←") + capped + plus])];
    const away = [
      ...(causal ? [mi("j") + mo("&gt;") + mi("i")] : []),
      ...(window === null ? [] : [mo("|") + mi("i") + mo("−") + mi("j") + mo("|") + mo("≥") + mn(window)]),
    ].join(`<mtext>,&nbsp;</mtext>`);
    if (away) {
      lines.push(a + mo("=") + mo("−") + mi("∞") + `<mtext>&nbsp;${t.ifAhead}&nbsp;</mtext>` + away);
    }
    return math(lines.join(`<mtext>;&nbsp;</mtext>`) || mi("A"));
  },
  softmax: () => math(
    sub("w", ij) +
      mo("=") +
      `<mfrac><msup><mi>e</mi>${sub("a", ij)}</msup>` +
      `<mrow><munder><mo>∑</mo><mi>s</mi></munder>` +
      `<msup><mi>e</mi>${sub("a", mi("i") + mi("s"))}</msup></mrow></mfrac>`,
  ),
  output: () => math(mi("Z") + mo("=") + mi("W") + mi("V")),
  embedding: () => math(mi("t") + mo("=") + mi("s") + mo("·") + sub("E", mi("id"))),
  positions: () => math(mi("p") + mo("=") + sub("P", mi("i"))),
  segments: () => math(mi("g")),
  sum: () => math(sub("x", mn(0)) + mo("=") + mi("t") + mo("+") + mi("p")),
  layer_norm: () =>
    math(
      mi("n") +
        mo("=") +
        mi("γ") +
        mo("⊙") +
        `<mfrac><mrow>${mi("x") + mo("−") + mi("μ")}</mrow>` +
        `<msqrt><msup><mi>σ</mi><mn>2</mn></msup><mo>+</mo><mi>ε</mi></msqrt></mfrac>` +
        mo("+") +
        mi("β"),
    ),
  rms_norm: () =>
    math(
      mi("n") +
        mo("=") +
        mi("γ") +
        mo("⊙") +
        `<mfrac><mi>x</mi><msqrt><mi>m</mi><mo>(</mo><msup><mi>x</mi><mn>2</mn></msup><mo>)</mo>` +
        `<mo>+</mo><mi>ε</mi></msqrt></mfrac>`,
    ),
  queries: () => math(mi("Q") + mo("=") + mi("x") + projection("Q")),
  keys: () => math(mi("K") + mo("=") + mi("x") + projection("K")),
  values: () => math(mi("V") + mo("=") + mi("x") + projection("V")),
  attended: () => math(mi("A") + mo("=") + mi("c") + mi("Q") + transposed),
  heads: () => math(mi("Z") + mo("=") + mi("W") + mi("V")),
  projection: () =>
    math(mi("y") + mo("=") + `<mtext>concat</mtext><mo>(</mo>${sub("Z", mi("h"))}<mo>)</mo>` + projection("O")),
  feed_forward: () =>
    math(
      mi("y") +
        mo("=") +
        mi("φ") +
        mo("(") +
        mi("x") +
        weight(1) +
        mo("+") +
        sub("b", mn(1)) +
        mo(")") +
        weight(2) +
        mo("+") +
        sub("b", mn(2)),
    ),
  residual: () => math(mi("x") + mo("←") + mi("x") + mo("+") + mi("y")),
  transform: () => math(mi("n") + mo("=") + "<mtext>norm</mtext>" + mo("(") + mi("φ") + mo("(") + mi("x") + plain + mo(")") + mo(")")),
  logits: (bias: boolean) =>
    math(mi("ℓ") + mo("=") + mi("x") + plain + (bias ? mo("+") + mi("b") : "")),
  "norm.g": () => math(mi("g") + mo("=") + mi("dn") + mo("⊙") + mi("γ")),
  "layer_norm.dx": () =>
    math(
      mi("dx") +
        mo("=") +
        `<mfrac><mrow>${mi("g") + mo("−") + mean("g") + mo("−") + hat + mean("g", hat)}</mrow>` +
        `<msqrt><msup><mi>σ</mi><mn>2</mn></msup><mo>+</mo><mi>ε</mi></msqrt></mfrac>`,
    ),
  "rms_norm.dx": () =>
    math(
      mi("dx") +
        mo("=") +
        `<mfrac><mrow>${mi("g") + mo("−") + hat + mean("g", hat)}</mrow>` +
        `<msqrt><mi>m</mi><mo>(</mo><msup><mi>x</mi><mn>2</mn></msup><mo>)</mo><mo>+</mo>` +
        `<mi>ε</mi></msqrt></mfrac>`,
    ),
  "norm.dweight": () => math(mi("dγ") + mo("=") + rowSum + mi("dn") + mo("⊙") + hat),
  "norm.dbias": () => math(mi("dβ") + mo("=") + rowSum + mi("dn")),
  "feed_forward.da": () => math(mi("da") + mo("=") + mi("dy") + sub("W", mn(2))),
  "feed_forward.dh": () => math(mi("dh") + mo("=") + mi("da") + mo("⊙") + `<msup><mi>φ</mi><mo>′</mo></msup>` + mo("(") + mi("h") + mo(")")),
  "feed_forward.dx": () => math(mi("dx") + mo("=") + mi("dh") + sub("W", mn(1))),
  "feed_forward.dW1": () => math(sub("dW", mn(1)) + mo("=") + rowSum + `<msubsup><mi>dh</mi><mi>t</mi><mo>⊤</mo></msubsup>` + sub("x", mi("t"))),
  "output.dlog_p": () => math(mi("dlog") + mi("p") + mo("=") + mo("−") + mi("y")),
  "output.dlogits": () =>
    math(
      mi("dℓ") + mo("=") + mi("dlog") + mi("p") + mo("−") + mi("p") +
        `<mo>∑</mo>` + mi("dlog") + mi("p") + mo("=") + mi("p") + mo("−") + mi("y"),
    ),
  "output.dx": () => math(mi("dx") + mo("=") + mi("dℓ") + mi("W")),
  dlogits: () => math(mi("dℓ") + mo("=") + mi("p") + mo("−") + mi("y")),
  dZ: () => math(mi("dZ") + mo("=") + mi("dY") + `<msub><mi>W</mi><mi>O</mi></msub>`),
  dV: () => math(mi("dV") + mo("=") + `<msup><mi>W</mi><mo>⊤</mo></msup>` + mi("dZ")),
  dW: () => math(mi("dW") + mo("=") + mi("dZ") + `<msup><mi>V</mi><mo>⊤</mo></msup>`),
  dA: () =>
    math(
      sub("da", ij) +
        mo("=") +
        sub("w", ij) +
        mo("(") +
        sub("dw", ij) +
        mo("−") +
        `<munder><mo>∑</mo><mi>s</mi></munder>` +
        sub("w", mi("i") + mi("s")) +
        sub("dw", mi("i") + mi("s")) +
        mo(")"),
    ),
  dQ: () => math(mi("dQ") + mo("=") + mi("c") + mi("dA") + mi("K")),
  dK: () =>
    math(mi("dK") + mo("=") + mi("c") + `<msup><mi>dA</mi><mo>⊤</mo></msup>` + mi("Q")),
  /** The gradient of a scaled score behind a soft cap, which dQ and dK have in place of dA. */
  capped: () =>
    math(
      mi("dA") + mo("←") + mi("dA") + mo("⊙") + mo("(") + mn(1) + mo("−") +
        `<msup><mi>tanh</mi><mn>2</mn></msup>` + mo("(") + mi("c") + mi("S") + mo("/") +
        `<mtext>cap</mtext>` + mo(")") + mo(")"),
    ),
  dx: () =>
    math(
      mi("dx") +
        mo("=") +
        mi("dQ") +
        `<msub><mi>W</mi><mi>Q</mi></msub>` +
        mo("+") +
        mi("dK") +
        `<msub><mi>W</mi><mi>K</mi></msub>` +
        mo("+") +
        mi("dV") +
        `<msub><mi>W</mi><mi>V</mi></msub>`,
    ),
};
