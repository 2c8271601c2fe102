// Times every case of the wasm build in V8, with the flags of Envoy's: median of many runs, in microseconds.
//
//   node --no-liftoff --no-wasm-lazy-compilation v8.mjs MODULE
import { readFileSync } from "node:fs";

const FOR_MS = 500;
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
const { memory, name, prepare, run } = instance.exports;

function nameOf(index) {
  const at = BigInt.asUintN(64, name(index));
  return Buffer.from(memory.buffer, Number(at >> 32n), Number(at & 0xffffffffn)).toString();
}

console.log(`${"case".padEnd(18)} ${"V8 us".padStart(12)}`);
for (let index = 0; name(index) !== 0n; index++) {
  prepare(index);
  const times = [];
  // Short cases in groups: the clock has no more than a microsecond.
  let group = 1;
  for (const end = performance.now() + FOR_MS; performance.now() < end; ) {
    const begun = performance.now();
    run(group);
    const took = performance.now() - begun;
    if (took < 0.1) group *= 2;
    else times.push(took / group);
  }
  times.sort((a, b) => a - b);
  const median = times[times.length >> 1] * 1000;
  console.log(`${nameOf(index).padEnd(18)} ${median.toFixed(2).padStart(12)}`);
}
