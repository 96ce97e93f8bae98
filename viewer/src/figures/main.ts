// Puts the working figures into the pages of the documentation.

import { activation } from "./activation.ts";
import { attention } from "./attention.ts";
import { crossEntropy, dropout, layerNorm, linear, softmax } from "./boards.ts";
import { word } from "./word.ts";

const FIGURES: { [name: string]: (host: HTMLElement) => void } = {
  activation,
  attention,
  cross_entropy: crossEntropy,
  dropout,
  layer_norm: layerNorm,
  linear,
  softmax,
  word,
};

for (const host of document.querySelectorAll<HTMLElement>("[data-figure]")) {
  FIGURES[host.dataset.figure!]!(host);
}
