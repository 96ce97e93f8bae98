// The equations of the five steps in MathML, which every browser draws by itself.

import { t } from "./text.ts";

const math = (inner: string) => `<math displaystyle="true">${inner}</math>`;
const mi = (name: string) => `<mi>${name}</mi>`;
const mo = (sign: string) => `<mo>${sign}</mo>`;
const sub = (name: string, index: string) =>
  `<msub><mi>${name}</mi><mrow>${index}</mrow></msub>`;
const ij = mi("i") + mi("j");
const transposed = `<msup><mi>K</mi><mo>⊤</mo></msup>`;

export const equations = {
  scores: () => math(mi("S") + mo("=") + mi("Q") + transposed),
  scaled: () => math(mi("A") + mo("=") + mi("c") + mi("S")),
  unmasked: () => math(mi("A")),
  masked: () => math(
    sub("a", ij) +
      mo("=") +
      mo("−") +
      mi("∞") +
      `<mtext>&nbsp;${t.ifAhead}&nbsp;</mtext>` +
      mi("j") +
      mo("&gt;") +
      mi("i"),
  ),
  softmax: () => math(
    sub("w", ij) +
      mo("=") +
      `<mfrac><msup><mi>e</mi>${sub("a", ij)}</msup>` +
      `<mrow><munder><mo>∑</mo><mi>s</mi></munder>` +
      `<msup><mi>e</mi>${sub("a", mi("i") + mi("s"))}</msup></mrow></mfrac>`,
  ),
  output: () => math(mi("Z") + mo("=") + mi("W") + mi("V")),
};
