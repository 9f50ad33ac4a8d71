// Figures for people, in the chosen language's way of writing numbers.

import { language } from "./words";

const formats = new Map<string, Intl.NumberFormat>();

function number(value: number, digits: number): string {
  const key = `${language()}/${digits}`;
  let format = formats.get(key);
  if (!format) {
    format = new Intl.NumberFormat(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits });
    formats.set(key, format);
  }
  return format.format(value);
}

/** Three digits that count: 0.12, 1.23, 12.3, 123. */
function three(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  return number(value, size < 10 ? 2 : size < 100 ? 1 : 0);
}

const SIZES = ["B", "K", "M", "G", "T", "P"];

/** Binary units, as everywhere in Forebay: 1 K = 1024. */
export function bytes(value: number): string {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const text = unit === 0 || Number.isInteger(value) ? number(Math.round(value), 0) : three(value);
  return `${text} ${SIZES[unit]}`;
}

export const bytesPerSecond = (value: number): string => `${bytes(value)}/s`;

export const perSecond = (value: number): string => `${value > 0 && value < 10 ? number(value, 1) : number(value, 0)}/s`;

export const ratio = (value: number): string => `${number(100 * value, 1)} %`;

export const count = (value: number): string => number(value, Number.isInteger(value) ? 0 : 1);

/** What the doctor says has a unit: decimal, as lines, slots and clocks are sold. */
export function quantity(value: number, unit: string): string {
  if (unit === "s") return value < 1 ? latency(1e6 * value) : span(value);
  if (unit === "1") return `${significant(100 * value)} %`;
  if (unit === "1/s") return `${significant(value)}/s`;
  if (!["B", "B/s", "Hz"].includes(unit)) return `${significant(value)} ${unit}`;
  const prefixes = ["", "k", "M", "G", "T"];
  let prefix = 0;
  while (Math.abs(value) >= 1000 && prefix < prefixes.length - 1) {
    value /= 1000;
    prefix += 1;
  }
  return `${significant(value)} ${prefixes[prefix]}${unit}`;
}

const significant = (value: number): string => value.toLocaleString(language(), { maximumSignificantDigits: 3 });

/** A latency given in microseconds. */
export function latency(us: number): string {
  if (us < 1000) return `${number(us, 0)} µs`;
  if (us < 1e6) return `${three(us / 1000)} ms`;
  return `${three(us / 1e6)} s`;
}

/** A time span given in seconds. */
export function span(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 120) return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${number(Math.round(seconds / 60), 0)} min`;
  if (seconds < 172800) return `${number(seconds / 3600, 1)} h`;
  return `${number(seconds / 86400, 1)} d`;
}

/** Local time of a moment given in unix seconds. */
export function moment(seconds: number, withDate: boolean): string {
  const time: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const date: Intl.DateTimeFormatOptions = { year: "numeric", month: "2-digit", day: "2-digit" };
  return new Date(seconds * 1000).toLocaleString(language(), withDate ? { ...date, ...time } : time);
}
