// One chart: lines over time with names that toggle, marks for events, zoom by dragging or keys, and its figures as a table.

import uPlot from "uplot";
import { add, h, say } from "./dom";
import { type Hue, type Shape, colour, isDark, outline } from "./theme";
import type { Happening } from "./types";
import { moment } from "./units";
import { t, word } from "./words";

export interface Line {
  /** Name of the series, as the API has it. */
  series: string;
  label: string;
  hue: Hue;
  shape: Shape;
  dashed?: boolean;
  /** Not drawn until somebody asks for it. */
  off?: boolean;
}

export interface Spec {
  id: string;
  title: string;
  lines: Line[];
  format: (value: number) => string;
  /** Highest value of the axis; none = that of the data. */
  top?: number;
  /** The axis reaches so far at least. */
  least?: number;
  /** The axis is divided by binary units. */
  binary?: boolean;
  /** The axis is divided by whole numbers. */
  whole?: boolean;
  logarithmic?: boolean;
  tall?: boolean;
}

/** What a chart shows: columns over common times. */
export interface Data {
  from: number;
  to: number;
  at: number[];
  avg: Record<string, (number | null)[]>;
  min: Record<string, (number | null)[]>;
  max: Record<string, (number | null)[]>;
}

export interface Zoom {
  to(from: number, to: number): void;
  reset(): void;
}

/** So many lines get a band between their lowest and highest value; more would hide each other. */
const BANDS_MAX = 2;
/** Rows of the table view: what a person can scroll through. */
const ROWS_MAX = 240;
const NAMED_EVERY_MS = 10_000;
/** Distance between two shapes on a line, in CSS pixels. */
const SHAPE_GAP = 90;
const DASH = [6, 4];
const MARKS: Record<Happening["severity"], [Shape, Hue]> = { info: ["circle", "gray"], warning: ["triangle", "orange"], error: ["square", "orange"] };

