// What people see of the host that a node runs on: what its doctor says, and what it cannot say. Run by tests/tests/dashboard.rs.
//
// The looks of the daemon itself come first. What a host may have that the one of the tests has not is put in between daemon and page.

import { browse, end, look, must, picture, until, url, violations } from "./browser.mjs";

const { context, page, complaints, expect } = await browse();
const fetched = async (path, headers = {}) => (await fetch(`${url}${path}`, { headers })).json();
const own = (await fetched("/v1/fleet")).nodes[0].name;
const card = page.locator("section.doctor");
const cell = (node) => page.locator('section[aria-labelledby="nodes-title"] tbody tr', { hasText: node }).locator("td").nth(2);
const there = async (hash) => {
  await page.goto(`${url}/${hash}`);
  await page.reload();
  await page.locator("main h1").waitFor({ state: "attached" });
};
const node = `#/nodes/${encodeURIComponent(own)}`;

await look("the daemon's own look is shown, with the time", async () => {
  await there(node);
  await until("the first look", async () => /^looked at/.test((await card.locator("header .weak").textContent()) ?? ""), 120_000);
  const doctor = await fetched("/v1/doctor");
  await until("its findings", async () => (await card.locator("li[data-finding]").count()) === doctor.findings.length);
  if (doctor.findings.length === 0) must(/Nothing found/.test(await card.textContent()), "it does not say that there is nothing");
  return `${doctor.findings.length} findings, ${doctor.fine.length} that are none`;
});

await look("a new look is had on demand", async () => {
  const before = await card.locator("header .weak").textContent();
  // The page tells seconds, a look takes half of one, and what is asked for soon after a look is answered with that.
  await page.waitForTimeout(6_000);
  const asked = page.waitForRequest((request) => request.url().includes("/v1/doctor") && request.url().includes("fresh=true"));
  await card.getByRole("button", { name: "Look again now" }).click();
  await asked;
  await until("its time", async () => (await card.locator("header .weak").textContent()) !== before, 120_000);
  await until("the button", async () => (await card.getByRole("button").textContent()) === "Look again now");
});

await look("the daemon speaks the language that the page or a program asks for", async () => {
  const said = {};
  for (const language of ["en", "ja", "ko"]) said[language] = (await fetched(`/v1/doctor?language=${language}`)).fine[0].says;
  must(new Set(Object.values(said)).size === 3, `it says ${JSON.stringify(said)}`);
  must((await fetched("/v1/doctor", { "Accept-Language": "fr, ko;q=0.5" })).fine[0].says === said.ko, "Accept-Language is not heard");
  const refused = await fetch(`${url}/v1/doctor?language=xx`);
  must(refused.status === 400 && /language/.test((await refused.json()).error), "a language that it does not speak is not refused");
  return said.en;
});

// --- what other hosts have ---

const SINCE = "2026-03-01T10:20:30.000Z";
const finding = (id, severity, says, more = {}) => ({
  id, check: 1, severity, confidence: "certain", text: { key: "doctor.none" }, says, since: SINCE, help: [], evidence: [{ source: `/sys/of/${id}`, value: "8.0 GT/s PCIe" }], ...more,
});
const FINDINGS = [
  finding("pcie-link/0000:82:00.0", "error", "The link of mlx5_0 (0000:82:00.0) runs with 4 of 16 lanes: 3.9 GB/s instead of 15.8 GB/s.", {
    number: { is: 3.94e9, could_be: 15.75e9, unit: "B/s" },
    remedies: [{ kind: "explain", what: { key: "doctor.none" }, command: "lspci -vvs 82:00.0" }],
    help: ["put the card into a slot with 16 lanes, or clean its contacts"],
  }),
  finding("cpu-clock/governor", "warning", "64 CPUs run by the governor powersave, at 1.20 of 3.60 GHz.", {
    confidence: "computed",
    number: { is: 1.2e9, could_be: 3.6e9, unit: "Hz" },
    evidence: Array.from({ length: 64 }, (_, cpu) => ({ source: `/sys/devices/system/cpu/cpu${cpu}/cpufreq/scaling_governor`, value: "powersave" })),
    remedies: [{ kind: "apply", what: { key: "doctor.none" }, writes: Array.from({ length: 64 }, (_, cpu) => ({ path: `/sys/devices/system/cpu/cpu${cpu}/cpufreq/scaling_governor`, value: "performance" })) }],
    help: ["let them run by the governor performance"],
  }),
  finding("nic-mtu/eth0/a-name-that-has-no-place-to-break-and-goes-on-and-on-and-on-and-on-and-on", "note", "eth0 sends packets of 1500 bytes at 25 Gb/s.", { confidence: "likely", number: { is: 0.0021, could_be: 0, unit: "1" } }),
];
const DOCTOR = {
  at: "2026-03-02T10:20:30.000Z",
  took_s: 0.71,
  findings: FINDINGS,
  fine: [{ check: 8, word: "numa-apart", text: { key: "doctor.none" }, says: "Distance: all 2 CPUs are in one socket." }],
  hidden: [1, 2].map((check) => ({ check, word: `w${check}`, what: "/sys/secret: Permission denied", text: { key: "doctor.none" }, how: "run it as root" })),
};
const SUMMARY = { at: DOCTOR.at, errors: 1, warnings: 1, notes: 1, hidden: 2 };

