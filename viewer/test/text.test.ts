import assert from "node:assert/strict";
import { test } from "node:test";
import { scoreGradient } from "../src/attention.ts";
import { TEXTS as FLOW } from "../src/flow/text.ts";
import { TEXTS as CHAPTERS } from "../src/chapters.ts";
import { TEXTS as OPENING } from "../src/opening.ts";
import { TEXTS as TRIAL } from "../src/run/text.ts";
import { TEXTS } from "../src/text.ts";
import type { Text } from "../src/text.ts";

/** What needs no translation: symbols, and the name of the other language. */
const SAME =
  /^(languageName|flow\.option|keyHelp\..*\.0|columns\.1|seconds\.(weights|scores)\.0|lossTable\.[123]|whole\.parts\.(sum|queries|keys|values|heads|projection)\.0|through\.steps\.norm\.d(weight|bias)\.0)$/;

/** Every text of a table by its path; functions are called with marks in place of their values. */
function flatten(value: unknown, path: string, out: Map<string, string>): Map<string, string> {
  if (typeof value === "string") out.set(path, value);
  else if (typeof value === "function") {
    out.set(path, String(value(...Array.from({ length: value.length }, (_, i) => `<${i}>`))));
  } else {
    for (const [key, inner] of Object.entries(value as object)) {
      flatten(inner, path === "" ? key : `${path}.${key}`, out);
    }
  }
  return out;
}

const texts = (language: "en" | "ko") => {
  const { glossary: _, ...rest } = TEXTS[language];
  const [opening, chapters, trial, flow] = [OPENING, CHAPTERS, TRIAL, FLOW].map((table) => table[language]);
  return flatten({ ...rest, opening, chapters, trial, flow }, "", new Map());
};
const [en, ko] = [texts("en"), texts("ko")];

test("both languages have the same texts, with the same values in them", () => {
  assert.deepEqual([...ko.keys()].sort(), [...en.keys()].sort());
  const marks = (text: string) => (text.match(/<\d>/g) ?? []).sort();
  for (const [path, text] of en) assert.deepEqual(marks(ko.get(path)!), marks(text), path);
});

test("Korean is Korean and English is English", () => {
  for (const [path, text] of ko) {
    if (!SAME.test(path) && text !== "") assert.match(text, /[가-힣]|^(\d )?softmax$/, `${path}: ${text}`);
  }
  for (const [path, text] of en) {
    if (path !== "languageName") assert.doesNotMatch(text, /[가-힣]/, path);
  }
});

test("every term of the glossary occurs in a text of its language", () => {
  assert.equal(Object.keys(TEXTS.ko.glossary).length, Object.keys(TEXTS.en.glossary).length);
  for (const [table, own] of [[TEXTS.en, en], [TEXTS.ko, ko]] as const) {
    for (const [term, meaning] of Object.entries(table.glossary)) {
      assert.ok([...own.values()].some((text) => text.includes(term)), term);
      assert.ok(meaning.length > 10, term);
    }
  }
});

test("captions of the backward pass have the sign of a step, which goes against the gradient", () => {
  const weights = Float32Array.from([0.2, 0.5, 0.3]);
  const dw = { values: Float32Array.from([3, -1, 0.5]), rows: 1, columns: 3 };
  const mean = weights.reduce((sum, w, i) => sum + w * dw.values[i]!, 0);
  const steps = scoreGradient(weights, dw).values.map((x) => -x);
  const below = Array.from(dw.values, (x) => x < mean);
  assert.deepEqual(Array.from(steps, (x) => x > 0), below);
  const captions = (text: Text) => text.backwardSteps;
  assert.match(captions(TEXTS.en).dA[1]!, /raises only scores whose dW is below/);
  assert.match(captions(TEXTS.ko).dA[1]!, /평균보다 작은 점수만 학습에서 커집니다/);
  for (const step of ["dQ", "dK"] as const) {
    assert.match(captions(TEXTS.en)[step][1]!, /goes against it: towards .* whose dA is negative/);
    assert.match(captions(TEXTS.ko)[step][1]!, /그 반대로, dA가 음수인/);
  }
});
