// Training beside the page, in a worker or in two that share each batch. Both hold the same weights:
// they draw the same batch, add up the same gradients and take the same step, so that only gradients
// travel. The page talks to the first, which leads.

import { Learner } from "./learner.ts";
import type { Gradient, Settings } from "./learner.ts";

/** What the page asks. `peer` is the other worker's end of a channel. */
export type Ask =
  | { settings: Settings; peer: MessagePort | null; leads: boolean }
  | { run: boolean }
  | { step: true };

/** What the first worker says; `weights` of all tensors now and then, and whenever it stops. */
export interface Said {
  step: number;
  loss: number;
  sizes: number[];
  /** Seconds spent in steps. */
  seconds: number;
  running: boolean;
  weights: Float32Array[] | null;
  /** Of unseen examples: right, and asked; null before they were asked. */
  right: [right: number, asked: number] | null;
}

/** Milliseconds between two copies of the weights for the page. */
const OFTEN = 400;
/** Unseen examples asked when the weights are copied; at the end all are. */
const SAMPLE = 20;

const scope = globalThis as unknown as {
  onmessage: (event: MessageEvent<Ask>) => void;
  postMessage: (said: Said) => void;
};

let learner: Learner | null = null;
let peer: MessagePort | null = null;
let running = false;
let busy = false;
let [seconds, sent] = [0, 0];
let arrived: (part: Gradient) => void = () => {};

/** Let messages in between two steps; a timer would wait four milliseconds. */
const breath = new MessageChannel();
function pause(): Promise<void> {
  return new Promise((done) => {
    breath.port1.onmessage = () => done();
    breath.port2.postMessage(null);
  });
}

function send(part: Gradient): void {
  const gradients = part.gradients.map((d) => d.slice());
  peer!.postMessage({ part: { ...part, gradients } }, gradients.map((d) => d.buffer));
}

/** One step: alone, or this worker's half of the batch and the other's. */
async function step(leads: boolean): Promise<{ loss: number; sizes: number[] }> {
  const own = learner!;
  const batch = own.batch();
  if (!peer) return own.apply([own.gradients(batch)]);
  const other = new Promise<Gradient>((done) => (arrived = done));
  if (leads) peer.postMessage({ go: true });
  const half = own.gradients(batch.filter((_, i) => (i % 2 === 0) === leads));
  send(half);
  const part = await other;
  return own.apply(leads ? [half, part] : [part, half]);
}

function rightOf(most: number): [number, number] {
  const { task } = learner!;
  const asked = task.heldOut.slice(0, most);
  return [asked.filter((pair) => learner!.isRight(pair)).length, asked.length];
}

async function go(steps: number): Promise<void> {
  if (busy || !learner) return;
  busy = true;
  const { settings } = learner;
  for (let i = 0; i < steps && learner.steps < settings.steps; i++) {
    const began = performance.now();
    const { loss, sizes } = await step(true);
    seconds += (performance.now() - began) / 1000;
    await pause();
    const last = learner.steps === settings.steps || i + 1 === steps || !running;
    if (last) running = false;
    const shows = last || performance.now() - sent > OFTEN;
    const weights = shows ? learner.runner.tensors.map(({ values }) => values.slice()) : null;
    const right = shows ? rightOf(learner.steps === settings.steps ? Infinity : SAMPLE) : null;
    scope.postMessage({ step: learner.steps, loss, sizes, seconds, running, weights, right });
    if (shows) sent = performance.now();
    if (last) break;
  }
  busy = false;
}

scope.onmessage = ({ data }) => {
  if ("settings" in data) {
    learner = new Learner(data.settings);
    peer = data.peer;
    if (!peer) return;
    peer.onmessage = ({ data: said }: MessageEvent<{ go: true } | { part: Gradient }>) => {
      if ("part" in said) arrived(said.part);
      else void step(false);
    };
    return;
  }
  if ("run" in data) {
    running = data.run;
    if (running) void go(Infinity);
    return;
  }
  running = true;
  void go(1);
};
