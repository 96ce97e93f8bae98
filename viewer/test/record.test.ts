import assert from "node:assert/strict";
import { test } from "node:test";

import { unpackHead } from "../src/record.ts";

function packed(bits: number, numbers: number[][], factors: number[]) {
  const octets = bits / 8;
  const bytes = numbers.flat().flatMap((x) =>
    Array.from({ length: octets }, (_, i) => (x >> (8 * i)) & 255),
  );
  return {
    shape: [numbers.length, 1, numbers[0]!.length] as [number, number, number],
    bits,
    factors,
    data: Buffer.from(bytes).toString("base64"),
  };
}

for (const bits of [8, 16, 24]) {
  test(`whole numbers of ${bits} bits come back, head by head`, () => {
    const most = 2 ** (bits - 1) - 1;
    const heads = [
      [0, 1, -1, most, -most],
      [5, -7, 100, -100, 3],
    ];
    const array = packed(bits, heads, [1, 0.5]);
    assert.deepEqual([...unpackHead(array, 0).values], heads[0]);
    assert.deepEqual([...unpackHead(array, 1).values], heads[1]!.map((x) => x / 2));
    assert.equal(unpackHead(array, 1).width, 5);
  });
}
