// Builds the dashboard into node/src/http/web/, from where `cargo build` takes it without npm, and the types of the API's answers
// into src/schema.ts.
//
//   node build.mjs            write it
//   node build.mjs --check    say whether what is there is what these sources build to (exit status 1 if not)
//
// Same sources and same esbuild (package-lock.json pins it), same bytes: so the check can compare. Both refuse string tables that differ
// in their keys.

import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { schemaText } from "./schema.mjs";

const here = new URL("./", import.meta.url);
const out = new URL("../node/src/http/web/", here);
const path = (name) => fileURLToPath(new URL(name, here));

// What the licence of the one library in the bundle asks for.
const banner = "/*! with uPlot, (c) Leon Sorokin and contributors, MIT licence: https://github.com/leeoniya/uPlot */";

async function bundle(entry) {
  const result = await esbuild.build({
    entryPoints: [path(entry)],
    absWorkingDir: path("."),
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2022", "chrome116", "firefox124", "safari17.4"],
    charset: "utf8",
    legalComments: "none",
    banner: { js: banner, css: banner },
    logLevel: "warning",
  });
  return Buffer.from(result.outputFiles[0].contents);
}

const hash = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 16);

async function build() {
  const files = new Map();
  files.set("app.js", await bundle("src/main.ts"));
  files.set("app.css", await bundle("src/style.css"));
  files.set("icon.svg", await readFile(path("src/icon.svg")));
  let index = await readFile(path("src/index.html"), "utf8");
  for (const [name, bytes] of files) index = index.replaceAll(`/assets/${name}`, `/assets/${name}?v=${hash(bytes)}`);
  files.set("index.html", Buffer.from(index));
  return files;
}

/** Every language says everything, with the same things filled in. */
async function checkStrings() {
  const tables = new Map();
  for (const file of await readdir(path("strings"))) tables.set(file, JSON.parse(await readFile(path(`strings/${file}`), "utf8")));
  const english = tables.get("en.json");
  const blanks = (text) => [...text.matchAll(/\{\w+\}/g)].map(([blank]) => blank).sort().join();
  const wrong = [];
  for (const [file, table] of tables) {
    for (const key of Object.keys(english)) {
      if (typeof table[key] !== "string") wrong.push(`strings/${file}: ${key} is missing`);
      else if (blanks(table[key]) !== blanks(english[key])) wrong.push(`strings/${file}: ${key} does not fill in ${blanks(english[key]) || "nothing"}`);
      else if (!table[key] && english[key]) wrong.push(`strings/${file}: ${key} is empty`);
    }
    for (const key of Object.keys(table)) if (!(key in english)) wrong.push(`strings/${file}: ${key} is not in en.json`);
  }
  if (wrong.length > 0) {
    console.error(wrong.join("\n"));
    process.exit(1);
  }
}

/** Everything that is built with has a licence that the project takes; the list is that of xtask/src/licences.rs. */
async function checkLicences() {
  const list = await readFile(path("../xtask/src/licences.rs"), "utf8");
  const allowed = new Set([.../ALLOWED[^\]]*\] = \[([^\]]*)\]/.exec(list)[1].matchAll(/"([^"]+)"/g)].map(([, licence]) => licence));
  const { packages } = JSON.parse(await readFile(path("package-lock.json"), "utf8"));
  const wrong = Object.entries(packages).filter(([name, { license }]) => name !== "" && !allowed.has(license));
  if (wrong.length > 0) {
    for (const [name, { license }] of wrong) console.error(`${name}: licence ${license} is not on the list in xtask/src/licences.rs`);
    process.exit(1);
  }
}

await checkStrings();
await checkLicences();
const schema = await schemaText();
if (!process.argv.includes("--check")) await writeFile(path("src/schema.ts"), schema);
else if ((await readFile(path("src/schema.ts"), "utf8").catch(() => "")) !== schema) {
  console.error("web/src/schema.ts is not what node/src/http/openapi.json says: run `npm run build` in web/ and commit it");
  process.exit(1);
}
const files = await build();
if (process.argv.includes("--check")) {
  let same = true;
  const there = new Set(await readdir(out).catch(() => []));
  for (const [name, bytes] of files) {
    const old = there.has(name) ? await readFile(new URL(name, out)) : undefined;
    if (!old || !old.equals(bytes)) {
      console.error(`node/src/http/web/${name} is not what web/ builds to: run \`npm run build\` in web/ and commit it`);
      same = false;
    }
    there.delete(name);
  }
  for (const name of there) {
    console.error(`node/src/http/web/${name} is not built from web/`);
    same = false;
  }
  if (!same) process.exit(1);
} else {
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  for (const [name, bytes] of files) await writeFile(new URL(name, out), bytes);
}
for (const [name, bytes] of files) console.log(`${name}: ${bytes.length} bytes`);
