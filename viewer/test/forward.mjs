// Runs the page's forward pass in Node: node test/forward.mjs CASES.json, for tests/apps/view/test_runnable.py.
// CASES.json: the record, and for each case a text, an answer to feed (or null: greedy) and what is off;
// `counted` asks for the gradients of the loss of these tokens, `edits` for the loss along each edit at each δ; with
// `between`, a place and another token, they are of the difference of two logits there.

import { readFile } from "node:fs/promises";
import { bundled } from "./bundle.mjs";

const { Edited, Trial, attribution, gradientsOf, joined, ledger, lens, passageOf, slope, step } = await bundled(["run/attribution", "run/ledger", "run/edit", "run/passage", "run/trial"], process.argv[2]);

const { record, cases } = JSON.parse(await readFile(process.argv[2], "utf8"));
const read = new Trial(record);
const { runner, source, target } = read;
const generates = record.stacks.decoder !== undefined;
const plain = (run) => ({
  rows: [...run.rows.values],
  inputs: run.inputs.map((x) => [...x.values]),
  outputs: run.outputs.map((x) => [...x.values]),
  weights: run.looks.map((look) => (look ? [...look.weights] : null)),
});

/** The loss along edits; the edit "step" goes against the gradient of all numbers. */
function edited(fed, edits, gradients) {
  return edits.map(({ edit, at }) => {
    const moved = new Edited(runner, fed, edit === "step" ? { parts: step(gradients) } : edit);
    return {
      slope: slope(moved.edit, gradients, fed),
      losses: at.map((by) => moved.at(by).loss),
      answers: at.map((by) => (moved.at(by, true).other ?? fed.answer).ids),
    };
  });
}

/** A text in pieces, and what is joined of pieces whose answers are they themselves, in capitals. */
function split(text) {
  const passage = passageOf(text, record.passage, source, record.longest.source);
  return { ...passage, joined: joined(passage, passage.pieces.map((piece) => piece.toUpperCase())) };
}

/** What parts that are off return, as the page finds it for a text and an answer. */
function insteadOf(text, answer, { mode, from }) {
  const trial = new Trial(record);
  trial.expected = target.decode(answer);
  [trial.mode, trial.from] = [mode, from ?? ""];
  trial.read(text, false);
  return trial.runner.instead;
}

const answers = cases.map(({ text, answer, off, counted, between: pair, edits, instead }) => {
  if (answer === undefined) return split(text);
  runner.instead = instead ? insteadOf(text, answer, instead) : null;
  const ids = read.encode(text);
  const switched = new Set(off);
  const base = runner.encode(ids);
  const memory = runner.encode(ids, switched, base);
  const own = runner.greedy(memory, switched);
  const given = answer ?? own.ids;
  const whole = runner.decode(base, given);
  const run = runner.decode(memory, given, switched, memory === base ? whole : undefined);
  const between = pair && { row: run.places[pair.at], token: given[pair.at] ?? record.end, other: pair.other };
  const fed = { memory, run, answer: { ids: given, losses: [], ended: generates }, off: switched, counted: (l) => counted?.includes(l), between };
  const found = counted || between ? gradientsOf(runner, fed) : null;
  return {
    attribution: found && attribution(runner, fed, found),
    gradients: found?.tensors.map((d, i) => [record.numbers.tensors[i].name, [...d]]),
    scores: found && Object.fromEntries(Object.entries(found.scores).map(([name, each]) => [name, each.map((d) => d && [...d])])),
    edits: edited(fed, edits ?? [], found),
    ids,
    answer: own,
    guessed: [given, own.ids, [...own.ids.slice(0, 2), ...given]].map((guess) => runner.greedy(memory, switched, guess)),
    text: target.decode(own.ids),
    again: target.encode(target.decode(own.ids)),
    encoder: plain(memory.run),
    decoder: plain(run),
    logits: [...runner.logits(run.rows).values],
    ...runner.losses(run, { ids: given, ended: generates }),
    ledger: ledger(runner, run, run.places[0], given[0] ?? record.end),
    lens: lens(runner, run, run.places[0]),
  };
});
process.stdout.write(JSON.stringify(answers));