let change = () => undefined;
let answer = { json: DOCTOR };
let languages = [];
await page.route("**/v1/fleet?*", async (route) => {
  const response = await route.fetch();
  const fleet = await response.json();
  change(fleet);
  await route.fulfill({ response, json: fleet });
});
await page.route("**/v1/doctor?*", async (route) => {
  languages.push(new URL(route.request().url()).searchParams.get("language"));
  await route.fulfill(answer);
});
const summary = (doctor) => (fleet) => {
  if (doctor) fleet.nodes[0].report.doctor = doctor;
  else delete fleet.nodes[0].report.doctor;
};

await look("a finding has its sentence, number, evidence, remedy, confidence and time, the worst first", async () => {
  change = summary(SUMMARY);
  await there(node);
  await card.locator("li[data-finding]").first().waitFor();
  const ids = await card.locator("li[data-finding]").evaluateAll((items) => items.map((item) => item.dataset.finding));
  must(ids.join() === FINDINGS.map(({ id }) => id).join(), `the order is ${ids}`);
  const first = await card.locator("li[data-finding]").first().innerText();
  for (const wanted of ["error", "4 of 16 lanes", "3.94 GB/s now, 15.8 GB/s possible", "/sys/of/pcie-link/0000:82:00.0", "8.0 GT/s PCIe", "slot with 16 lanes", "lspci -vvs 82:00.0", "certain", "2026"]) {
    must(first.includes(wanted), `no ${wanted} in: ${first}`);
  }
  const second = await card.locator("li[data-finding]").nth(1).innerText();
  for (const wanted of ["1.2 GHz now, 3.6 GHz possible", "forebay doctor --apply cpu-clock/governor", "scaling_governor = performance", "and 60 more"]) {
    must(second.includes(wanted), `no ${wanted} in: ${second}`);
  }
  must((await card.locator("li[data-finding]").nth(1).locator("dl code.value").count()) === 4, "64 files are listed");
});

await look("notes, what is not the bound and what could not be seen are folded, and keys unfold them", async () => {
  const note = card.locator("li.note details");
  must(!(await note.evaluate((details) => details.open)), "a note is unfolded");
  const fine = card.locator('summary[data-part="fine"]');
  must((await fine.textContent()) === "Ruled out (1)", `it says ${await fine.textContent()}`);
  must(!(await page.getByText("all 2 CPUs are in one socket").isVisible()), "what was ruled out is unfolded");
  await fine.focus();
  await page.keyboard.press("Enter");
  await page.getByText("all 2 CPUs are in one socket").waitFor({ state: "visible" });
  const hidden = card.locator('summary[data-part="hidden"]');
  must((await hidden.textContent()) === "Could not be seen (1)", "what two checks miss is told twice");
  await page.keyboard.press("Tab");
  must(await hidden.evaluate((summary) => summary === document.activeElement), "the next key does not lead to the next part");
  await page.keyboard.press("Enter");
  await page.getByText("/sys/secret: Permission denied (run it as root)").waitFor({ state: "visible" });
});

