// What people see and do, one look after the other. Run by tests/tests/dashboard.rs, which starts the daemon and the load.

import { createServer, request } from "node:http";

import { PATIENCE_MS, browse, daemon, end, look, must, picture, token, until, url, violations, volume } from "./browser.mjs";

const { context, page, complaints, expect, hosts } = await browse();

const legend = (chart, series) => page.locator(`#chart-${chart} .legend button[data-series="${series}"]`);
const value = async (chart, series) => ((await legend(chart, series).locator(".value").textContent()) ?? "").trim();
/** The picture that a chart shows now, to see whether it has changed. */
const drawn = (chart) => page.locator(`#chart-${chart} canvas`).evaluate((canvas) => canvas.toDataURL());
/** Without waiting until nothing moves any more: on a live page something always does. */
const scroll = (chart) => page.locator(`#chart-${chart}`).evaluate((element) => element.scrollIntoView({ block: "center", behavior: "instant" }));
const open = async (hash) => {
  await page.goto(`${url}/${hash}`);
  await page.locator("main h1").waitFor({ state: "attached" });
};
const fetched = async (path) => (await fetch(`${url}${path}`)).json();

await look("the page loads fast, whole, and from here alone", async () => {
  const answer = await page.goto(`${url}/`);
  const policy = answer.headers()["content-security-policy"] ?? "";
  must(policy.includes("default-src 'none'") && !policy.includes("unsafe"), `the page's policy is ${policy}`);
  await page.locator(".volumes tbody tr").first().waitFor();
  // Once more, with a warm daemon; measured from the request to the first row of figures.
  const begun = Date.now();
  await page.reload({ waitUntil: "commit" });
  await page.locator(".volumes tbody tr").first().waitFor();
  const rows = Date.now() - begun;
  const timing = await page.evaluate(() => {
    const [navigation] = performance.getEntriesByType("navigation");
    return { loaded: Math.round(navigation.domContentLoadedEventEnd), bytes: performance.getEntriesByType("resource").reduce((all, one) => all + one.encodedBodySize, 0) };
  });
  // How fast it is says more of what else the machine does (the goal is 300 ms on one of its own); how much it fetches is the page's own.
  must(timing.bytes > 0 && timing.bytes < 256 * 1024, `${timing.bytes} bytes are fetched beside the page`);
  return `loaded after ${timing.loaded} ms, rows after ${rows} ms, ${timing.bytes} bytes`;
});

await look("the fleet shows its volumes, and what fails with its reason", async () => {
  await page.locator(".volumes tbody tr", { hasText: volume }).waitFor();
  const degraded = page.locator('li[data-code="backing-failing"]');
  await degraded.waitFor();
  const text = await degraded.textContent();
  must(/failing/.test(text) && /error/i.test(text), `it says only: ${text}`);
  const state = await page.locator(".volumes tr", { hasText: "failing" }).locator('td[data-column="state"]').textContent();
  must(state.includes("backing failing"), `its row says ${state}`);
  return text;
});

await look("figures of the fleet move", async () => {
  const cell = page.locator(".volumes tr", { hasText: volume }).locator('td[data-column="iops"]');
  const first = await until("a figure", async () => { const text = await cell.textContent(); return /[1-9]/.test(text) && text; });
  await until("another figure", async () => (await cell.textContent()) !== first);
});

await look("volumes are found by name and sorted", async () => {
  await page.locator("#filter").fill("fail");
  await until("one row", async () => (await page.locator(".volumes tbody tr").count()) === 1);
  await page.locator("#filter").fill("");
  await until("all rows", async () => (await page.locator(".volumes tbody tr").count()) === 2);
  await page.locator(".volumes th button").first().click();
  await until("the other order", async () => (await page.locator(".volumes tbody tr").first().textContent()).startsWith(volume));
  must((await page.locator(".volumes th").first().getAttribute("aria-sort")) === "descending", "the order is not told");
  await page.locator(".volumes th button").first().click();
});

