// The fleet at a glance: what is degraded and why, the sums, every volume, every node.

import { doctorCount } from "../doctor";
import { h, say } from "../dom";
import { known, listen } from "../live";
import { badge, degradedLine, health, nodeBadge } from "../status";
import type { Figures, Fleet, FleetNode, Volume } from "../types";
import { bytes, bytesPerSecond, count, latency, perSecond, ratio, span } from "../units";
import { t, word } from "../words";
import type { Page } from "./page";

interface Column {
  key: string;
  title: string;
  text: (volume: Volume, now: Figures) => string | Node;
  sort: (volume: Volume, now: Figures) => number | string;
  /** Numbers stand to the right, and change each second. */
  figure?: boolean;
  /** Left out where there is little room. */
  wide?: boolean;
}

const shown = (value: number | null | undefined, format: (value: number) => string): string =>
  value === null || value === undefined ? "–" : format(value);
const or0 = (value: number | null | undefined): number => value ?? -1;

function columns(): Column[] {
  const figure = (key: string, title: string, series: string, format: (value: number) => string, wide = false): Column => ({
    key,
    title,
    figure: true,
    wide,
    text: (_, now) => shown(now[series], format),
    sort: (_, now) => or0(now[series]),
  });
  return [
    {
      key: "name",
      title: t("volume.name"),
      text: (volume) => h("a", { href: `#/volumes/${encodeURIComponent(volume.name)}` }, volume.name),
      sort: (volume) => volume.name,
    },
    {
      key: "state",
      title: t("volume.state"),
      text: (volume) => {
        const found = health(volume);
        return badge(found.health, found.text);
      },
      sort: (volume) => ({ error: 0, warning: 1, good: 2 })[health(volume).health],
    },
    {
      key: "policy",
      title: t("volume.policy"),
      text: (volume) => policyText(volume),
      sort: (volume) => policyText(volume),
      wide: true,
    },
    figure("write", t("fleet.write-latency"), "write_client_us", latency),
    figure("read", t("fleet.read-latency"), "read_client_us", latency, true),
    {
      key: "iops",
      title: t("chart.iops"),
      figure: true,
      text: (_, now) => shown(sum(now, "read_iops", "write_iops"), perSecond),
      sort: (_, now) => or0(sum(now, "read_iops", "write_iops")),
    },
    {
      key: "throughput",
      title: t("chart.throughput"),
      figure: true,
      wide: true,
      text: (_, now) => shown(sum(now, "read_bytes_per_s", "write_bytes_per_s"), bytesPerSecond),
      sort: (_, now) => or0(sum(now, "read_bytes_per_s", "write_bytes_per_s")),
    },
    figure("hits", t("chart.hits"), "read_hit_ratio", ratio, true),
    {
      key: "dirty",
      title: t("chart.dirty"),
      figure: true,
      text: (volume, now) => bytes(now["dirty_bytes"] ?? volume.dirty.bytes),
      sort: (volume, now) => now["dirty_bytes"] ?? volume.dirty.bytes,
    },
    {
      key: "drain",
      title: t("fleet.drain"),
      figure: true,
      wide: true,
      text: (volume, now) => shown(now["drain_s"] ?? volume.dirty.drain_s, span),
      sort: (volume, now) => or0(now["drain_s"] ?? volume.dirty.drain_s),
    },
  ];
}

export function policyText(volume: Volume): string {
  const peers = volume.cluster && volume.policy.effective === "back" ? `+${volume.cluster.peers}` : "";
  return `${word("policy", volume.policy.effective)}${peers}`;
}

function sum(now: Figures, ...names: string[]): number | undefined {
  let total: number | undefined;
  for (const name of names) {
    const value = now[name];
    if (value !== null && value !== undefined) total = (total ?? 0) + value;
  }
  return total;
}

