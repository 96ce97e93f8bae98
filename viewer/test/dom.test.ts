import assert from "node:assert/strict";
import { test } from "node:test";

import { signedIndex, weightIndex } from "../src/colours.ts";
import { number, percent, worked, writtenSum } from "../src/dom.ts";

test("numbers have four digits and a true minus", () => {
  assert.deepEqual(
    [0, 3.14159, -0.5, 12.344, -123.456, 0.012345, 0.00012, -2e6].map((x) => number(x)),
    ["0", "3.142", "−0.5000", "12.34", "−123.5", "0.01235", "1.200e−4", "−2.000e6"],
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

/** Evaluate what the page writes, with its signs. */
function evaluate(written: string): number {
  const plain = written.replace(/ \([^()]*[a-z]{3,}[^()]*\)/, "");
  const script = plain.replaceAll("−", "-").replaceAll("·", "*").replaceAll("×", "*");
  return Function(`return ${script.replaceAll("--", "+")}`)() as number;
}

test("the numbers of a calculation give its result", () => {
  const difference = (w: number, a: number, b: number) => w * (a - b);
  for (const numbers of [
    [0.99987, 0.00300012, 0.00299882],
    [1, 0.5, 0.5],
    [0.3333, -12.34567, 12.34568],
    [1e-9, 2, -3],
  ]) {
    const { texts, result } = worked(numbers, difference as (...n: number[]) => number);
    assert.equal(number(evaluate(`${texts[0]} * (${texts[1]} - ${texts[2]})`)), result);
    assert.equal(result, number(difference(...(numbers as [number, number, number]))));
  }
  assert.deepEqual(worked([0.144338, 59.6512], (c, s) => c * s).texts, ["0.14434", "59.651"]);
});

test("a sum names what it leaves out, and adds up", () => {
  const terms: [number, number][] = [[0.99, 1.3e-4], [0.205, -5.1e-5], [1.2e-4, 0.0028]];
  for (const written of [writtenSum(terms, 0.000017, 6), writtenSum(terms, 0, 0, -0.1443)]) {
    const [sum, result] = written.split(" = ") as [string, string];
    assert.equal(number(evaluate(sum)), result, written);
  }
  assert.match(writtenSum(terms, 0.000017, 6), /\(6 more terms\) = /);
});