/** The drawing of a line beside its name. */
export function swatch(line: Pick<Line, "hue" | "shape" | "dashed">): SVGSVGElement {
  const svg = "http://www.w3.org/2000/svg";
  const made = document.createElementNS(svg, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 28 12", width: "28", height: "12", "aria-hidden": "true" })) made.setAttribute(name, value);
  const stroke = document.createElementNS(svg, "path");
  stroke.setAttribute("d", "M0 6H28");
  stroke.setAttribute("stroke", colour(line.hue));
  stroke.setAttribute("stroke-width", "2");
  if (line.dashed) stroke.setAttribute("stroke-dasharray", DASH.join(" "));
  const shape = document.createElementNS(svg, "polygon");
  shape.setAttribute("points", outline(line.shape, 14, 6, 5).map((point) => point.join(",")).join(" "));
  shape.setAttribute("fill", colour(line.hue));
  made.append(stroke, shape);
  return made;
}

function fillShape(context: CanvasRenderingContext2D, shape: Shape, x: number, y: number, r: number): void {
  context.beginPath();
  for (const [px, py] of outline(shape, x, y, r)) context.lineTo(px, py);
  context.closePath();
  context.fill();
}

/** Names of times that get shorter as the range gets shorter; never a date where all is of one day. */
function times(splits: number[], from: number, to: number): string[] {
  const seconds = to - from;
  return splits.map((at) => {
    const date = new Date(at * 1000);
    const two = (value: number) => String(value).padStart(2, "0");
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
    if (seconds <= 1800) return `${clock}:${two(date.getSeconds())}`;
    if (seconds <= 100_000) return clock;
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return date.getHours() === 0 && date.getMinutes() === 0 ? day : `${day} ${clock}`;
  });
}

const WHOLE_STEPS = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

export class Chart {
  readonly element: HTMLElement;
  #spec: Spec;
  #zoom: Zoom;
  #plot: uPlot | undefined;
  #box: HTMLElement;
  #readout: HTMLElement;
  #spoken: HTMLElement;
  #buttons: { button: HTMLButtonElement; value: HTMLElement }[] = [];
  #shown: boolean[];
  #table: HTMLElement;
  #tableButton: HTMLButtonElement;
  #tableAt = 0;
  #namedAt = -NAMED_EVERY_MS;
  #data: Data = { from: 0, to: 1, at: [], avg: {}, min: {}, max: {} };
  #events: Happening[] = [];
  #visible = false;
  #stale = true;
  #observers: { disconnect(): void }[];
  #frame = 0;

  constructor(spec: Spec, zoom: Zoom) {
    this.#spec = spec;
    this.#zoom = zoom;
    this.#shown = spec.lines.map((line) => !line.off);
    this.#box = h("div", {
      class: spec.tall ? "plot tall" : "plot",
      tabindex: 0,
      role: "application",
      "aria-roledescription": t("chart.role"),
      keydown: (event) => this.#key(event as KeyboardEvent),
    });
    this.#readout = h("div", { class: "readout" });
    this.#spoken = h("div", { class: "unseen", "aria-live": "polite" });
    this.#table = h("div", { class: "chart-table", tabindex: 0, role: "region", "aria-label": `${spec.title}: ${t("chart.table")}`, hidden: true });
    this.#tableButton = h("button", { type: "button", class: "plain", "aria-pressed": "false", click: () => this.#toggleTable() }, t("chart.table"));
    this.#tableButton.setAttribute("aria-label", `${spec.title}: ${t("chart.table")}`);
    const legend = h("div", { class: "legend", role: "group", "aria-label": `${spec.title}: ${t("chart.lines")}` });
    spec.lines.forEach((line, index) => legend.append(this.#name(line, index)));
    this.element = h(
      "section",
      { class: spec.tall ? "card chart wide" : "card chart", id: `chart-${spec.id}`, "aria-label": spec.title },
      h("header", {}, h("h3", {}, spec.title), this.#tableButton),
      legend,
      this.#box,
      this.#readout,
      this.#table,
      this.#spoken,
    );
    // What is not on the screen is drawn when it comes there.
    const seen = new IntersectionObserver((entries) => {
      this.#visible = entries.some((entry) => entry.isIntersecting);
      if (this.#visible && this.#stale) this.#draw();
    }, { rootMargin: "100px" });
    seen.observe(this.element);
    const sized = new ResizeObserver(() => this.#resize());
    sized.observe(this.#box);
    this.#observers = [seen, sized];
  }

  destroy(): void {
    for (const observer of this.#observers) observer.disconnect();
    cancelAnimationFrame(this.#frame);
    this.#plot?.destroy();
    this.#plot = undefined;
  }

  /** Shows other figures. */
  update(data: Data, events: Happening[]): void {
    this.#data = data;
    // What is worse is drawn over what is better.
    const rank = Object.keys(MARKS);
    this.#events = [...events].sort((a, b) => rank.indexOf(a.severity) - rank.indexOf(b.severity));
    this.#stale = true;
    if (this.#visible) this.#draw();
  }

  #name(line: Line, index: number): HTMLElement {
    const value = h("span", { class: "value" });
    const button = h(
      "button",
      { type: "button", "aria-pressed": String(!line.off), "data-series": line.series, click: () => this.#toggle(index) },
      swatch(line),
      h("span", {}, line.label),
      value,
    );
    this.#buttons.push({ button, value });
    return button;
  }

  #toggle(index: number): void {
    const shown = !this.#shown[index];
    this.#shown[index] = shown;
    this.#buttons[index]?.button.setAttribute("aria-pressed", String(shown));
    if (!this.#plot) return;
    this.#plot.setSeries(index + 1, { show: shown });
    this.#table.hidden || this.#fillTable();
  }

  #toggleTable(): void {
    const open = this.#table.hidden;
    this.#table.hidden = !open;
    this.#box.hidden = open;
    this.#readout.hidden = open;
    this.#tableButton.setAttribute("aria-pressed", String(open));
    if (open) this.#fillTable();
    else this.#draw();
  }

  #fillTable(): void {
    const { at, avg } = this.#data;
    const lines = this.#spec.lines.filter((_, index) => this.#shown[index]);
    const head = h("tr", {}, h("th", { scope: "col" }, t("chart.time")));
    for (const line of lines) add(head, h("th", { scope: "col" }, line.label));
    const body = h("tbody");
    const withDate = this.#data.to - this.#data.from > 80_000;
    const every = Math.max(1, Math.ceil(at.length / ROWS_MAX));
    for (let row = at.length - 1; row >= 0; row -= every) {
      const tr = h("tr", {}, h("th", { scope: "row" }, moment(at[row] ?? 0, withDate)));
      for (const line of lines) add(tr, h("td", {}, this.#text(avg[line.series]?.[row])));
      body.append(tr);
    }
    this.#table.replaceChildren(h("table", {}, h("thead", {}, head), body));
    this.#tableAt = performance.now();
  }

  #text(value: number | null | undefined): string {
    return value === null || value === undefined ? "–" : this.#spec.format(value);
  }

  #columns(): uPlot.AlignedData {
    const { at, avg, min, max } = this.#data;
    const empty = new Array<null>(at.length).fill(null);
    // A logarithm has no zero.
    const drawn = (column: (number | null)[] | undefined) =>
      this.#spec.logarithmic ? (column ?? empty).map((value) => (value !== null && value > 0 ? value : null)) : (column ?? empty);
    const columns: (number | null)[][] = this.#spec.lines.map((line) => drawn(avg[line.series]));
    if (this.#spec.lines.length <= BANDS_MAX) {
      for (const line of this.#spec.lines) columns.push(drawn(max[line.series]), drawn(min[line.series]));
    }
    return [at, ...columns];
  }

  #draw(): void {
    if (this.#box.hidden) {
      if (performance.now() - this.#tableAt > 5000) this.#fillTable();
      return;
    }
    if (this.#box.clientWidth === 0) return;
    this.#stale = false;
    if (!this.#plot) {
      this.#plot = new uPlot(this.#options(), this.#columns(), this.#box);
    } else {
      // One drawing for both: setData without its own scales, then the range.
      this.#plot.batch(() => {
        this.#plot?.setData(this.#columns(), false);
        this.#plot?.setScale("x", { min: this.#data.from, max: this.#data.to });
      });
    }
    this.#describe();
  }

  #resize(): void {
    const width = this.#box.clientWidth;
    if (width === 0) return;
    if (!this.#plot) {
      if (this.#visible) this.#draw();
    } else if (this.#plot.width !== width) {
      cancelAnimationFrame(this.#frame);
      this.#frame = requestAnimationFrame(() => this.#plot?.setSize({ width, height: this.#height() }));
    }
  }

  #height = (): number => this.#box.clientHeight || 180;

  #options(): uPlot.Options {
    const spec = this.#spec;
    const ink = isDark() ? "#b8c2cc" : "#46505a";
    const grid = isDark() ? "#2a323b" : "#e3e8ed";
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    const none: uPlot.Series.Points = { show: false, filter: () => null };
    // A second between two holes has no line: it is a dot.
    const dots: uPlot.Series.Points = { show: false, size: 4, filter: (plot, index) => alone(plot.data[index] ?? []) };
    const lines: uPlot.Series[] = spec.lines.map((line, index) => ({
      label: line.label,
      stroke: colour(line.hue),
      width: 1.5,
      show: this.#shown[index] ?? true,
      points: dots,
      ...(line.dashed ? { dash: DASH } : {}),
    }));
    const banded = spec.lines.length <= BANDS_MAX;
    const edges: uPlot.Series[] = banded ? spec.lines.flatMap(() => [{ width: 0, points: none }, { width: 0, points: none }]) : [];
    const bands: uPlot.Band[] = banded
      ? spec.lines.map((line, index) => {
          const first = 1 + spec.lines.length + 2 * index;
          return { series: [first, first + 1], fill: `${colour(line.hue)}2e` };
        })
      : [];
    const vertical: uPlot.Scale = spec.logarithmic
      ? { distr: 3, range: (_plot, low, high) => logarithmicRange(low, high) }
      : { range: (_plot, _low, high) => [0, spec.top ?? Math.max(high * 1.08 || 0, spec.least ?? (spec.binary ? 1024 : 0.01))] };
    const values = spec.logarithmic
      ? (_plot: uPlot, splits: number[]) => splits.map((value) => (Number.isInteger(Math.log10(value)) ? spec.format(value) : ""))
      : (_plot: uPlot, splits: number[]) => splits.map((value) => spec.format(value));
    return {
      width: this.#box.clientWidth,
      height: this.#height(),
      legend: { show: false },
      padding: [14, 12, 0, 0],
      scales: { x: { time: true, range: () => [this.#data.from, this.#data.to] }, y: vertical },
      axes: [
        { ...axis, size: 28, space: 70, values: (_plot, splits) => times(splits, this.#data.from, this.#data.to) },
        { ...axis, size: 66, space: 30, values, ...(spec.binary ? { incrs: BINARY_STEPS } : spec.whole ? { incrs: WHOLE_STEPS } : {}) },
      ],
      series: [{}, ...lines, ...edges],
      bands,
      cursor: {
        sync: { key: "time", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        bind: {
          dblclick: () => () => {
            this.#zoom.reset();
            return null;
          },
        },
      },
      hooks: {
        drawSeries: [(plot, index) => this.#drawShapes(plot, index)],
        draw: [(plot) => this.#drawEvents(plot)],
        setCursor: [() => this.#describe()],
        setSelect: [
          (plot) => {
            const { left, width } = plot.select;
            if (width < 5) return;
            const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
            plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            this.#zoom.to(from, to);
          },
        ],
      },
    };
  }

  /** Shapes along a line, at times that stay where they are while the chart moves on. */
  #drawShapes(plot: uPlot, index: number): void {
    const line = this.#spec.lines[index - 1];
    const column = plot.data[index];
    if (!line || !column || !this.#shown[index - 1]) return;
    const { ctx, bbox } = plot;
    const times = plot.data[0];
    const pixels = devicePixelRatio;
    const seconds = ((this.#data.to - this.#data.from) * SHAPE_GAP * pixels) / bbox.width;
    // Lines that lie on each other show their shapes in turn.
    const shift = (seconds * (index - 1)) / Math.max(1, this.#spec.lines.length);
    ctx.save();
    ctx.fillStyle = colour(line.hue);
    let turn = NaN;
    for (let i = 0; i < times.length; i += 1) {
      const value = column[i];
      const at = times[i] ?? 0;
      const now = Math.floor((at - shift) / seconds);
      if (value === null || value === undefined || now === turn) continue;
      const started = !Number.isNaN(turn);
      turn = now;
      const x = plot.valToPos(at, "x", true);
      if (started && x >= bbox.left && x <= bbox.left + bbox.width) fillShape(ctx, line.shape, x, plot.valToPos(value, "y", true), 3.6 * pixels);
    }
    ctx.restore();
  }

  #drawEvents(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const pixels = devicePixelRatio;
    ctx.save();
    ctx.setLineDash([2 * pixels, 3 * pixels]);
    ctx.lineWidth = pixels;
    for (const event of this.#events) {
      const at = Date.parse(event.at) / 1000;
      if (at < this.#data.from || at > this.#data.to) continue;
      const [shape, hue] = MARKS[event.severity];
      const x = Math.round(plot.valToPos(at, "x", true));
      ctx.strokeStyle = ctx.fillStyle = colour(hue);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      fillShape(ctx, shape, x, bbox.top - 6 * pixels, 4.5 * pixels);
    }
    ctx.restore();
  }

  /** Figures at the cursor, else the newest, beside the names; events near the cursor below the chart. */
  #describe(): void {
    const plot = this.#plot;
    if (!plot) return;
    const index = plot.cursor.idx ?? undefined;
    const { at, avg } = this.#data;
    const row = index ?? at.length - 1;
    this.#spec.lines.forEach((line, number) => {
      const value = this.#buttons[number]?.value;
      if (value) say(value, this.#text(avg[line.series]?.[row]));
    });
    let text = "";
    const left = plot.cursor.left;
    if (index !== undefined && left !== undefined && left >= 0) {
      text = moment(at[index] ?? 0, this.#data.to - this.#data.from > 80_000);
      const reach = ((this.#data.to - this.#data.from) * 6) / Math.max(1, plot.over.clientWidth);
      const pointed = plot.posToVal(left, "x");
      const near = this.#events.filter((event) => Math.abs(Date.parse(event.at) / 1000 - pointed) <= reach);
      for (const event of near.slice(0, 3)) text += ` · ${word("severity", event.severity)}: ${event.text}`;
    }
    say(this.#readout, text);
    // Not each second: whoever hears it would never hear it out.
    if (index === undefined && performance.now() - this.#namedAt < NAMED_EVERY_MS) return;
    this.#namedAt = performance.now();
    this.#box.setAttribute("aria-label", `${this.#spec.title}. ${this.#summary(row)}. ${t("chart.keys")}`);
  }

  #summary(row: number): string {
    const { at, avg } = this.#data;
    if (at.length === 0) return t("chart.nothing");
    const parts = this.#spec.lines
      .filter((_, index) => this.#shown[index])
      .map((line) => `${line.label} ${this.#text(avg[line.series]?.[row])}`);
    return `${moment(at[row] ?? 0, false)}: ${parts.join(", ")}`;
  }

  #key(event: KeyboardEvent): void {
    const plot = this.#plot;
    const { at, from, to } = this.#data;
    if (!plot || at.length === 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const row = plot.cursor.idx ?? at.length - 1;
    const middle = at[row] ?? to;
    const quarter = (to - from) / 4;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const step = (event.shiftKey ? 10 : 1) * (event.key === "ArrowLeft" ? -1 : 1);
      const next = Math.max(0, Math.min(at.length - 1, row + step));
      plot.setCursor({ left: plot.valToPos(at[next] ?? to, "x"), top: 10 });
      say(this.#spoken, this.#summary(next));
    } else if (event.key === "+" || event.key === "=") {
      this.#zoom.to(Math.max(from, middle - quarter), Math.min(to, middle + quarter));
    } else if (event.key === "-") {
      this.#zoom.to(from - 2 * quarter, to + 2 * quarter);
    } else if (event.key === "Escape" || event.key === "0") {
      this.#zoom.reset();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Places of values that have no neighbour. */
function alone(column: ArrayLike<number | null | undefined>): number[] {
  const there = (at: number) => column[at] !== null && column[at] !== undefined;
  return Array.from({ length: column.length }, (_, at) => at).filter((at) => there(at) && !there(at - 1) && !there(at + 1));
}

/** Whole powers of ten around the data. */
function logarithmicRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !(low > 0)) return [1, 1000];
  const bottom = 10 ** Math.floor(Math.log10(low));
  const top = 10 ** Math.ceil(Math.log10(high * 1.0001));
  return [bottom, Math.max(top, bottom * 10)];
}