export function fleetPage(): Page {
  const list = columns();
  let sortBy = "name";
  let down = false;
  let wanted = "";
  const rows = new Map<string, { row: HTMLTableRowElement; cells: HTMLTableCellElement[]; words: string }>();
  const now = new Map<string, Figures>();

  const degraded = h("section", { class: "card", "aria-labelledby": "degraded-title" });
  const tiles = h("dl", { class: "tiles" });
  const body = h("tbody");
  const heads = list.map((column) => {
    const button = h("button", { type: "button", class: "sort", click: () => sort(column.key) }, column.title);
    return h("th", { scope: "col", class: classes(column) }, button);
  });
  const filter = h("input", { type: "search", id: "filter", placeholder: t("fleet.filter"), "aria-label": t("fleet.filter"), input: () => { wanted = filter.value.toLowerCase(); place(); } });
  const empty = h("p", { class: "weak" });
  const volumes = h(
    "section",
    { class: "card", "aria-labelledby": "volumes-title" },
    h("header", {}, h("h2", { id: "volumes-title" }, t("fleet.volumes")), filter),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("fleet.volumes") }, h("table", { class: "volumes" }, h("thead", {}, h("tr", {}, ...heads)), body)),
    empty,
  );
  const nodes = h("section", { class: "card", "aria-labelledby": "nodes-title" });
  const element = h("div", {}, h("h1", { class: "unseen" }, t("fleet.title")), degraded, tiles, volumes, nodes);

  function classes(column: Column): string {
    return [column.figure ? "figure" : "", column.wide ? "roomy" : ""].join(" ").trim();
  }

  function sort(key: string): void {
    down = sortBy === key ? !down : key !== "name" && key !== "state";
    sortBy = key;
    place();
  }

  /** Puts rows in order. They keep their order while figures change: what moves under the pointer cannot be clicked. */
  function place(): void {
    list.forEach((column, index) => {
      if (column.key === sortBy) heads[index]?.setAttribute("aria-sort", down ? "descending" : "ascending");
      else heads[index]?.removeAttribute("aria-sort");
    });
    const column = list.find((one) => one.key === sortBy);
    if (!column) return;
    const keyed = (known()?.volumes ?? [])
      .filter((volume) => volume.name.toLowerCase().includes(wanted))
      .map((volume) => ({ volume, key: column.sort(volume, now.get(volume.name) ?? {}) }));
    keyed.sort((a, b) => {
      const order = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : String(a.key).localeCompare(String(b.key));
      return (down ? -order : order) || a.volume.name.localeCompare(b.volume.name);
    });
    body.replaceChildren(...keyed.flatMap(({ volume }) => rows.get(volume.name)?.row ?? []));
    say(empty, (known()?.volumes.length ?? 0) === 0 ? t("fleet.no-volumes") : keyed.length === 0 ? t("fleet.no-match") : "");
  }

  function figures(volume: Volume): void {
    const row = rows.get(volume.name);
    if (!row) return;
    const latest = now.get(volume.name) ?? {};
    list.forEach((column, index) => {
      const cell = row.cells[index];
      if (!cell || !column.figure) return;
      const text = column.text(volume, latest);
      if (typeof text === "string") say(cell, text);
    });
  }

  function words(volume: Volume): void {
    let row = rows.get(volume.name);
    if (!row) {
      const cells = list.map((column) => h("td", { class: classes(column), "data-column": column.key }));
      row = { row: h("tr", {}, ...cells), cells, words: "" };
      rows.set(volume.name, row);
    }
    const found = health(volume);
    const says = `${found.health} ${found.text} ${policyText(volume)}`;
    if (row.words !== says) {
      row.words = says;
      list.forEach((column, index) => {
        if (!column.figure) row.cells[index]?.replaceChildren(column.text(volume, {}));
      });
    }
    figures(volume);
  }

  function showDegraded(fleet: Fleet): void {
    const list = fleet.degraded;
    degraded.className = list.length > 0 ? "card degraded" : "card";
    degraded.replaceChildren(
      h("h2", { id: "degraded-title" }, t("fleet.degraded")),
      list.length === 0 ? h("p", {}, badge("good", t("fleet.all-well"))) : h("ul", { class: "plain-list" }, ...list.map(degradedLine)),
    );
  }

  function showTiles(fleet: Fleet): void {
    const total = (name: string, from: (volume: Volume) => number | null | undefined) =>
      fleet.volumes.reduce((all, volume) => all + (now.get(volume.name)?.[name] ?? from(volume) ?? 0), 0);
    const none = () => 0;
    const facts: [string, string][] = [
      [t("fleet.nodes"), count(fleet.nodes.length)],
      [t("fleet.volumes"), count(fleet.volumes.length)],
      [t("chart.dirty"), bytes(total("dirty_bytes", (volume) => volume.dirty.bytes))],
      [t("line.writes"), perSecond(total("write_iops", none))],
      [t("line.reads"), perSecond(total("read_iops", none))],
      [t("line.written"), bytesPerSecond(total("write_bytes_per_s", none))],
      [t("line.read"), bytesPerSecond(total("read_bytes_per_s", none))],
      [t("chart.destage"), bytesPerSecond(total("destage_bytes_per_s", (volume) => volume.dirty.destage_bytes_per_s))],
    ];
    if (tiles.childElementCount !== facts.length) {
      tiles.replaceChildren(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    } else {
      facts.forEach(([, value], index) => {
        const place = tiles.children[index]?.lastElementChild;
        if (place) say(place, value);
      });
    }
  }

  function nodeRow(node: FleetNode, fleet: Fleet): HTMLElement {
    const owned = fleet.volumes.filter((volume) => volume.cluster?.owner === node.name).length;
    return h(
      "tr",
      {},
      h("td", {}, h("a", { href: `#/nodes/${encodeURIComponent(node.name)}` }, node.name), node.own && fleet.nodes.length > 1 ? ` ${t("node.own")}` : ""),
      h("td", {}, nodeBadge(node)),
      h("td", {}, doctorCount(node)),
      h("td", { class: "figure" }, count(fleet.nodes.length === 1 ? fleet.volumes.length : owned)),
      h("td", { class: "roomy" }, node.cluster?.fault_domain ?? "–"),
      h("td", { class: "roomy" }, node.report?.version ?? "–"),
      h("td", { class: "figure roomy" }, node.report === undefined ? "–" : span(node.report.uptime_s)),
    );
  }

  function showNodes(fleet: Fleet): void {
    const heads: [string, string][] = [
      [t("volume.name"), ""],
      [t("volume.state"), ""],
      [t("doctor.column"), ""],
      [fleet.nodes.length === 1 ? t("fleet.volumes") : t("node.owned"), "figure"],
      [t("node.domain"), "roomy"],
      [t("node.version"), "roomy"],
      [t("node.uptime"), "figure roomy"],
    ];
    nodes.replaceChildren(
      h("h2", { id: "nodes-title" }, t("fleet.nodes")),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": t("fleet.nodes") },
        h("table", {}, h("thead", {}, h("tr", {}, ...heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), h("tbody", {}, ...fleet.nodes.map((node) => nodeRow(node, fleet)))),
      ),
    );
  }

  function show(fleet: Fleet): void {
    for (const volume of fleet.volumes) {
      if (volume.now) now.set(volume.name, volume.now);
      words(volume);
    }
    const there = new Set(fleet.volumes.map((volume) => volume.name));
    const gone = [...rows.keys()].filter((name) => !there.has(name));
    for (const name of gone) {
      rows.get(name)?.row.remove();
      rows.delete(name);
      now.delete(name);
    }
    if (body.childElementCount !== rows.size || gone.length > 0) place();
    showDegraded(fleet);
    showTiles(fleet);
    showNodes(fleet);
  }

  const first = known();
  if (first) show(first);
  place();
  const leave = listen({
    fleet: show,
    point(point) {
      const fleet = known();
      if (!fleet) return;
      for (const [name, figures] of Object.entries(point.volumes)) now.set(name, figures);
      for (const volume of fleet.volumes) figures(volume);
      showTiles(fleet);
    },
  });
  return { title: t("fleet.title"), element, leave };
}
