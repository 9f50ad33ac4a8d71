// A volume: which leg takes the time, what waits for the slow store, what was done to it, and what can be done.

import { Refused, ask, volumePath } from "../api";
import { volumeActions } from "../actions";
import type { Line, Spec } from "../chart";
import { h, say } from "../dom";
import { heatSection } from "../heat";
import { type Range, WINDOWS } from "../history";
import { known, listen } from "../live";
import { missSection } from "../miss";
import { badge, degradedLine, health } from "../status";
import type { Shape, Hue } from "../theme";
import type { Volume } from "../types";
import { bytes, bytesPerSecond, count, latency, perSecond, ratio, span } from "../units";
import { t, word } from "../words";
import { policyText } from "./fleet";
import { Board, type Page, eventTable } from "./page";

/** How a second's latencies become one figure. */
const STATISTICS = ["mean", "p50", "p99", "max"] as const;
type Statistic = (typeof STATISTICS)[number];

const LEGS: [leg: "client" | "local" | "network" | "backing", hue: Hue, shape: Shape][] = [
  ["client", "blue", "circle"],
  ["local", "green", "triangle"],
  ["network", "purple", "diamond"],
  ["backing", "orange", "square"],
];

/** What the latency chart shows. The network is a leg of those volumes that have copies elsewhere. */
interface Choice {
  statistic: Statistic;
  logarithmic: boolean;
  peers: boolean;
}

function legLines({ statistic, peers }: Choice): Line[] {
  const suffix = statistic === "mean" ? "us" : `${statistic}_us`;
  return (["write", "read"] as const).flatMap((side) =>
    LEGS.filter(([leg]) => leg !== "network" || (peers && side === "write")).map(
      ([leg, hue, shape]): Line => ({
        series: `${side}_${leg}_${suffix}`,
        label: `${t(`side.${side}`)}: ${t(`leg.${leg}`)}`,
        hue,
        shape,
        dashed: side === "read",
      }),
    ),
  );
}

function specs(choice: Choice): Spec[] {
  const write = (series: string, label: string): Line => ({ series, label, hue: "blue", shape: "circle" });
  const read = (series: string, label: string): Line => ({ series, label, hue: "orange", shape: "square", dashed: true });
  return [
    { id: "latency", title: t("chart.latency"), lines: legLines(choice), format: latency, tall: true, logarithmic: choice.logarithmic },
    { id: "iops", title: t("chart.iops"), lines: [write("write_iops", t("line.writes")), read("read_iops", t("line.reads"))], format: perSecond, least: 10 },
    {
      id: "throughput",
      title: t("chart.throughput"),
      lines: [write("write_bytes_per_s", t("line.written")), read("read_bytes_per_s", t("line.read"))],
      format: bytesPerSecond,
      binary: true,
    },
    { id: "hits", title: t("chart.hits"), lines: [read("read_hit_ratio", t("line.hits"))], format: ratio, top: 1 },
    { id: "dirty", title: t("chart.dirty"), lines: [write("dirty_bytes", t("line.dirty"))], format: bytes, binary: true },
    {
      id: "drain",
      title: t("chart.drain"),
      lines: [write("drain_s", t("line.drain")), read("oldest_dirty_s", t("line.oldest"))],
      format: span,
      least: 1,
    },
    { id: "groups", title: t("chart.groups"), lines: [write("groups_waiting", t("line.groups"))], format: count, whole: true, least: 2 },
    {
      id: "destage",
      title: t("chart.destage"),
      lines: [write("destage_bytes_per_s", t("line.destage")), read("compression_saved_bytes_per_s", t("line.saved"))],
      format: bytesPerSecond,
      binary: true,
    },
    {
      id: "evictions",
      title: t("chart.evictions"),
      lines: [write("evictions_per_s", t("line.evictions")), read("throttled_per_s", t("line.throttled"))],
      format: perSecond,
      least: 10,
    },
    { id: "sequential", title: t("chart.sequential"), lines: [write("sequential_ratio", t("line.sequential"))], format: ratio, top: 1 },
    { id: "flush", title: t("chart.flush"), lines: [write("flush_p99_us", t("line.flush"))], format: latency, least: 100 },
  ];
}

