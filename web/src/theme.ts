// Dark and light, and the colours of lines: Okabe and Ito's, which people of every colour vision can tell apart. A line is never
// told by its colour alone: legs have a shape each, and reads are dashed.

export type Theme = "auto" | "light" | "dark";

const kept = localStorage.getItem("theme");
let wanted: Theme = kept === "light" || kept === "dark" ? kept : "auto";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export const theme = (): Theme => wanted;
export const isDark = (): boolean => (wanted === "auto" ? system.matches : wanted === "dark");

function apply(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  for (const listener of listeners) listener();
}

export function setTheme(next: Theme): void {
  wanted = next;
  if (next === "auto") localStorage.removeItem("theme");
  else localStorage.setItem("theme", next);
  apply();
}

export function onTheme(listener: () => void): void {
  listeners.add(listener);
}

system.addEventListener("change", apply);
apply();

export type Hue = "blue" | "green" | "purple" | "orange" | "gray";
export type Shape = "circle" | "triangle" | "square" | "diamond";

/** Each has at least 3 to 1 against its background. */
const HUES: Record<Hue, [light: string, dark: string]> = {
  blue: ["#0072b2", "#56b4e9"],
  green: ["#00835f", "#2fc59a"],
  purple: ["#b4588c", "#e09bc4"],
  orange: ["#d55e00", "#e69f00"],
  gray: ["#5b6570", "#9aa7b4"],
};

export const colour = (hue: Hue): string => HUES[hue][isDark() ? 1 : 0];

/** The outline of a shape around a point, for a canvas and for the drawing beside a line's name. */
export function outline(shape: Shape, x: number, y: number, r: number): [number, number][] {
  if (shape === "triangle") return [[x, y - r], [x + r, y + r * 0.8], [x - r, y + r * 0.8]];
  if (shape === "square") return [[x - r * 0.8, y - r * 0.8], [x + r * 0.8, y - r * 0.8], [x + r * 0.8, y + r * 0.8], [x - r * 0.8, y + r * 0.8]];
  if (shape === "diamond") return [[x, y - r * 1.1], [x + r * 1.1, y], [x, y + r * 1.1], [x - r * 1.1, y]];
  return Array.from({ length: 12 }, (_, i) => [x + r * 0.9 * Math.cos((i * Math.PI) / 6), y + r * 0.9 * Math.sin((i * Math.PI) / 6)]);
}