await look("charts of a volume move", async () => {
  await page.locator(".volumes a", { hasText: volume }).click();
  for (const [chart, series] of [["iops", "write_iops"], ["latency", "write_client_us"], ["latency", "write_local_us"], ["latency", "read_client_us"], ["throughput", "read_bytes_per_s"], ["dirty", "dirty_bytes"]]) {
    await scroll(chart);
    await until(`a figure of ${series}`, async () => /[1-9]/.test(await value(chart, series)));
  }
  await scroll("iops");
  const before = await drawn("iops");
  await until("another picture", async () => (await drawn("iops")) !== before);
});

await look("a leg is hidden and shown by its name", async () => {
  const leg = legend("latency", "write_client_us");
  await scroll("latency");
  must((await leg.getAttribute("aria-pressed")) === "true", "it is not shown at first");
  await leg.click();
  must((await leg.getAttribute("aria-pressed")) === "false", "it is shown still");
  await leg.click();
  must((await leg.getAttribute("aria-pressed")) === "true", "it does not come back");
});

await look("percentiles are chosen", async () => {
  const asked = page.waitForRequest((request) => request.url().includes("write_client_p99_us"), { timeout: PATIENCE_MS });
  await page.locator("#statistic").selectOption("p99");
  await asked;
  await until("a 99th percentile", async () => /[1-9]/.test(await value("latency", "write_client_p99_us")));
  await page.locator("#statistic").selectOption("mean");
});

for (const window of ["1h", "8h", "1d", "7d", "10m"]) {
  await look(`the window of ${window} is shown`, async () => {
    const answer = page.waitForResponse((response) => response.url().includes(`/history?window=${window}`), { timeout: PATIENCE_MS });
    const name = { "10m": "10 min", "1h": "1 h", "8h": "8 h", "1d": "1 d", "7d": "7 d" }[window];
    await page.getByRole("button", { name, exact: true }).click();
    const response = await answer;
    must(response.ok(), `the daemon says ${response.status()}`);
    must(page.url().includes(`window=${window}`), `the address is ${page.url()}`);
  });
}

await look("dragging zooms, a double click goes back", async () => {
  const plot = page.locator("#chart-iops .u-over");
  await scroll("iops");
  const box = await plot.boundingBox();
  const middle = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.5, middle);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, middle, { steps: 4 });
  await page.mouse.move(box.x + box.width * 0.9, middle, { steps: 4 });
  await page.mouse.up();
  await until("an address with the range", () => /from=\d+&to=\d+/.test(page.url()));
  const [, from, to] = /from=(\d+)&to=(\d+)/.exec(page.url());
  must(to - from > 150 && to - from < 330, `two fifths of ten minutes are shown as ${to - from} s`);
  // By its place: the chart is drawn anew under the pointer.
  await until("the chart", () => plot.isVisible());
  await page.mouse.dblclick(box.x + box.width * 0.5, middle);
  await until("the window", () => page.url().includes("window=10m"));
});

await look("keys zoom and move the cursor, and what they find is spoken", async () => {
  const plot = page.locator("#chart-iops .plot");
  await plot.focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await until("words of it", async () => /writes/.test(await page.locator("#chart-iops [aria-live]").textContent()));
  await page.keyboard.press("+");
  await until("a narrower range", () => /from=/.test(page.url()));
  await plot.focus();
  await page.keyboard.press("Escape");
  await until("the window", () => page.url().includes("window=10m"));
});

await look("every chart is a table as well", async () => {
  const charts = await page.locator("section.chart").count();
  must(charts >= 10, `there are ${charts} charts`);
  for (let index = 0; index < charts; index += 1) {
    const chart = page.locator("section.chart").nth(index);
    await chart.evaluate((element) => element.scrollIntoView({ block: "center", behavior: "instant" }));
    const button = chart.locator("header button");
    await button.click();
    must((await chart.locator("tbody tr").count()) > 3, `chart ${index} has no rows`);
    await button.click();
  }
});

await look("request sizes, sequential share and cache sizes are shown", async () => {
  await until("cells of the heat map", async () => (await page.locator(".cells td[title]").count()) > 0);
});

