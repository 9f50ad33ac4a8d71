// Size of requests by latency, reads and writes apart: a table whose cells have a colour and a share, so that neither eyes that see no
// colours nor ears miss anything.

import { ask } from "./api";
import { h } from "./dom";
import type { Heat } from "./types";
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
  return { background: `rgb(${mixed.join(",")})`, ink: isDark() === at > 2.4 ? "#000" : "#fff" };
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
    const shares = Object.entries(heat.sequential ?? {}).filter(([name, share]) => name.endsWith("ratio") && share !== null);
    if (shares.length > 0) {
      nodes.push(h("p", {}, t("heat.sequential", { writes: part(heat, "writes"), reads: part(heat, "reads") })));
    }
    return nodes;
  });
}

function part(heat: Heat, side: "reads" | "writes"): string {
  const share = heat.sequential?.[`${side}_ratio`];
  return share === null || share === undefined ? "–" : ratio(share);
}
