import assert from "node:assert/strict";
import { test } from "node:test";

import { Learner, MISTAKES, lossOf } from "../src/learn/learner.ts";
import type { Settings } from "../src/learn/learner.ts";
import { idsOf, inEnglish, inKorean, readPairs, taskOf } from "../src/learn/tasks.ts";
import { Random } from "../src/learn/random.ts";

const SETTINGS: Settings = {
  task: "reverse", pairs: "", warmup: true, mistake: "none", steps: 500,
  scale: "root", positions: true, residual: true, normFirst: false, seed: 0,
};

test("numbers in both languages", () => {
  assert.equal(inEnglish(456_788), "four hundred fifty six thousand seven hundred eighty eight");
  assert.equal(inKorean(456_788), "사십오만육천칠백팔십팔");
  const { right, heldOut } = taskOf("numbers");
  assert.equal(right(inEnglish(60_000)), "육만");
  assert.equal(right("six six"), null);
  assert.equal(new Set(heldOut.map(([text]) => text)).size, 500);
});

test("no training pair is held out", () => {
  for (const name of ["numbers", "reverse", "sort"] as const) {
    const task = taskOf(name);
    const held = new Set(task.heldOut.map(([text]) => text));
    const random = new Random(3);
    for (let i = 0; i < 500; i++) assert.ok(!held.has(task.draw(random)[0]));
  }
  const own = Array.from({ length: 40 }, (_, i) => `s${i}\tt${i % 3}`).join("\n");
  const task = taskOf("pairs", own);
  const held = new Set(task.heldOut.map(([text]) => text));
  assert.equal(held.size, 4);
  const random = new Random(3);
  for (let i = 0; i < 500; i++) assert.ok(!held.has(task.draw(random)[0]));
});

test("lines that are no pair are counted by their number", () => {
  const { pairs, wrong } = readPairs("\uFEFFa\tb\r\n\r\nno pair\n c \t d \n\te\n");
  assert.deepEqual(pairs, [["a", "b"], ["c", "d"]]);
  assert.deepEqual(wrong, [3, 5]);
});

test("the gradient of a packed batch is a finite difference, knob by knob", () => {
  const knobs = [{}, { normFirst: true }, { residual: false }, { positions: false }, { scale: "one" as const }];
  for (const change of knobs) {
    const learner = new Learner({ ...SETTINGS, ...change });
    const random = new Random(5);
    const batch = Array.from({ length: 3 }, () => idsOf(learner.source, learner.target, learner.task.draw(random)));
    const { gradients, tokens } = lossOf(learner.runner, batch);
    const direction = learner.runner.tensors.map(({ values }) => Float64Array.from(values, () => random.normal()));
    const slope = gradients.reduce((sum, d, n) => sum + d.reduce((s, x, i) => s + x * direction[n]![i]!, 0), 0) / tokens;
    const before = learner.runner.tensors.map(({ values }) => values.slice());
    const at = (h: number) => {
      learner.runner.tensors.forEach(({ values }, n) => values.set(before[n]!.map((x, i) => x + h * direction[n]![i]!)));
      return lossOf(learner.runner, batch).loss;
    };
    const difference = (at(1e-3) - at(-1e-3)) / 2e-3;
    assert.ok(Math.abs(slope - difference) < 0.02 * Math.max(1, Math.abs(slope)), `${slope} ${difference}`);
  }
});

test("a packed batch is its sequences one by one", () => {
  const { runner, source, target, task } = new Learner(SETTINGS);
  const random = new Random(11);
  const batch = Array.from({ length: 5 }, () => idsOf(source, target, task.draw(random)));
  const whole = lossOf(runner, batch);
  const alone = batch.map((one) => lossOf(runner, [one]));
  const sum = alone.reduce((sum, { loss, tokens }) => sum + loss * tokens, 0);
  assert.ok(Math.abs(whole.loss * whole.tokens - sum) < 1e-3);
  whole.gradients.forEach((d, n) => {
    const most = Math.max(...d.map(Math.abs));
    d.forEach((x, i) => {
      const parts = alone.reduce((sum, { gradients }) => sum + gradients[n]![i]!, 0);
      assert.ok(Math.abs(x - parts) <= 1e-4 * most + 1e-6);
    });
  });
});

test("each mistake changes the first step, and nothing else does", () => {
  const right = new Learner(SETTINGS);
  right.step();
  for (const mistake of Object.keys(MISTAKES) as (keyof typeof MISTAKES)[]) {
    const broken = new Learner({ ...SETTINGS, mistake });
    broken.step();
    const moved = broken.runner.tensors.some(({ values }, n) => {
      return values.some((x, i) => x !== right.runner.tensors[n]!.values[i]);
    });
    assert.equal(moved, mistake !== "none");
  }
});