function facts(volume: Volume): [string, string][] {
  const { backing, tier, dirty, policy, cluster, destage } = volume;
  const list: [string, string][] = [
    [t("volume.size"), bytes(volume.size_bytes)],
    [t("volume.policy"), policyText(volume)],
    [t("volume.backing"), `${backing.spec} (${word("backing", backing.state)})`],
    [t("volume.tier"), `${word("tier", tier.kind)}, ${bytes(tier.size_bytes)}${tier.volatile ? `, ${t("tier.volatile")}` : ""}`],
    [t("volume.destage"), `${word("destage", destage.effective)} (${word("destage-reason", destage.reason)})`],
    [t("volume.dirty"), t("volume.dirty-of", { dirty: bytes(dirty.bytes), most: bytes(dirty.bytes_max) })],
    [t("line.drain"), dirty.drain_s === undefined ? t("value.unknown") : span(dirty.drain_s)],
    [t("line.oldest"), span(dirty.oldest_s)],
    [t("volume.clients"), count(volume.connections)],
  ];
  if (policy.effective !== policy.requested) list.splice(2, 0, [t("volume.requested"), word("policy", policy.requested)]);
  if (backing.hold_left_s !== undefined) list.push([t("volume.hold-left"), span(backing.hold_left_s)]);
  if (cluster) {
    list.push([t("volume.owner"), cluster.owner || t("value.unknown")]);
    const members = cluster.members.map((member) => `${member.node} (${word("role", member.role)}${member.lag ? `, ${t("volume.lag", { lag: count(member.lag) })}` : ""})`);
    list.push([t("volume.members"), members.join(", ")]);
  }
  return list;
}

/** Why it is not as it should be. What the daemon tells comes first; what is seen here before it has looked, then. */
function problems(volume: Volume): HTMLElement[] {
  const told = (known()?.degraded ?? []).filter((one) => one.volume === volume.name);
  const found = told.map(degradedLine);
  const say = (code: string, head: string, text: string | undefined) => {
    if (!told.some((one) => one.code === code)) found.push(h("li", { "data-code": code }, badge("warning", head), text ? h("div", { class: "weak" }, text) : ""));
  };
  const { policy, backing } = volume;
  if (policy.reason !== "as-requested") {
    const words = { effective: word("policy", policy.effective), requested: word("policy", policy.requested) };
    const head = policy.effective === policy.requested ? words.effective : t("volume.not-as-asked", words);
    say(policy.reason, `${head}: ${word("reason", policy.reason)} (${t("value.for", { time: span(policy.since_s) })})`, word("reason-why", policy.reason));
  }
  if (backing.state === "failing") say("backing-failing", t("backing.failing"), backing.error);
  if (backing.displaced) say("image-displaced", t("backing.displaced"), backing.displaced);
  if (volume.problem) say(`volume-${volume.phase}`, word("phase", volume.phase), volume.problem);
  return found;
}

