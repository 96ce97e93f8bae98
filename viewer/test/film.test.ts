import assert from "node:assert/strict";
import { test } from "node:test";

import { frameAt, position } from "../src/film.ts";

const STEPS = [0, 1, 2, 4, 8, 16, 20];

test("a step with a frame stands at that frame", () => {
  STEPS.forEach((step, frame) => assert.equal(position(STEPS, step), frame));
});

test("a step between two frames stands between them, in order", () => {
  const places = [8, 9, 11, 13, 15, 16].map((step) => position(STEPS, step));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  assert.ok(places.every((place) => place >= 4 && place <= 5));
  assert.equal(new Set(places).size, places.length);
  assert.equal(position(STEPS, 500), 6);
});

test("an address names a frame by its step", () => {
  assert.equal(frameAt(STEPS, "#tab=steps&at=8"), 4);
  assert.equal(frameAt(STEPS, "#at=0"), 0);
  assert.equal(frameAt(STEPS, "#at=15"), 4);
  assert.equal(frameAt(STEPS, "#at=-3"), 0);
  assert.equal(frameAt(STEPS, "#at=x"), 6);
  assert.equal(frameAt(STEPS, ""), 6);
});
