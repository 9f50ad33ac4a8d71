// The hit rate that other sizes of the cache would give, by sampling (SHARDS): a curve, and the four sizes people ask for.

import { ask } from "./api";
import { type Section, section } from "./heat";
import { h } from "./dom";
import { colour } from "./theme";
import type { MissRatio } from "./types";
import { bytes, ratio } from "./units";
import { t } from "./words";

const MULTIPLES: [number, string][] = [
  [0.5, "½ ×"],
  [1, "1 ×"],
  [2, "2 ×"],
  [4, "4 ×"],
];

interface Curve {
  now: number;
  points: { cache_bytes: number; hit_ratio: number }[];
}

/** The hit rate at a size, between the points of the curve; none beyond what was watched. */
function hitAt({ points }: Curve, size: number): number | undefined {
  let before: Curve["points"][number] | undefined;
  for (const point of points) {
    if (point.cache_bytes >= size) {
      if (!before || point.cache_bytes === before.cache_bytes) return point.hit_ratio;
      const part = (size - before.cache_bytes) / (point.cache_bytes - before.cache_bytes);
      return before.hit_ratio + part * (point.hit_ratio - before.hit_ratio);
    }
    before = point;
  }
  return undefined;
}

function drawing({ now, points }: Curve): SVGSVGElement {
  const name = "http://www.w3.org/2000/svg";
  const [width, height] = [600, 160];
  const most = Math.max(now * 4, points.at(-1)?.cache_bytes ?? 1);
  const x = (size: number) => (width * Math.min(size, most)) / most;
  const y = (hit: number) => height - height * hit;
  const svg = document.createElementNS(name, "svg");
  const set = (element: Element, attributes: Record<string, string | number>) => {
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  };
  set(svg, { viewBox: `-2 -6 ${width + 4} ${height + 12}`, role: "img", "aria-label": t("miss.title"), class: "curve", preserveAspectRatio: "none" });
  const path = document.createElementNS(name, "polyline");
  const line = [[0, 0], ...points.map((point) => [point.cache_bytes, point.hit_ratio])] as [number, number][];
  set(path, { points: line.map(([size, hit]) => `${x(size).toFixed(1)},${y(hit).toFixed(1)}`).join(" "), fill: "none", stroke: colour("blue"), "stroke-width": 2, "vector-effect": "non-scaling-stroke" });
  const mark = document.createElementNS(name, "line");
  set(mark, { x1: x(now), x2: x(now), y1: 0, y2: height, stroke: colour("gray"), "stroke-dasharray": "4 4", "vector-effect": "non-scaling-stroke" });
  const floor = document.createElementNS(name, "path");
  set(floor, { d: `M0 0V${height}H${width}`, fill: "none", stroke: colour("gray"), "vector-effect": "non-scaling-stroke" });
  svg.append(floor, mark, path);
  return svg;
}

export function missSection(path: string): Section {
  return section(t("miss.title"), async (when, signal) => {
    const miss = await ask<MissRatio>(`${path}/miss-ratio?${when}`, signal);
    const points = miss.points.flatMap(({ cache_bytes, hit_ratio }) => (hit_ratio === null ? [] : [{ cache_bytes, hit_ratio }]));
    if (miss.cache_bytes === null || points.length === 0) return [h("p", { class: "weak" }, t("miss.none"))];
    const curve: Curve = { now: miss.cache_bytes, points };
    const cells = MULTIPLES.map(([multiple, words]) => {
      const hit = hitAt(curve, curve.now * multiple);
      return h("div", {}, h("dt", {}, `${words} (${bytes(curve.now * multiple)})`), h("dd", {}, hit === undefined ? "–" : ratio(hit)));
    });
    if (miss.working_set_bytes !== null) cells.push(h("div", {}, h("dt", {}, t("miss.working-set")), h("dd", {}, bytes(miss.working_set_bytes))));
    return [h("p", { class: "weak" }, t("miss.what")), h("dl", { class: "tiles small" }, ...cells), drawing(curve)];
  });
}
