// Where the nodes of a search stand: one column for each token said, the likeliest on top.

import type { TreeNode } from "./record.ts";

export interface Placed {
  /** Index in the record's tree. */
  index: number;
  parent: number;
  column: number;
  row: number;
}

/** Place the nodes that are shown: those gone on with and ends; the dropped ones if asked for. */
export function place(tree: TreeNode[], dropped: boolean): Placed[] {
  const depth: number[] = [];
  const columns: number[][] = [];
  tree.forEach(([parent, , , , , state], index) => {
    depth[index] = parent < 0 ? 0 : depth[parent]! + 1;
    if (state === "dropped" && !dropped) return;
    (columns[depth[index]] ??= []).push(index);
  });
  const placed: Placed[] = [];
  const order = { kept: 0, end: 0, dropped: 1 };
  columns.forEach((indices, column) => {
    indices.sort((a, b) => {
      const [x, y] = [tree[a]!, tree[b]!];
      return order[x[5]] - order[y[5]] || y[4] - x[4] || a - b;
    });
    indices.forEach((index, row) => {
      placed.push({ index, parent: tree[index]![0], column, row });
    });
  });
  return placed;
}

/** The nodes from the root to a node, it included. */
export function path(tree: TreeNode[], index: number): Set<number> {
  const nodes = new Set<number>();
  for (let at = index; at >= 0; at = tree[at]![0]) nodes.add(at);
  return nodes;
}
