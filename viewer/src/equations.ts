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
