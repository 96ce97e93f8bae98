import assert from "node:assert/strict";
import { test } from "node:test";

import { signedIndex, weightIndex } from "../src/colours.ts";
import { number, percent } from "../src/dom.ts";

test("numbers have four digits and a true minus", () => {
  assert.deepEqual(
    [0, 3.14159, -0.5, 12.345, -123.456, 0.01234, 0.00012, -2e6].map(number),
    ["0", "3.142", "−0.500", "12.35", "−123.5", "0.0123", "1.2e−4", "−2.0e6"],
  );
});

test("shares", () => {
  assert.deepEqual([1, 0.5, 0.0004, 0].map(percent), ["100 %", "50.0 %", "< 0.1 %", "0 %"]);
});

test("colours go from one end of their table to the other", () => {
  assert.deepEqual([0, 0.25, 1].map(weightIndex), [0, 128, 255]);
  assert.deepEqual([-2, 0, 2].map((x) => signedIndex(x, 2)), [1, 128, 255]);
  assert.equal(signedIndex(0, 0), 128);
});