await look("a policy switch says what it means, asks for the token, goes through, and is an event", async () => {
  // Of the wrong token.
  expect(/status of 401/);
  await page.getByRole("button", { name: "Switch to write-through …" }).click();
  const dialog = page.locator("dialog");
  const words = await dialog.textContent();
  must(/only when the backing has it/.test(words) && /until then/i.test(words), `it says: ${words}`);
  await picture(page, "confirm");
  must((await violations(page)).length === 0, `the question: ${(await violations(page)).join("\n")}`);
  await dialog.getByRole("button", { name: "Switch to write-through" }).click();
  const login = page.locator("dialog", { hasText: "Token" });
  await login.locator("#token").fill("not-the-token");
  await login.getByRole("button", { name: "Log in" }).click();
  await until("a refusal", async () => /not a token/.test(await login.textContent()));
  await login.locator("#token").fill(token);
  await login.getByRole("button", { name: "Log in" }).click();
  await until("the policy", async () => (await fetched(`/v1/volumes/${volume}`)).policy.requested === "through");
  await page.getByRole("button", { name: "Switch to write-back …" }).waitFor();
  // Events are what has changed from one second to the next: what is changed back within one is none.
  await page.locator('tr[data-kind="policy-changed"]').first().waitFor();
  await page.getByRole("button", { name: "Switch to write-back …" }).click();
  must(/one copy, in this node's flash tier/.test(await dialog.textContent()), "write-back does not say what it is worth");
  await dialog.getByRole("button", { name: "Switch to write-back" }).click();
  await until("the policy", async () => (await fetched(`/v1/volumes/${volume}`)).policy.requested === "back");
});

await look("what happens while the stream begins anew is shown, too", async () => {
  const events = async () => (await fetched(`/v1/events?volume=${volume}&kind=policy-changed`)).events;
  const rows = page.locator('tr[data-kind="policy-changed"]');
  const settled = async (policy, after) => {
    const last = (await events()).at(-1);
    return last && last.id > after && last.details.effective === policy && last.details.reason === "as-requested" && last.id;
  };
  let last = await until("the event of the change before", () => settled("back", 0));
  // A page that has heard of no event yet cannot name the last one that it has.
  await page.reload();
  await page.getByRole("button", { name: "Switch to write-through …" }).waitFor();
  await until("the rows of what was before", async () => (await rows.count()) === (await events()).length);
  const before = await rows.count();
  let released = false;
  const held = [];
  await page.route("**/v1/stream**", (route) => (released ? route.continue() : held.push(route)));
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await until("the stream to begin anew", () => held.length > 0);
  for (const policy of ["through", "back"]) {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const answer = await fetch(`${url}/v1/volumes/${volume}`, { method: "PATCH", headers, body: JSON.stringify({ policy }) });
    must(answer.ok, `${answer.status} ${await answer.text()}`);
    last = await until("its event", () => settled(policy, last));
  }
  must((await rows.count()) === before, "the stream was not held back");
  released = true;
  // Those that were given up meanwhile cannot go on.
  for (const route of held) await route.continue().catch(() => undefined);
  await until("both events", async () => (await rows.count()) === (await events()).length);
  must((await rows.count()) >= before + 2, `${before} rows have become ${await rows.count()}`);
  await page.unroute("**/v1/stream**");
});

await look("a hold is begun and released", async () => {
  await page.getByRole("button", { name: "Hold for a backup …" }).click();
  const dialog = page.locator("dialog");
  await dialog.locator("#hold-minutes").fill("5");
  await dialog.getByRole("button", { name: "Hold", exact: true }).click();
  await page.getByRole("button", { name: "Release …" }).waitFor();
  must((await fetched(`/v1/volumes/${volume}`)).backing.state === "held", "the backing is not held");
  await page.getByRole("button", { name: "Release …" }).click();
  await dialog.getByRole("button", { name: "Release", exact: true }).click();
  await until("the release", async () => (await fetched(`/v1/volumes/${volume}`)).backing.state !== "held");
});

await look("what cannot be done is told in the daemon's words", async () => {
  expect(/status of 404.*\/nothing-of-this-name/);
  await open("#/volumes/nothing-of-this-name");
  await until("the reason", async () => /nothing-of-this-name/.test(await page.locator(".problem").first().textContent()));
  await open("#/");
});

const name = await fetched("/v1/fleet").then((fleet) => fleet.nodes[0].name);
const pages = { fleet: "#/", volume: `#/volumes/${volume}`, failing: "#/volumes/failing", node: `#/nodes/${encodeURIComponent(name)}`, events: "#/events" };

for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 360]]) {
  await page.setViewportSize({ width, height: 800 });
  await page.emulateMedia({ colorScheme: theme });
  for (const [which, hash] of Object.entries(pages)) {
    await look(`${which} page in ${theme} on ${width} px: nothing serious for axe, nothing wider than the screen`, async () => {
      await open(hash);
      await page.waitForTimeout(1200);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      must(wide <= 0, `${wide} px too wide`);
      const found = await violations(page);
      must(found.length === 0, found.join("\n"));
      await picture(page, `${which}-${theme}-${width}`);
    });
  }
}
await page.setViewportSize({ width: 1280, height: 900 });