await look("what was unfolded stays so when a new look says something else", async () => {
  answer = { json: { ...DOCTOR, at: "2026-03-02T11:20:30.000Z", findings: FINDINGS.slice(1) } };
  change = summary({ ...SUMMARY, at: answer.json.at, errors: 0 });
  await until("the new findings", async () => (await card.locator("li[data-finding]").count()) === 2);
  must(await page.getByText("all 2 CPUs are in one socket").isVisible(), "it is folded again");
  answer = { json: DOCTOR };
  change = summary(SUMMARY);
});

await look("the fleet counts findings by the worst severity, and leads to them", async () => {
  await there("#/");
  await until("the counts", async () => (await cell(own).innerText()).replace(/\s+/g, " ").trim() === "■ errors: 1 ▲ warnings: 1 ● notes: 1");
  await cell(own).locator("a").click();
  await card.locator("li[data-finding]").first().waitFor();
});

for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 360]]) {
  await look(`findings in ${theme} on ${width} px: nothing serious for axe, nothing wider than the screen`, async () => {
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme: theme });
    for (const [which, hash] of [["node", node], ["fleet", "#/"]]) {
      await there(hash);
      await (which === "node" ? card.locator("li[data-finding]") : cell(own).locator("a")).first().waitFor();
      await page.locator("details:not([open]) > summary").evaluateAll((folded) => folded.forEach((summary) => summary.click()));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      must(wide <= 0, `${which}: ${wide} px too wide`);
      const found = await violations(page);
      must(found.length === 0, `${which}: ${found.join("\n")}`);
      await picture(page, `doctor-${which}-${theme}-${width}`);
    }
  });
}
await page.setViewportSize({ width: 1280, height: 900 });

for (const [language, title, counted] of [["ja", "このホストを制限しているもの", "エラー: 1"], ["ko", "이 호스트를 제한하는 요소", "오류: 1"], ["en", "What bounds this host", "errors: 1"]]) {
  await look(`findings are asked for in ${language}`, async () => {
    await there(node);
    languages = [];
    await page.locator("#language").selectOption(language);
    await until("the title", async () => (await page.locator("#doctor-title").textContent()) === title);
    await until("the question", () => languages.includes(language));
    await card.locator("li[data-finding]").first().waitFor();
    await picture(page, `doctor-node-${language}`);
    await there("#/");
    await until("the count", async () => (await cell(own).innerText()).includes(counted));
  });
}

await look("a host without findings, and one that was not looked at, say so", async () => {
  answer = { json: { ...DOCTOR, findings: [], hidden: [] } };
  change = summary({ ...SUMMARY, errors: 0, warnings: 0, notes: 0 });
  await there(node);
  await card.getByText("Nothing found that bounds this host.").waitFor();
  must((await card.locator('summary[data-part="hidden"]').count()) === 0, "nothing is folded there");
  await there("#/");
  await until("no findings", async () => (await cell(own).textContent()).trim() === "✓ none");
  change = summary(undefined);
  await there(node);
  await card.getByText("has not looked at this host yet").waitFor();
  await there("#/");
  await until("no look", async () => (await cell(own).textContent()) === "not looked yet");
});

await look("a look that hangs is said, beside what is known from before", async () => {
  const why = "`forebay doctor` had said nothing after 60 s: some device does not answer";
  answer = { json: { ...DOCTOR, problem: why } };
  change = summary({ ...SUMMARY, problem: why });
  await there(node);
  await card.locator("li[data-finding]").first().waitFor();
  must((await card.locator(".problem").textContent()) === `The last look failed: ${why}`, `it says ${await card.locator(".problem").textContent()}`);
  must((await violations(page)).length === 0, (await violations(page)).join("\n"));
  await picture(page, "doctor-hangs");
  await there("#/");
  await until("the failure", async () => /look failed/.test(await cell(own).textContent()));
});

await look("a daemon that does not answer with findings is said, and asked again", async () => {
  expect(/status of 500/);
  change = summary(SUMMARY);
  answer = { status: 500, json: { error: "cannot start `forebay doctor`: no memory" } };
  await there(node);
  await until("the reason", async () => /no memory/.test(await card.locator(".problem").textContent()));
  await card.getByText("There is nothing to show yet.").waitFor();
  answer = { json: DOCTOR };
  await card.locator("li[data-finding]").first().waitFor();
  must((await card.locator(".problem").textContent()) === "", "the failure is told still");
});

await look("the page complains of nothing", async () => must(complaints().length === 0, complaints().join("\n")));

await context.close();
end();
