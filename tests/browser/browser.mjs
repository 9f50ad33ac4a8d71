// Chromium for the tests of the dashboard: started with an empty profile, quiet, and listened to.

import { createRequire } from "node:module";

const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

export const url = process.env.FOREBAY_URL;
export const token = process.env.FOREBAY_TOKEN;
export const volume = process.env.FOREBAY_VOLUME;
export const daemon = Number(process.env.FOREBAY_PID);
const shots = process.env.FOREBAY_SCREENSHOTS;

/** On a busy machine a page takes its time; what never comes still fails. */
export const PATIENCE_MS = 30_000;

const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
];

/**
 * A browser with one page. `complaints()` are those of the page that no call of `expect` has foreseen, `hosts` those it spoke to.
 *
 * `expect(pattern)` foresees complaints that match, of now and later: Chromium itself writes a line for each answer that is a refusal,
 * and may tell it after the page has long shown the answer.
 */
export async function browse() {
  const context = await chromium.launchPersistentContext(process.env.FOREBAY_PROFILE, {
    executablePath: process.env.FOREBAY_CHROMIUM,
    headless: true,
    args: ARGUMENTS,
    viewport: { width: 1280, height: 900 },
    locale: "en-US",
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = context.pages()[0] ?? (await context.newPage());
  const heard = [];
  const expected = [];
  const hosts = new Set();
  page.on("pageerror", (error) => heard.push(`error: ${error.stack || `${error.name}: ${error.message}`}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) heard.push(`${message.type()}: ${message.text()} (${message.location().url})`);
  });
  page.on("request", (request) => hosts.add(new URL(request.url()).host));
  const expect = (pattern) => expected.push({ from: heard.length, pattern });
  const foreseen = (line, index) => expected.some(({ from, pattern }) => from <= index && pattern.test(line));
  const complaints = () => heard.filter((line, index) => !foreseen(line, index));
  return { context, page, complaints, expect, hosts };
}

const failures = [];
let looks = 0;

/** One look: what it is called, and what must hold. All looks are had, also after one that failed. */
export async function look(name, how) {
  looks += 1;
  const begun = Date.now();
  try {
    const said = await how();
    console.log(`ok      ${name}${said ? `: ${said}` : ""} (${Date.now() - begun} ms)`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}

export function end() {
  if (failures.length > 0) {
    console.log(`${failures.length} of ${looks} looks failed: ${failures.join("; ")}`);
    process.exit(1);
  }
  console.log(`every look was had: ${looks}`);
}

export function must(condition, otherwise) {
  if (!condition) throw new Error(otherwise);
}

/** Waits until `how` gives something true; tells what it waited for. */
export async function until(what, how, limit = PATIENCE_MS) {
  const begun = Date.now();
  for (;;) {
    const found = await how();
    if (found) return found;
    if (Date.now() - begun > limit) throw new Error(`waited ${limit} ms in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** What axe finds serious, in a line each. */
export async function violations(page) {
  // Its script is read into the page by the debugger's door: the page's own policy allows no script from elsewhere.
  await page.evaluate(await axeSource());
  return page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return found.violations
      .filter((one) => one.impact === "serious" || one.impact === "critical")
      .map((one) => `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
  });
}

let source;
async function axeSource() {
  const { readFile } = await import("node:fs/promises");
  source ??= await readFile(axe, "utf8");
  return source;
}

/** A picture of the whole page, where somebody wants to look at it. */
export async function picture(page, name) {
  if (!shots) return;
  const before = page.viewportSize();
  // Charts draw when they are on the screen: so all of it is on the screen.
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width: before.width, height: Math.max(height, before.height) });
  await page.waitForTimeout(1500);
  await page.screenshot({ path: `${shots}/${name}.png` });
  await page.setViewportSize(before);
}