for (const [language, fleet, title] of [["ja", "ボリューム", "全体"], ["ko", "볼륨", "전체"], ["en", "Volumes", "Fleet"]]) {
  await look(`it speaks ${language}`, async () => {
    await open("#/");
    await page.locator("#language").selectOption(language);
    await until("the heading", async () => (await page.locator("#volumes-title").textContent()) === fleet);
    must((await page.evaluate(() => document.documentElement.lang)) === language, "the page does not say so");
    must((await page.title()).startsWith(title), `the title is ${await page.title()}`);
    await picture(page, `fleet-${language}`);
    await open(`#/volumes/${volume}`);
    await page.waitForTimeout(1000);
    await picture(page, `volume-${language}`);
  });
}

await look("the theme that was chosen stays", async () => {
  await page.locator("#theme").selectOption("dark");
  await page.reload();
  must((await page.evaluate(() => document.documentElement.dataset.theme)) === "dark", "it is gone after a reload");
  await page.locator("#theme").selectOption("auto");
});

await look("a daemon that hangs is told, and taken up again", async () => {
  expect(/net::ERR_/);
  await open("#/");
  await page.locator(".volumes tbody tr").first().waitFor();
  process.kill(daemon, "SIGSTOP");
  try {
    await page.locator("#connection").waitFor({ state: "visible" });
    must(/does not answer/.test(await page.locator("#connection").textContent()), "it does not say so");
  } finally {
    process.kill(daemon, "SIGCONT");
  }
  await page.locator("#connection").waitFor({ state: "hidden" });
});

await look("the page speaks to nobody else", async () => {
  must(hosts.size === 1 && hosts.has(new URL(url).host), `it spoke to ${[...hosts].join(", ")}`);
});

await look("an answer that stops in its middle is told, and asked for again", async () => {
  expect(/net::ERR_/);
  // Between page and daemon: what the fleet's answer does after its first byte. Nothing: it passes.
  let stops;
  const between = createServer((asked, answer) => {
    if (stops && asked.url.startsWith("/v1/fleet")) {
      answer.writeHead(200, { "Content-Type": "application/json" }).write("{");
      return stops(answer);
    }
    const headers = { ...asked.headers, host: new URL(url).host };
    const onward = request(`${url}${asked.url}`, { method: asked.method, headers }, (come) => come.pipe(answer.writeHead(come.statusCode, come.headers)));
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    asked.pipe(onward);
  });
  await new Promise((done) => between.listen(0, "127.0.0.1", done));
  try {
    await page.goto(`http://127.0.0.1:${between.address().port}/`);
    await page.locator(".volumes tbody tr").first().waitFor();
    // The time of the question is over, or the connection breaks.
    for (const [how, why] of [[() => undefined, "5 s"], [(answer) => setTimeout(() => answer.destroy(), 100), "Failed to fetch"]]) {
      stops = how;
      // It may hide again at once: the stream, which is whole, says something each second.
      await page.locator("#connection", { hasText: why }).waitFor({ state: "attached" });
      stops = undefined;
      await page.locator("#connection").waitFor({ state: "hidden" });
    }
  } finally {
    between.close();
    between.closeAllConnections();
  }
});

await look("the page complains of nothing", async () => must(complaints().length === 0, complaints().join("\n")));

await context.close();
end();
