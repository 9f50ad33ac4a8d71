// What the open dashboard takes of a core while it shows many volumes live: of all processes of the browser, by the kernel's count.

import { readFileSync, readdirSync } from "node:fs";
import { browse, end, look, must, url, volume } from "./browser.mjs";

const SECONDS = 20;
/** The goal is 5 % of a core, held on a quiet machine; beside other tests the same work takes longer. A page that draws all the time takes more than this. */
const CORE_MAX = 0.15;
const TICKS_A_SECOND = 100;

/** CPU time of the browser's processes, which all have its profile or its ancestors in common. */
function ticks() {
  const parents = new Map();
  const times = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
      parents.set(pid, fields[1]);
      times.set(pid, Number(fields[11]) + Number(fields[12]));
    } catch {
      // It has ended meanwhile.
    }
  }
  const ours = (pid) => pid !== undefined && pid !== "0" && (pid === String(process.pid) || ours(parents.get(pid)));
  return [...times].filter(([pid]) => pid !== String(process.pid) && ours(pid)).reduce((all, [, time]) => all + time, 0);
}

const { context, page, complaints } = await browse();
const rows = Number(process.env.FOREBAY_VOLUMES);

for (const [what, hash] of [["the fleet", "#/"], ["a volume's page", `#/volumes/${volume}`]]) {
  await look(`${what} with ${rows} volumes live takes little of a core`, async () => {
    await page.goto(`${url}/${hash}`);
    await page.locator("main h1").waitFor({ state: "attached" });
    if (hash === "#/") await page.locator(".volumes tbody tr").nth(rows - 1).waitFor();
    await page.waitForTimeout(3000);
    const before = ticks();
    await page.waitForTimeout(1000 * SECONDS);
    const cores = (ticks() - before) / TICKS_A_SECOND / SECONDS;
    must(cores < CORE_MAX, `${(100 * cores).toFixed(1)} % of a core`);
    return `${(100 * cores).toFixed(1)} % of a core`;
  });
}

await look("the page complains of nothing", async () => must(complaints().length === 0, complaints().join("\n")));
await context.close();
end();
