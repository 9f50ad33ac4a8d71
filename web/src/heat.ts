// Size of requests by latency, reads and writes apart: a table whose cells have a colour and a share, so that neither eyes that see no
// colours nor ears miss anything.

import { ask } from "./api";
import { h } from "./dom";
import type { Heat, Times } from "./types";
import { bytes, count, latency, ratio } from "./units";
import { isDark } from "./theme";
import { t } from "./words";

type Steps = [number, number, number][];

/** Steps of cividis, which keep their order for every colour vision. */
const DARK: Steps = [
  [0, 34, 78],
  [49, 68, 107],
  [102, 105, 112],
  [149, 143, 120],
  [203, 186, 105],
  [253, 231, 55],
];
/** On a light page little has to be light: one hue, which keeps its order as well. */
const LIGHT: Steps = [
  [238, 244, 249],
  [198, 222, 238],
  [140, 188, 219],
  [74, 144, 194],
  [20, 98, 152],
  [0, 52, 96],
];

/** Shares span orders of magnitude: the root shows what is rare, too. */
function shade(share: number): { background: string; ink: string } {
  const steps = isDark() ? DARK : LIGHT;
  const at = Math.min(1, Math.sqrt(share)) * (steps.length - 1);
  const low = steps[Math.floor(at)] ?? [0, 0, 0];
  const high = steps[Math.ceil(at)] ?? low;
  const mixed = low.map((value, index) => Math.round(value + ((high[index] ?? value) - value) * (at - Math.floor(at))));
  return { background: `rgb(${mixed.join(",")})`, ink: luminance(mixed) > INK_CHANGES_AT ? "#000" : "#fff" };
}

/** Above it black has the greater contrast, below it white: at least 4.5 to 1 either way. */
const INK_CHANGES_AT = 0.179;

/** Of a colour, as the rules for readable pages count it. */
function luminance(rgb: number[]): number {
  const [red = 0, green = 0, blue = 0] = rgb.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function map(title: string, heat: Heat, cells: number[][]): HTMLElement {
  let total = 0;
  let most = 0;
  const bySize = heat.sizes.map((_, size) => (cells[size] ?? []).reduce((all, value) => all + value, 0));
  const byLatency = heat.latencies_us.map((_, slow) => cells.reduce((all, row) => all + (row[slow] ?? 0), 0));
  for (const row of cells) for (const value of row) most = Math.max(most, value);
  for (const value of bySize) total += value;
  const element = h("div", { class: "heat" }, h("h4", {}, title));
  if (total === 0) {
    element.append(h("p", { class: "weak" }, t("chart.nothing")));
    return element;
  }
  // Rows and columns from the first to the last that has something.
  const sizes = heat.sizes.map((_, index) => index).slice(bySize.findIndex(Boolean), bySize.findLastIndex(Boolean) + 1);
  const slow = heat.latencies_us.map((_, index) => index).slice(byLatency.findIndex(Boolean), byLatency.findLastIndex(Boolean) + 1);
  const head = h("tr", {}, h("th", { scope: "col" }, t("heat.latency")), ...sizes.map((size) => h("th", { scope: "col" }, bytes(heat.sizes[size] ?? 0).replace(" ", "\u00a0"))));
  const body = h("tbody");
  for (const row of slow.reverse()) {
    const tr = h("tr", {}, h("th", { scope: "row" }, latency(heat.latencies_us[row] ?? 0)));
    for (const size of sizes) {
      const value = cells[size]?.[row] ?? 0;
      const share = value / total;
      const cell = h("td", {}, value === 0 ? "" : share < 0.001 ? "·" : ratio(share));
      if (value > 0) {
        const { background, ink } = shade(value / most);
        cell.style.background = background;
        cell.style.color = ink;
        cell.title = `${bytes(heat.sizes[size] ?? 0)}, ${latency(heat.latencies_us[row] ?? 0)}: ${count(value)} (${ratio(share)})`;
      }
      tr.append(cell);
    }
    body.append(tr);
  }
  element.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", { class: "cells" }, h("thead", {}, head), body)));
  return element;
}

export interface Section {
  element: HTMLElement;
  show(when: string): void;
  leave(): void;
}

/** A part of the page that has its own question to the API, the newest of which counts. */
export function section(title: string, load: (when: string, signal: AbortSignal) => Promise<Node[]>): Section {
  const content = h("div");
  const element = h("section", { class: "card wide", "aria-label": title }, h("header", {}, h("h3", {}, title)), content);
  let asked: AbortController | undefined;
  return {
    element,
    show(when) {
      asked?.abort();
      const own = new AbortController();
      asked = own;
      load(when, own.signal).then(
        (nodes) => content.replaceChildren(...nodes),
        (error: unknown) => {
          if (!own.signal.aborted) content.replaceChildren(h("p", { class: "weak" }, error instanceof Error ? error.message : String(error)));
        },
      );
    },
    leave: () => asked?.abort(),
  };
}

export function heatSection(path: string): Section {
  return section(t("heat.title"), async (when, signal) => {
    const heat = await ask<Heat>(`${path}/heatmap?${when}`, signal);
    const nodes: Node[] = [h("div", { class: "heats" }, map(t("line.writes"), heat, heat.writes), map(t("line.reads"), heat, heat.reads))];
    const { reads, writes } = heat.sequential;
    const share = (ratio_: number | null) => (ratio_ === null ? "–" : ratio(ratio_));
    nodes.push(h("p", {}, t("heat.sequential", { writes: share(writes.ratio), reads: share(reads.ratio) })), timesTable(heat));
    return nodes;
  });
}

/** Percentiles of all requests of the time that is shown, not of its seconds. */
function timesTable(heat: Heat): HTMLElement {
  const rows: [string, Times][] = [];
  for (const side of ["write", "read"] as const) {
    for (const leg of ["client", "local", "network", "backing"] as const) {
      rows.push([`${t(`side.${side}`)}: ${t(`leg.${leg}`)}`, heat.legs[side][leg]]);
    }
  }
  rows.push([t("heat.flush"), heat.flush], [t("heat.destage"), heat.destage]);
  const heads = [t("heat.what"), t("heat.count"), t("statistic.mean"), t("statistic.p50"), "90 %", "99 %", "99.9 %", t("statistic.max")];
  const body = h("tbody");
  for (const [name, { count: requests, ...times }] of rows) {
    if (requests === 0) continue;
    const figures = [times.mean_us, times.p50_us, times.p90_us, times.p99_us, times.p999_us, times.max_us];
    body.append(h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "figure" }, count(requests)), ...figures.map((us) => h("td", { class: "figure" }, us === null ? "–" : latency(us)))));
  }
  const head = h("tr", {}, ...heads.map((name, index) => h("th", { scope: "col", class: index > 0 ? "figure" : "" }, name)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("heat.times") }, h("table", { class: "times" }, h("caption", {}, t("heat.times")), h("thead", {}, head), body));
}
