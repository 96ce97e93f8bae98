// Runs the kernels of a WebAssembly module for a test: reads calls, of 64-bit words and bytes, and
// writes what became of them. A call: the number of the kernel, how many blocks of memory, the length
// of each in bytes, how many addresses; of each address the block and the byte where it is, the block
// and the byte that it is of; and then the blocks. The first block has the slots. The answer: the
// status, and the blocks.
import fs from "node:fs";

const module = new WebAssembly.Module(fs.readFileSync(process.argv[2]));
const { exports } = new WebAssembly.Instance(module, {});
exports._initialize?.();
const names = Object.keys(JSON.parse(fs.readFileSync(process.argv[2].replace(/wasm$/, "json"), "utf-8")));

function read(length) {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; ) {
    let got;
    try {
      got = fs.readSync(0, bytes, at, length - at);
    } catch (error) {
      if (error.code === "EAGAIN") continue;
      throw error;
    }
    if (got === 0) process.exit(0);
    at += got;
  }
  return bytes;
}

function write(bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

const words = (n) => {
  const bytes = read(8 * n);
  return Array.from({ length: n }, (_, i) => Number(bytes.readBigInt64LE(8 * i)));
};

for (;;) {
  const [kernel, blocks] = words(2);
  const sizes = words(blocks);
  const [count] = words(1);
  const addresses = words(4 * count);
  const rooms = sizes.map((size) => exports.malloc(size + 128));
  const begins = rooms.map((room) => Math.ceil(room / 64) * 64);
  sizes.forEach((size, i) => new Uint8Array(exports.memory.buffer).set(read(size), begins[i]));
  const view = new DataView(exports.memory.buffer);
  for (let i = 0; i < 4 * count; i += 4) {
    const [block, at, of, byte] = addresses.slice(i, i + 4);
    view.setBigInt64(begins[block] + at, BigInt(begins[of] + byte), true);
  }
  const status = Buffer.alloc(8);
  status.writeBigInt64LE(BigInt(exports[`${names[kernel]}.flat`](begins[0])));
  write(status);
  sizes.forEach((size, i) => write(new Uint8Array(exports.memory.buffer, begins[i], size)));
  rooms.forEach((room) => exports.free(room));
}
