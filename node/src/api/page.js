"use strict";
// Over TCP from another host the token is needed; it comes behind the # of the address, which no server ever sees.
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? sessionStorage.getItem("token");
if (token) { sessionStorage.setItem("token", token); history.replaceState(null, "", location.pathname); }
const headers = token ? { Authorization: "Bearer " + token } : {};

const size = bytes => {
  const units = ["B", "K", "M", "G", "T"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit += 1; }
  return (unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)) + " " + units[unit];
};
const time = s => s < 120 ? s.toFixed(1) + " s" : s < 7200 ? Math.round(s / 60) + " min" : (s / 3600).toFixed(1) + " h";
const element = (tag, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};

async function ask(path) {
  const answer = await fetch(path, { headers });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? answer.status);
  return body;
}

let before = new Map();

function rates(volume, now) {
  const last = before.get(volume.name);
  before.set(volume.name, { at: now, term: volume.term, counters: volume.counters });
  const seconds = last && last.term === volume.term ? (now - last.at) / 1000 : 0;
  return name => seconds ? Math.max(0, (volume.counters[name] ?? 0) - (last.counters[name] ?? 0)) / seconds : 0;
}

function show(volume, now) {
  const rate = rates(volume, now);
  const c = volume.counters, d = volume.dirty, p = volume.policy;
  const section = element("section");
  const head = element("h2", volume.name + " ");
  head.append(element("span", `${size(volume.size_bytes)}, ${volume.phase}`, "weak"));
  section.append(head);
  section.append(element("div", `${volume.backing.spec} behind a ${volume.tier.kind} tier of ${size(volume.tier.size_bytes)}`, "weak"));
  const words = { through: "write-through", back: "write-back" };
  if (volume.problem) section.append(element("div", volume.problem, "problem"));
  if (volume.backing.state !== "ready")
    section.append(element("div", `backing: ${volume.backing.state} ${volume.backing.error ?? ""}`, "problem"));
  if (volume.backing.displaced) section.append(element("div", volume.backing.displaced, "problem"));
  if (p.reason !== "as-requested")
    section.append(element("div", `${words[p.effective]} and not ${words[p.requested]} as asked: ${p.reason} for ${time(p.since_s)}`, "problem"));
  const hits = (c.read_blocks_from_log ?? 0) + (c.read_blocks_from_cache ?? 0) + (c.read_blocks_of_zeros ?? 0);
  const blocks = hits + (c.read_blocks_from_backing ?? 0);
  const facts = {
    "policy": words[p.effective],
    "writes": `${Math.round(rate("writes"))} /s`,
    "written": `${size(rate("write_bytes"))}/s`,
    "reads": `${Math.round(rate("reads"))} /s`,
    "read": `${size(rate("read_bytes"))}/s`,
    "flushes": `${Math.round(rate("flushes"))} /s`,
    "backing writes": `${Math.round(rate("backing_writes"))} /s`,
    "to the backing": `${size(rate("backing_write_bytes"))}/s`,
    "read hits": blocks ? (100 * hits / blocks).toFixed(1) + " %" : "-",
    "dirty": `${size(d.bytes)} of ${size(d.bytes_max)}`,
    "to drain": d.drain_left_s === undefined ? "not yet known" : time(d.drain_left_s),
    "oldest dirty": time(d.oldest_s),
    "waiting writes": d.waiting_writes,
    "clients": volume.connections,
  };
  const list = element("dl");
  for (const [name, value] of Object.entries(facts)) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    list.append(pair);
  }
  const fill = element("div", undefined, "fill");
  const bar = element("div");
  bar.style.width = (d.bytes_max ? Math.min(100, 100 * d.bytes / d.bytes_max) : 0) + "%";
  fill.append(bar);
  fill.title = "dirty bytes of those that are taken before writes wait";
  section.append(list, fill);
  return section;
}

async function refresh() {
  try {
    const [node, volumes] = await Promise.all([ask("/v1/status"), ask("/v1/volumes")]);
    const now = performance.now();
    document.getElementById("node").textContent =
      `${node.version} on ${node.host}, ${node.io_mode}, up ${time(node.uptime_s)}`;
    document.getElementById("volumes").replaceChildren(...volumes.map(volume => show(volume, now)));
    document.getElementById("problem").textContent = volumes.length ? "" : "There is no volume yet.";
  } catch (error) {
    document.getElementById("problem").textContent = `The daemon does not answer: ${error.message}`;
  }
  setTimeout(refresh, 1000);
}
refresh();
