import assert from "node:assert/strict";
import { test } from "node:test";

import { path, place } from "../src/layout.ts";
import type { TreeNode } from "../src/record.ts";

function node(parent: number, logP: number, state: "kept" | "dropped" | "end"): TreeNode {
  return [parent, "x", "text", Math.exp(logP), logP, state, 0];
}

const tree = [
  node(-1, 0, "kept"),
  node(0, -2, "kept"),
  node(0, -1, "kept"),
  node(0, -0.5, "dropped"),
  node(2, -3, "end"),
];

test("columns are lengths, the likeliest on top", () => {
  assert.deepEqual(
    place(tree, false).map(({ index, column, row }) => [index, column, row]),
    [
      [0, 0, 0],
      [2, 1, 0],
      [1, 1, 1],
      [4, 2, 0],
    ],
  );
});

test("dropped tokens stand below those gone on with", () => {
  assert.deepEqual(
    place(tree, true).filter(({ column }) => column === 1).map(({ index }) => index),
    [2, 1, 3],
  );
});

test("a path leads from the root", () => {
  assert.deepEqual([...path(tree, 4)].sort(), [0, 2, 4]);
});
