// A film as a GIF, which every chat and browser plays: one palette for all frames, and of each frame what has changed.
// By hand, since a browser records video only as it plays, in no format that all of them show.

/** Colours with one place left for "as before", and how long the last frame is seen, in hundredths of a second. */
const [COLOURS, LAST] = [255, 200];
const SAME = 255;

/** Pictures of one size as the bytes of a GIF that begins again at its end; `pace` is in hundredths of a second. */
export function gif(frames: readonly ImageData[], pace: number): Uint8Array<ArrayBuffer> {
  const { width, height } = frames[0]!;
  const [palette, place] = paletteOf(frames);
  const bytes: number[] = [];
  const word = (x: number) => bytes.push(x & 255, x >> 8);
  bytes.push(...text("GIF89a"));
  word(width);
  word(height);
  bytes.push(0xf7, 0, 0, ...palette);
  bytes.push(0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0);
  let before: Uint8Array | null = null;
  frames.forEach((frame, i) => {
    const now = indexed(frame, place);
    bytes.push(0x21, 0xf9, 4, 0x05); // stays below the next; one colour lets through what was before
    word(i === frames.length - 1 ? LAST : pace);
    bytes.push(SAME, 0, 0x2c, 0, 0, 0, 0);
    word(width);
    word(height);
    bytes.push(0, 8);
    const last = before;
    compressed(last ? now.map((x, at) => (x === last[at] ? SAME : x)) : now, bytes);
    before = now;
  });
  bytes.push(0x3b);
  return Uint8Array.from(bytes);
}

const text = (ascii: string) => Array.from(ascii, (c) => c.charCodeAt(0));

/** A colour's place among 32 × 32 × 32. */
const cell = (r: number, g: number, b: number) => ((r >> 3) << 10) | ((g >> 3) << 5) | (b >> 3);

/** The commonest colours, as 3 × 256 bytes, and the nearest of them to each cell. */
function paletteOf(frames: readonly ImageData[]): [number[], Uint8Array] {
  const counts = new Float64Array(4 << 15); // how often, and the sums of red, green and blue
  for (const { data } of frames) {
    for (let i = 0; i < data.length; i += 4) {
      const at = 4 * cell(data[i]!, data[i + 1]!, data[i + 2]!);
      counts[at]!++;
      for (let c = 0; c < 3; c++) counts[at + 1 + c]! += data[i + c]!;
    }
  }
  const used = Array.from({ length: 1 << 15 }, (_, at) => at).filter((at) => counts[4 * at]! > 0);
  const mean = (at: number) => [1, 2, 3].map((c) => Math.round(counts[4 * at + c]! / counts[4 * at]!));
  const common = used.sort((a, b) => counts[4 * b]! - counts[4 * a]!).slice(0, COLOURS).map(mean);
  const place = new Uint8Array(1 << 15);
  for (const at of used) {
    const [r, g, b] = mean(at) as [number, number, number];
    let best = Infinity;
    common.forEach((colour, i) => {
      const far = (r - colour[0]!) ** 2 + (g - colour[1]!) ** 2 + (b - colour[2]!) ** 2;
      if (far < best) [best, place[at]] = [far, i];
    });
  }
  const palette = common.flat();
  return [[...palette, ...new Array<number>(3 * 256 - palette.length).fill(0)], place];
}

function indexed({ data }: ImageData, place: Uint8Array): Uint8Array {
  return Uint8Array.from({ length: data.length / 4 }, (_, i) => place[cell(data[4 * i]!, data[4 * i + 1]!, data[4 * i + 2]!)]!);
}

/** Lempel-Ziv-Welch: a code for each run that was seen before, of 9 bits and then up to 12. */
function compressed(indices: Uint8Array, to: number[]): void {
  const [clear, end] = [256, 257];
  let [known, bits, held, room] = [new Map<number, number>(), 9, 0, 0];
  let block: number[] = [];
  const flush = () => {
    if (block.length > 0) to.push(block.length, ...block);
    block = [];
  };
  const code = (x: number) => {
    held |= x << room;
    room += bits;
    for (; room >= 8; room -= 8, held >>>= 8) {
      block.push(held & 255);
      if (block.length === 255) flush();
    }
  };
  code(clear);
  let run = indices[0]!;
  for (let i = 1; i < indices.length; i++) {
    const next = indices[i]!;
    const key = (run << 8) | next;
    const seen = known.get(key);
    if (seen !== undefined) {
      run = seen;
      continue;
    }
    code(run);
    run = next;
    const made = end + 1 + known.size;
    if (made < 4096) {
      known.set(key, made);
      if (made === 1 << bits) bits++;
      continue;
    }
    code(clear);
    [known, bits] = [new Map(), 9];
  }
  code(run);
  code(end);
  if (room > 0) block.push(held & 255);
  flush();
  to.push(0);
}
