// Checks the crates that Cargo.lock brings in:
//   - the module's tree holds only what is listed here. Each crate in it is compiled by every Envoy
//     at start, and one that wants a clock, randomness or JavaScript makes a module that won't load;
//   - every licence is a permissive one.
import { execFileSync } from "node:child_process";

const IN_MODULE = new Set(`
  warmroute-filter warmroute-core warmroute-shared-state
  proxy-wasm log hashbrown allocator-api2 equivalent foldhash memchr xxhash-rust
  serde serde_core serde_derive serde_json itoa ryu zmij
  proc-macro2 quote syn unicode-ident thiserror thiserror-impl
  warmroute-chat-template minijinja indexmap unicode-normalization tinyvec
  sha2 digest block-buffer crypto-common hybrid-array typenum cfg-if
`.trim().split(/\s+/));

const LICENCES = new Set([
  "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
  "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib",
]);

const cargo = (...args) =>
  execFileSync(process.env.CARGO ?? "cargo", args, {
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
    stdio: ["ignore", "pipe", "inherit"],
  });

// "(MIT OR Apache-2.0) AND Unicode-3.0": every part between ANDs needs one permissive choice.
// No crate here nests deeper; one that did would fail the check and be looked at.
const permissive = (expression) =>
  expression
    .split(/\s+AND\s+/)
    .every((part) => part.replace(/[()]/g, "").split(/\s+OR\s+|\s*\/\s*/).some((one) => LICENCES.has(one)));

const problems = [];

const tree = cargo("tree", "--package", "warmroute-filter", "--edges", "normal",
  "--target", "wasm32-unknown-unknown", "--prefix", "none", "--format", "{p}");
for (const name of new Set(tree.split("\n").filter(Boolean).map((line) => line.split(" ")[0]))) {
  if (!IN_MODULE.has(name)) {
    problems.push(`${name} is new in the wasm module's tree: if it belongs there, list it in .ci/check-crates.mjs`);
  }
}

for (const { name, version, license } of JSON.parse(cargo("metadata", "--format-version", "1")).packages) {
  if (!license || !permissive(license)) {
    problems.push(`${name} ${version} has the licence ${license ?? "(none given)"}, not one of ${[...LICENCES].join(", ")}`);
  }
}

for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