export function volumePage(name: string, range: Range): Page {
  const choice: Choice = { statistic: "mean", logarithmic: true, peers: false };
  let volume: Volume | undefined;
  let said = "";
  let toldNow = "";
  const mine = { kind: "volume", name } as const;
  const path = volumePath(name);

  const title = h("h1", {}, name);
  const state = h("span", { class: "state" });
  const about = h("p", { class: "weak", hidden: true });
  const actions = h("div");
  const trouble = h("ul", { class: "card degraded plain-list", hidden: true });
  const list = h("dl", { class: "tiles small" });
  const fill = h("div", { class: "fill", role: "img" });
  const bar = h("div");
  fill.append(bar);
  const missing = h("p", { class: "problem", role: "status" });
  const events = h("section", { class: "card", "aria-label": t("events.title") });
  const heat = heatSection(path);
  const miss = missSection(path);

  const choose = h(
    "select",
    { id: "statistic", change: () => choosing({ statistic: STATISTICS.find((one) => one === choose.value) ?? "mean" }) },
    ...STATISTICS.map((one) => h("option", { value: one }, t(`statistic.${one}`))),
  );
  const scale = h("button", { type: "button", "aria-pressed": "true", click: () => choosing({ logarithmic: !choice.logarithmic }) }, t("chart.log"));

  let shownEvents = "";
  const board = new Board(path, mine, specs(choice), range, () => {
    say(missing, board.figure.problem ?? "");
    const key = board.figure.events.map((event) => event.id).join();
    if (key !== shownEvents || events.childElementCount === 0) {
      shownEvents = key;
      events.replaceChildren(h("h2", {}, t("events.title")), eventTable(board.figure.events, false));
    }
    more();
  });
  board.toolbar.append(h("span", { class: "choices" }, h("label", { for: "statistic" }, t("chart.statistic")), choose, scale));

  function choosing(next: Partial<Choice>): void {
    Object.assign(choice, next);
    scale.setAttribute("aria-pressed", String(choice.logarithmic));
    board.rebuild(specs(choice));
  }

  let moreAt = "";
  /** Heat map and miss ratio, of the same range; in a live window not more often than they change to the eye. */
  function more(): void {
    const { range, now } = board.figure;
    const when = "window" in range ? `window=${range.window}` : `from=${range.from}&to=${range.to}`;
    const seconds = "window" in range ? WINDOWS[range.window] : range.to - range.from;
    const key = `${when}/${"window" in range ? Math.floor(now / Math.max(10, seconds / 60)) : ""}`;
    if (key === moreAt) return;
    moreAt = key;
    heat.show(when);
    miss.show(when);
  }

  function show(next: Volume): void {
    volume = next;
    const peers = (next.cluster?.peers ?? 0) > 0;
    if (peers !== choice.peers) choosing({ peers });
    const found = health(next);
    const words = JSON.stringify([found, next.policy, next.backing.state, next.phase, next.cluster?.members.length, next.cluster?.owner]);
    if (words.replace(/"since_s":[0-9.]+/, "") !== said) {
      said = words.replace(/"since_s":[0-9.]+/, "");
      state.replaceChildren(badge(found.health, found.text));
      // Not under a finger: the buttons are made anew only when what they do has changed.
      actions.replaceChildren(volumeActions(next));
    }
    say(about, next.description ?? "");
    about.hidden = next.description === undefined;
    const wrong = problems(next);
    trouble.hidden = wrong.length === 0;
    const told = wrong.map((line) => line.textContent).join();
    if (told !== toldNow) {
      toldNow = told;
      trouble.replaceChildren(...wrong);
    }
    const rows = facts(next);
    if (list.childElementCount !== rows.length) {
      list.replaceChildren(...rows.map(([fact, value]) => h("div", { class: value.length > 26 ? "long" : "" }, h("dt", {}, fact), h("dd", {}, value))));
    } else {
      rows.forEach(([fact, value], index) => {
        const pair = list.children[index];
        if (pair?.firstElementChild) say(pair.firstElementChild, fact);
        if (pair?.lastElementChild) say(pair.lastElementChild, value);
      });
    }
    const part = next.dirty.bytes_max > 0 ? Math.min(1, next.dirty.bytes / next.dirty.bytes_max) : 0;
    bar.style.width = `${100 * part}%`;
    fill.setAttribute("aria-label", t("volume.fill", { part: ratio(part) }));
  }

  function gone(): void {
    if (known() && !known()?.volumes.some((one) => one.name === name)) say(missing, t("volume.gone", { volume: name }));
  }

  const now = known()?.volumes.find((one) => one.name === name);
  if (now) show(now);
  else {
    ask<Volume>(path).then(show, (error: unknown) => {
      say(missing, error instanceof Refused ? error.message : String(error));
    });
  }
  const deaf = listen({
    fleet(fleet) {
      const next = fleet.volumes.find((one) => one.name === name);
      if (next) show(next);
      else gone();
    },
    point(point) {
      const figures = point.volumes[name];
      if (!figures || !volume) return;
      const { dirty } = volume;
      show({
        ...volume,
        dirty: {
          ...dirty,
          bytes: figures["dirty_bytes"] ?? dirty.bytes,
          oldest_s: figures["oldest_dirty_s"] ?? dirty.oldest_s,
          groups_waiting: figures["groups_waiting"] ?? dirty.groups_waiting,
        },
      });
    },
  });
  const element = h(
    "div",
    {},
    h("header", { class: "page-head" }, title, state, actions),
    about,
    trouble,
    h("section", { class: "card", "aria-label": t("volume.facts") }, list, fill),
    board.toolbar,
    missing,
    board.charts,
    h("div", { class: "charts" }, heat.element, miss.element),
    events,
  );
  return {
    title: name,
    element,
    leave() {
      deaf();
      board.leave();
      heat.leave();
      miss.leave();
    },
  };
}
