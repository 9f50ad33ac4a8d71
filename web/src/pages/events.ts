// What happened: newest first, by volume and severity, with older ones on demand.

import { ask } from "../api";
import { h, say } from "../dom";
import { WINDOWS, type Window, isWindow } from "../history";
import { known, listen, together } from "../live";
import type { Happening } from "../types";
import { language, t } from "../words";
import { type Page, eventTable } from "./page";

const LIMIT = 500;
const SEVERITIES = ["info", "warning", "error"] as const;

export function eventsPage(query: URLSearchParams): Page {
  let events: Happening[] = [];
  /** Those since the question that is under way was asked: its answer need not have them. */
  let meanwhile: Happening[] | undefined;
  let asked: AbortController | undefined;
  const given = query.get("window");
  let window: Window = isWindow(given) ? given : "1d";
  const content = h("div");
  const problem = h("p", { class: "problem", role: "status" });
  const select = (id: string, label: string, options: [string, string][], chosen: string, changed: () => void) => {
    const made = h("select", { id, change: changed }, ...options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
    return { made, field: h("span", { class: "choices" }, h("label", { for: id }, label), made) };
  };
  const when = select("event-window", t("window.title"), Object.keys(WINDOWS).map((one) => [one, t(`window.${one as Window}`)]), window, () => {
    if (isWindow(when.made.value)) window = when.made.value;
    load();
  });
  const names = [...new Set((known()?.volumes ?? []).map((volume) => volume.name))].sort();
  const volume = select("event-volume", t("events.volume"), [["", t("events.all")], ...names.map((name): [string, string] => [name, name])], query.get("volume") ?? "", () => load());
  const severity = select("event-severity", t("events.at-least"), SEVERITIES.map((one) => [one, t(`severity.${one}`)]), "info", () => show());

  function show(): void {
    const least = SEVERITIES.findIndex((one) => one === severity.made.value);
    content.replaceChildren(eventTable(events.filter((event) => SEVERITIES.indexOf(event.severity) >= least), true));
  }

  function load(): void {
    asked?.abort();
    const own = new AbortController();
    asked = own;
    meanwhile = [];
    const from = Math.floor(Date.now() / 1000 - WINDOWS[window]);
    const of = volume.made.value ? `&volume=${encodeURIComponent(volume.made.value)}` : "";
    ask<{ events: Happening[] }>(`/v1/events?from=${from}&limit=${LIMIT}&language=${language()}${of}`, own.signal).then(
      (answer) => {
        events = together(answer.events, meanwhile ?? []);
        meanwhile = undefined;
        say(problem, "");
        show();
      },
      (error: unknown) => {
        if (!own.signal.aborted) say(problem, error instanceof Error ? error.message : String(error));
      },
    );
  }

  load();
  const deaf = listen({
    event(event) {
      if (volume.made.value && event.volume !== volume.made.value) return;
      meanwhile?.push(event);
      events = together(events, [event]).slice(-LIMIT);
      show();
    },
    back: load,
  });
  return {
    title: t("events.title"),
    element: h("div", {}, h("h1", {}, t("events.title")), h("div", { class: "toolbar" }, when.field, volume.field, severity.field), problem, h("section", { class: "card", "aria-label": t("events.title") }, content)),
    leave() {
      deaf();
      asked?.abort();
    },
  };
}
