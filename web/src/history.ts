// The figures behind a page's charts: what the daemon kept, and the newest points as they come.

import { Refused, ask } from "./api";
import type { Data } from "./chart";
import { listen, together } from "./live";
import type { Figures, Happening, History } from "./types";
import { language } from "./words";

export const WINDOWS = { "10m": 600, "1h": 3600, "8h": 28_800, "1d": 86_400, "7d": 604_800 } as const;
export type Window = keyof typeof WINDOWS;
export const isWindow = (word: string | null): word is Window => word !== null && Object.hasOwn(WINDOWS, word);

/** What a page shows: a window that ends now, or a stretch that was zoomed to. */
export type Range = { window: Window } | { from: number; to: number };

const POINTS = 600;
const EVENTS_MAX = 200;
/** Shorter than this shows nothing: the finest step is one second. */
const ZOOM_MIN_S = 10;
/** Coarse windows are asked for again after their step, and so often at most. */
const RELOAD_MIN_S = 10;

export class Figure {
  data: Data = { from: 0, to: 1, at: [], avg: {}, min: {}, max: {} };
  events: Happening[] = [];
  problem: string | undefined;
  #path: string;
  #mine: { kind: "volume" | "node"; name: string };
  #series: string[];
  #range: Range;
  #step = 1;
  #changed: () => void;
  #asked: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #deaf: () => void;
  #latest = 0;
  /** Events since the question that is under way was asked: its answer need not have them. */
  #meanwhile: Happening[] | undefined;

  constructor(path: string, mine: { kind: "volume" | "node"; name: string }, series: string[], range: Range, changed: () => void) {
    this.#path = path;
    this.#mine = mine;
    this.#series = series;
    this.#range = range;
    this.#changed = changed;
    this.#deaf = listen({
      point: (point) => this.#append(point.at, (mine.kind === "volume" ? point.volumes[mine.name] : point.nodes?.[mine.name]) ?? undefined),
      event: (event) => {
        if (!this.#concerns(event) || !("window" in this.#range)) return;
        this.#meanwhile?.push(event);
        this.events = together(this.events, [event]).slice(-EVENTS_MAX);
        this.#changed();
      },
      back: () => void this.load(),
    });
  }

  stop(): void {
    this.#deaf();
    this.#asked?.abort();
    clearTimeout(this.#timer);
  }

  show(range: Range, series: string[] = this.#series): void {
    this.#range = range;
    this.#series = series;
    void this.load();
  }

  get range(): Range {
    return this.#range;
  }

  /** The newest second that anything is known of, by the daemon's clock: this machine's may differ. */
  get now(): number {
    return this.#latest || Date.now() / 1000;
  }

  async load(): Promise<void> {
    this.#asked?.abort();
    clearTimeout(this.#timer);
    const own = new AbortController();
    this.#asked = own;
    this.#meanwhile = [];
    const range = this.#range;
    const when = "window" in range ? `window=${range.window}` : `from=${Math.floor(range.from)}&to=${Math.ceil(range.to)}`;
    try {
      const history = await ask<History>(`${this.#path}/history?${when}&points=${POINTS}&series=${this.#series.join(",")}`, own.signal);
      const of = this.#mine.kind === "volume" ? `&volume=${encodeURIComponent(this.#mine.name)}` : "";
      const events = await ask<{ events: Happening[] }>(
        // A window that ends now has no end here: what is newer than its last point would be left out.
        `/v1/events?from=${Math.floor(history.from)}${"window" in range ? "" : `&to=${Math.ceil(history.to)}`}&limit=${EVENTS_MAX}&language=${language()}${of}`,
        own.signal,
      );
      this.#take(history);
      this.events = together(events.events.filter((event) => this.#concerns(event)), "window" in range ? this.#meanwhile ?? [] : []);
      this.problem = undefined;
    } catch (error) {
      if (own.signal.aborted) return;
      this.problem = error instanceof Error ? error.message : String(error);
      // What is not there now may come: a volume that was just made, or one whose node is away.
      if (!(error instanceof Refused)) return;
    }
    this.#meanwhile = undefined;
    this.#changed();
    if ("window" in range && (this.#step > 1 || this.problem)) {
      this.#timer = setTimeout(() => void this.load(), Math.max(this.#step, RELOAD_MIN_S) * 1000);
    }
  }

  #concerns(event: Happening): boolean {
    return this.#mine.kind === "volume" ? event.volume === this.#mine.name : event.node === undefined || event.node === this.#mine.name;
  }

  #take(history: History): void {
    const data: Data = { from: history.from, to: history.to, at: history.at, avg: {}, min: {}, max: {} };
    for (const [name, column] of Object.entries(history.series)) {
      data.avg[name] = column.avg;
      if (column.min) data.min[name] = column.min;
      if (column.max) data.max[name] = column.max;
    }
    this.data = data;
    this.#step = history.step_s;
    if ("window" in this.#range) this.#latest = Math.max(this.#latest, history.to);
  }

  /** Adds a second to a live window; coarser steps are made by the daemon and asked for. */
  #append(at: number, figures: Figures | undefined): void {
    this.#latest = Math.max(this.#latest, at);
    const { data } = this;
    if (!("window" in this.#range) || this.#step > 1 || !figures) return;
    const last = data.at.at(-1);
    if (last !== undefined && at <= last) {
      // The answer to the question had this second already, but perhaps not yet what was in it.
      const known = data.at.lastIndexOf(at);
      for (const name of this.#series) {
        const column = data.avg[name];
        if (column && known >= 0) column[known] ??= figures[name] ?? null;
      }
      this.#changed();
      return;
    }
    const first = at - WINDOWS[this.#range.window];
    const gone = data.at.findIndex((time) => time >= first);
    // A hole in what was recorded stays a hole in the line.
    const hole = last !== undefined && at - last > 2;
    const columns: (number | null)[][] = this.#series.map((name) => (data.avg[name] ??= new Array<null>(data.at.length).fill(null)));
    if (hole) {
      data.at.push(last + 1);
      for (const column of columns) column.push(null);
    }
    data.at.push(at);
    this.#series.forEach((name, index) => columns[index]?.push(figures[name] ?? null));
    if (gone > 0) {
      data.at.splice(0, gone);
      for (const column of columns) column.splice(0, gone);
    }
    data.min = {};
    data.max = {};
    data.from = first;
    data.to = at;
    this.events = this.events.filter((event) => Date.parse(event.at) / 1000 >= first);
    this.#changed();
  }
}

/** A range that was zoomed to, made sensible. */
export function zoomed(from: number, to: number, now: number): Range {
  const middle = (from + to) / 2;
  const half = Math.max(ZOOM_MIN_S, to - from) / 2;
  const end = Math.min(now, Math.ceil(middle + half));
  return { from: Math.floor(Math.min(middle - half, end - ZOOM_MIN_S)), to: end };
}
