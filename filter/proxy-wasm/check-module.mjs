// Checks a built module: Envoy gives it `env.proxy_*` and nothing else, so one more import and it
// does not load; and every Envoy compiles each byte of it at start, about 50 ms for 100 KB.
//
//   node check-module.mjs FILE
import { readFileSync } from "node:fs";

const LIMIT_BYTES = 3072 * 1024;

// The ABI's entry points without which Envoy takes the module for another version's, or for none.
const NEEDED_EXPORTS = ["memory", "proxy_abi_version_0_2_1", "proxy_on_context_create"];

const file = process.argv[2];
const bytes = readFileSync(file);
const module = new WebAssembly.Module(bytes);

const problems = WebAssembly.Module.imports(module)
  .filter(({ module, name }) => module !== "env" || !name.startsWith("proxy_"))
  .map(({ module, name }) => `imports ${module}.${name}; Envoy has only env.proxy_*`);

const exported = new Set(WebAssembly.Module.exports(module).map(({ name }) => name));
for (const name of NEEDED_EXPORTS) {
  if (!exported.has(name)) problems.push(`does not export ${name}`);
}
if (!exported.has("_start") && !exported.has("_initialize")) {
  problems.push("exports neither _start nor _initialize: Envoy would never set it up");
}
if (bytes.length > LIMIT_BYTES) {
  problems.push(`has ${bytes.length} bytes; the limit is ${LIMIT_BYTES}`);
}

for (const problem of problems) console.error(`${file} ${problem}`);
if (problems.length > 0) process.exit(1);
console.log(`${file}: ${bytes.length} bytes`);
