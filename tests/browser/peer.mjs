// What people see of a cluster in a browser at alpha: a hand-over that they ask for, and the death of the node that has the volume then.
// Run by tests/tests/dashboard.rs, on alpha's host.

import { browse, end, look, must, picture, token, until, url, volume } from "./browser.mjs";

const peer = Number(process.env.FOREBAY_PEER_PID);
const { context, page, complaints, expect } = await browse();
const fetched = async (path) => (await fetch(`${url}${path}`)).json();
const owner = async () => (await fetched(`/v1/volumes/${volume}`)).cluster.owner;

await look("both nodes are there, and nothing is degraded", async () => {
  await page.goto(`${url}/`);
  await page.locator(".volumes tbody tr", { hasText: volume }).waitFor();
  await until("both nodes up", async () => (await page.locator('section[aria-labelledby="nodes-title"] tbody tr').count()) === 2);
  await until("nothing degraded", async () => (await page.locator("li[data-code]").count()) === 0);
});

await look("of another node's host nothing is claimed", async () => {
  const row = page.locator('section[aria-labelledby="nodes-title"] tbody tr', { hasText: "beta" });
  await until("where to look", async () => (await row.locator("td").nth(2).textContent()) === "on that node");
  expect(/status of 404.*\/v1\/nodes\/beta\/history/);
  await row.locator("a").first().click();
  await page.locator("section.doctor", { hasText: "This node sees only its own host" }).waitFor();
  must((await page.locator("section.doctor button:visible").count()) === 0, "it offers to look");
  await until("the refusal of its history", async () => /ask that node/.test(await page.locator("main > div > .problem").textContent()));
  await page.goto(`${url}/#/`);
});

await look("a volume is handed over", async () => {
  expect(/status of 401/);
  await page.locator(".volumes a", { hasText: volume }).click();
  await page.getByRole("button", { name: "Hand over …" }).click();
  const dialog = page.locator("dialog", { hasText: "Hand" });
  await dialog.locator("#hand-over-to").selectOption("beta");
  await dialog.getByRole("button", { name: "Hand over", exact: true }).click();
  const login = page.locator("dialog", { hasText: "Token" });
  await login.locator("#token").fill(token);
  await login.getByRole("button", { name: "Log in" }).click();
  await until("the new owner", async () => (await owner()) === "beta");
});

await look("a killed peer is shown as degraded, with its reason, and the take-over as an event", async () => {
  await page.goto(`${url}/#/`);
  await page.locator(".volumes tbody tr", { hasText: volume }).waitFor();
  process.kill(peer, "SIGKILL");
  await page.locator('li[data-code="link-down"]', { hasText: "beta" }).waitFor({ timeout: 60_000 });
  await until("the new owner", async () => (await owner()) === "alpha", 60_000);
  const few = page.locator('li[data-code="too-few-copies"]');
  await few.waitFor({ timeout: 60_000 });
  const text = await few.textContent();
  must(text.includes(volume) && /0 of 1 requested copies/.test(text), `it says only: ${text}`);
  await picture(page, "peer-killed");
  await page.goto(`${url}/#/events`);
  await page.locator('tr[data-kind="take-over"]', { hasText: volume }).first().waitFor();
  await picture(page, "peer-killed-events");
  return text;
});

await look("the page complains of nothing", async () => must(complaints().length === 0, complaints().join("\n")));

await context.close();
end();
