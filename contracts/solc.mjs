#!/usr/bin/env node
// The npm package's own command line has flags that differ from the native compiler's. Forge needs two:
// the version, in the native format, and a compilation from standard input.
import { readFileSync } from "node:fs";
import solc from "solc";

if (process.argv.includes("--version")) {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version()}`);
} else if (process.argv.includes("--standard-json")) {
  process.stdout.write(solc.compile(readFileSync(0, "utf8")));
} else {
  console.error("solc.mjs: expected --version or --standard-json");
  process.exitCode = 2;
}
