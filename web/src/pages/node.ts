// A node: what its daemon takes of the machine, its links to the others, and the volumes it owns.

import { nodePath } from "../api";
import { nodeActions } from "../actions";
import type { Spec } from "../chart";
import { DoctorCard } from "../doctor";
import { h, say } from "../dom";
import type { Range } from "../history";
import { known, listen } from "../live";
import { badge, degradedLine, health, nodeBadge } from "../status";
import type { Channel, Fleet, FleetNode } from "../types";
import { bytes, bytesPerSecond, count, latency, ratio, span } from "../units";
import { t, word } from "../words";
import { Board, type Page, eventTable } from "./page";

function specs(): Spec[] {
  return [
    { id: "cpu", title: t("chart.cpu"), lines: [{ series: "cpu_ratio", label: t("line.cpu"), hue: "blue", shape: "circle" }], format: ratio },
    { id: "memory", title: t("chart.memory"), lines: [{ series: "memory_bytes", label: t("line.memory"), hue: "blue", shape: "circle" }], format: bytes, binary: true },
    {
      id: "links",
      title: t("chart.links"),
      lines: [
        { series: "link_send_bytes_per_s", label: t("line.sent"), hue: "blue", shape: "circle" },
        { series: "link_receive_bytes_per_s", label: t("line.received"), hue: "orange", shape: "square", dashed: true },
      ],
      format: bytesPerSecond,
      binary: true,
    },
    { id: "dirty", title: t("chart.dirty"), lines: [{ series: "dirty_bytes", label: t("line.dirty"), hue: "blue", shape: "circle" }], format: bytes, binary: true },
  ];
}

function facts({ report, cluster }: FleetNode): [string, string][] {
  const list: [string, string | undefined][] = [
    [t("node.version"), report?.version],
    [t("node.host"), report?.host],
    [t("node.uptime"), report && span(report.uptime_s)],
    [t("node.io"), report?.io_mode],
    [t("node.memory-max"), report && bytes(report.memory_bytes_max)],
    [t("node.state-folder"), report?.state],
    [t("node.nbd"), report?.nbd.join(", ")],
    [t("node.domain"), cluster?.fault_domain],
    [t("node.addresses"), cluster?.addresses.join(", ")],
  ];
  if (cluster?.compression) {
    const { now, ratio: rate, saved_bytes, reason } = cluster.compression;
    const why = now === "off" && reason ? ` (${reason})` : rate === undefined ? "" : ` (${rate.toFixed(2)}:1)`;
    list.push([t("node.compression"), `${now}${why}, ${t("node.saved", { saved: bytes(saved_bytes) })}`]);
  }
  return list.filter((pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== "");
}

function channelTable(channels: Channel[]): HTMLElement {
  const names = [t("node.addresses"), t("volume.state"), t("node.round-trip"), t("line.sent"), t("line.received")];
  const row = (channel: Channel) =>
    h(
      "tr",
      {},
      h("td", {}, channel.address ?? "–"),
      h("td", {}, badge(channel.phase === "up" ? "good" : "warning", word("channel", channel.phase)), channel.why ? h("div", { class: "weak" }, channel.why) : ""),
      h("td", { class: "figure" }, channel.round_trip_us === undefined ? "–" : latency(channel.round_trip_us)),
      h("td", { class: "figure" }, bytes(channel.sent_bytes)),
      h("td", { class: "figure" }, bytes(channel.received_bytes)),
    );
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": t("node.channels") },
    h("table", {}, h("thead", {}, h("tr", {}, ...names.map((name, index) => h("th", { scope: "col", class: index > 1 ? "figure" : "" }, name)))), h("tbody", {}, ...channels.map(row))),
  );
}

export function nodePage(name: string, range: Range): Page {
  const state = h("span", { class: "state" });
  const actions = h("div");
  const trouble = h("ul", { class: "card degraded plain-list", hidden: true });
  const list = h("dl", { class: "tiles small" });
  const doctor = new DoctorCard(name);
  const channels = h("section", { class: "card", hidden: true, "aria-label": t("node.channels") });
  const volumes = h("section", { class: "card", "aria-label": t("fleet.volumes") });
  const events = h("section", { class: "card", "aria-label": t("events.title") });
  const missing = h("p", { class: "problem", role: "status" });
  let said = "";
  let shownEvents = "";
  const board = new Board(nodePath(name), { kind: "node", name }, specs(), range, () => {
    say(missing, board.figure.problem ?? "");
    const key = board.figure.events.map((event) => event.id).join();
    if (key === shownEvents && events.childElementCount > 0) return;
    shownEvents = key;
    events.replaceChildren(h("h2", {}, t("events.title")), eventTable(board.figure.events, true));
  });

  function show(fleet: Fleet): void {
    const node = fleet.nodes.find((one) => one.name === name);
    if (!node) {
      say(missing, t("node.gone", { node: name }));
      return;
    }
    const { up, evacuation, channels: of = [] } = node.cluster ?? {};
    const words = JSON.stringify([up, evacuation]);
    if (words !== said) {
      said = words;
      state.replaceChildren(nodeBadge(node));
      actions.replaceChildren(nodeActions(node) ?? "");
    }
    const wrong = fleet.degraded.filter((one) => one.node === name).map(degradedLine);
    for (const kept of evacuation?.keeps ?? []) wrong.push(h("li", {}, h("a", { href: `#/volumes/${encodeURIComponent(kept.volume)}` }, kept.volume), ` (${word("role", kept.role)}): ${kept.why}`));
    trouble.hidden = wrong.length === 0;
    trouble.replaceChildren(...wrong);
    doctor.show(node);
    list.replaceChildren(...facts(node).map(([fact, value]) => h("div", {}, h("dt", {}, fact), h("dd", {}, value))));
    channels.hidden = of.length === 0;
    channels.replaceChildren(h("h2", {}, t("node.channels")), channelTable(of));
    const here = fleet.nodes.length === 1 ? fleet.volumes : fleet.volumes.filter((volume) => volume.cluster?.members.some((member) => member.node === name));
    const rows = here.map((volume) => {
      const found = health(volume);
      const role = volume.cluster?.members.find((member) => member.node === name)?.role ?? "owner";
      return h(
        "tr",
        {},
        h("td", {}, h("a", { href: `#/volumes/${encodeURIComponent(volume.name)}` }, volume.name)),
        h("td", {}, word("role", role)),
        h("td", {}, badge(found.health, found.text)),
        h("td", { class: "figure" }, bytes(volume.dirty.bytes)),
      );
    });
    const names = [t("volume.name"), t("node.role"), t("volume.state"), t("chart.dirty")];
    volumes.replaceChildren(
      h("h2", {}, `${t("fleet.volumes")} (${count(here.length)})`),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": t("fleet.volumes") },
        h("table", {}, h("thead", {}, h("tr", {}, ...names.map((one, index) => h("th", { scope: "col", class: index === 3 ? "figure" : "" }, one)))), h("tbody", {}, ...rows)),
      ),
    );
  }

  const now = known();
  if (now) show(now);
  const deaf = listen({ fleet: show });
  return {
    title: name,
    element: h("div", {}, h("header", { class: "page-head" }, h("h1", {}, name), state, actions), trouble, h("section", { class: "card", "aria-label": t("volume.facts") }, list), doctor.element, channels, board.toolbar, missing, board.charts, volumes, events),
    leave() {
      deaf();
      doctor.leave();
      board.leave();
    },
  };
}
