// What every page is, and the charts of those that have some.

import { Chart, type Spec, type Zoom } from "../chart";
import { h } from "../dom";
import { Figure, type Range, WINDOWS, isWindow, zoomed } from "../history";
import { notice } from "../dialogs";
import type { Happening } from "../types";
import { moment } from "../units";
import { t, word } from "../words";

export interface Page {
  title: string;
  element: HTMLElement;
  /** Stops everything that it has begun. */
  leave(): void;
}

/** The address of this page with another range, so that it can be sent to somebody. */
function setAddress(range: Range): void {
  const [path] = location.hash.split("?");
  const query = "window" in range ? `window=${range.window}` : `from=${range.from}&to=${range.to}`;
  history.replaceState(null, "", `${path}?${query}`);
}

export function rangeOf(query: URLSearchParams): Range {
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  if (from > 0 && to > from) return { from, to };
  const window = query.get("window");
  return { window: isWindow(window) ? window : "10m" };
}

const RANK = { error: 0, warning: 1, info: 2 };
const SIGNS = { error: "■", warning: "▲", info: "●" };

export function eventRow(event: Happening, withVolume: boolean): HTMLElement {
  const volume = event.volume;
  return h(
    "tr",
    { "data-kind": event.kind },
    h("td", {}, h("time", { datetime: event.at }, moment(Date.parse(event.at) / 1000, true))),
    h("td", {}, h("span", { class: `severity ${event.severity}` }, `${SIGNS[event.severity]} ${word("severity", event.severity)}`)),
    withVolume && h("td", {}, volume ? h("a", { href: `#/volumes/${encodeURIComponent(volume)}` }, volume) : (event.node ?? "")),
    h("td", {}, word("kind", event.kind)),
    h("td", {}, event.text),
  );
}

export function eventTable(events: Happening[], withVolume: boolean): HTMLElement {
  if (events.length === 0) return h("p", { class: "weak" }, t("events.none"));
  const names = [t("chart.time"), t("events.severity"), ...(withVolume ? [t("events.where")] : []), t("events.kind"), t("events.text")];
  const newest = [...events].sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || RANK[a.severity] - RANK[b.severity]);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": t("events.title") },
    h(
      "table",
      { class: "events" },
      h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...newest.map((event) => eventRow(event, withVolume))),
    ),
  );
}

/** Charts over one common range, with the windows to choose from. */
export class Board {
  readonly toolbar: HTMLElement;
  readonly charts: HTMLElement;
  readonly figure: Figure;
  #list: Chart[] = [];
  #specs: Spec[];
  #buttons = new Map<string, HTMLButtonElement>();
  #live: HTMLElement;
  #changed: () => void;
  #frame = 0;

  constructor(path: string, mine: { kind: "volume" | "node"; name: string }, specs: Spec[], range: Range, changed: () => void) {
    this.#specs = specs;
    this.#changed = changed;
    this.charts = h("div", { class: "charts" });
    this.figure = new Figure(path, mine, seriesOf(specs), range, () => this.#later());
    this.#live = h("span", { class: "range weak", "aria-live": "polite" });
    const windows = h("div", { class: "segments", role: "group", "aria-label": t("window.title") });
    for (const window of Object.keys(WINDOWS)) {
      if (!isWindow(window)) continue;
      const made = h("button", { type: "button", click: () => this.show({ window }) }, t(`window.${window}`));
      this.#buttons.set(window, made);
      windows.append(made);
    }
    const step = (label: string, sign: string, move: (from: number, to: number) => [number, number]) =>
      h(
        "button",
        {
          type: "button",
          "aria-label": label,
          title: label,
          click: () => {
            const [from, to] = this.#now();
            this.#zoom.to(...move(from, to));
          },
        },
        sign,
      );
    this.toolbar = h(
      "div",
      { class: "toolbar" },
      windows,
      h(
        "div",
        { class: "segments", role: "group", "aria-label": t("zoom.title") },
        step(t("zoom.earlier"), "◀", (from, to) => [from - (to - from) / 2, to - (to - from) / 2]),
        step(t("zoom.out"), "−", (from, to) => [from - (to - from) / 2, to + (to - from) / 2]),
        step(t("zoom.in"), "+", (from, to) => [from + (to - from) / 4, to - (to - from) / 4]),
        step(t("zoom.later"), "▶", (from, to) => [from + (to - from) / 2, to + (to - from) / 2]),
      ),
      this.#live,
    );
    this.rebuild(specs);
    this.#pressed();
    void this.figure.load();
  }

  #zoom: Zoom = {
    to: (from, to) => this.show(zoomed(from, to, this.figure.now)),
    reset: () => {
      const range = this.figure.range;
      if (!("window" in range)) this.show({ window: this.#before });
    },
  };
  /** The window that a zoom began in. */
  #before: keyof typeof WINDOWS = "10m";

  #now(): [number, number] {
    const { range, data, now } = this.figure;
    if (!("window" in range)) return [range.from, range.to];
    return data.at.length > 0 ? [data.from, data.to] : [now - WINDOWS[range.window], now];
  }

  show(range: Range): void {
    if ("window" in this.figure.range) this.#before = this.figure.range.window;
    setAddress(range);
    this.figure.show(range);
    this.#pressed();
  }

  /** Draws other charts: other lines, or the other theme. */
  rebuild(specs: Spec[] = this.#specs): void {
    const more = seriesOf(specs);
    const same = more.join() === seriesOf(this.#specs).join();
    this.#specs = specs;
    for (const chart of this.#list) chart.destroy();
    this.#list = specs.map((spec) => new Chart(spec, this.#zoom));
    this.charts.replaceChildren(...this.#list.map((chart) => chart.element));
    for (const chart of this.#list) chart.update(this.figure.data, this.figure.events);
    if (!same) this.figure.show(this.figure.range, more);
  }

  leave(): void {
    cancelAnimationFrame(this.#frame);
    this.figure.stop();
    for (const chart of this.#list) chart.destroy();
  }

  #pressed(): void {
    const { range } = this.figure;
    const own = "window" in range ? range.window : undefined;
    for (const [window, button] of this.#buttons) button.setAttribute("aria-pressed", String(window === own));
    const back = h("button", { type: "button", click: () => this.#zoom.reset() }, t("zoom.reset"));
    if ("window" in range) this.#live.replaceChildren(range.window === "10m" ? t("window.live") : "");
    else this.#live.replaceChildren(`${moment(range.from, true)} – ${moment(range.to, true)} `, back);
  }

  /** Several changes at once are one drawing. */
  #later(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      for (const chart of this.#list) chart.update(this.figure.data, this.figure.events);
      this.#changed();
    });
  }
}

function seriesOf(specs: Spec[]): string[] {
  return [...new Set(specs.flatMap((spec) => spec.lines.map((line) => line.series)))];
}

/** Runs what may fail, and says so. */
export function tell(work: Promise<unknown>): void {
  work.catch((error: unknown) => {
    if (error instanceof DOMException && error.name === "AbortError") return;
    notice(error instanceof Error ? error.message : String(error), "error");
  });
}
