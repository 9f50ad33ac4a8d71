// What bounds a node's host, as its doctor says: worst first, each finding with what shows it, its number and what helps.

import { ask } from "./api";
import { h, say } from "./dom";
import { badge } from "./status";
import type { Doctor, Finding, FleetNode, Remedy } from "./types";
import { moment, quantity, span } from "./units";
import { language, t, word } from "./words";

/** A new look waits for the one that is under way, and either may hang at a device for a minute before it is given up. */
const LOOK_MAX_MS = 130_000;
/** Sources, and files that are written, of which the page names so many; a host of 64 cores has 64. */
const LISTED_MAX = 4;

const SIGNS = { error: "■", warning: "▲", note: "●" } as const;

const mark = (severity: Finding["severity"], text: string): HTMLElement =>
  h("span", { class: `badge ${severity}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[severity]} `), text);

/** How many findings a node has, by the worst severity: a link to them. */
export function doctorCount(node: FleetNode): HTMLElement {
  if (!node.own) return h("span", { class: "weak" }, t("doctor.there"));
  const doctor = node.report?.doctor;
  const link = (...shown: HTMLElement[]) => h("a", { href: `#/nodes/${encodeURIComponent(node.name)}`, class: "findings-count" }, ...shown);
  if (doctor?.problem) return link(badge("warning", t("doctor.failed-short")));
  if (!doctor?.at) return h("span", { class: "weak" }, t("doctor.not-yet-short"));
  const counts = [
    ["error", doctor.errors],
    ["warning", doctor.warnings],
    ["note", doctor.notes],
  ] as const;
  const some = counts.filter(([, count]) => count > 0);
  if (some.length === 0) return badge("good", t("doctor.none-short"));
  return link(...some.map(([severity, count]) => mark(severity, t(`doctor.count.${severity}`, { count }))));
}

/** The card of a node's page. */
export class DoctorCard {
  readonly element: HTMLElement;
  #when = h("span", { class: "weak" });
  #again = h("button", { type: "button", hidden: true, click: () => this.#asked ?? this.#load(true) }, t("doctor.look"));
  #problem = h("p", { class: "problem", role: "status" });
  #body = h("div", { class: "findings" });
  #asked: AbortController | undefined;
  /** When the look ended that is shown, or asked for. */
  #at: string | undefined;
  /** What is shown, to leave it alone where a new look says the same. */
  #said = "";
  /** What the person has folded and unfolded. */
  #open = new Map<string, boolean>();
  /** Why the daemon could not be asked. */
  #unasked: string | undefined;

  constructor(readonly name: string) {
    this.element = h(
      "section",
      { class: "card doctor", "aria-labelledby": "doctor-title" },
      h("header", {}, h("h2", { id: "doctor-title" }, t("doctor.title")), h("span", { class: "choices" }, this.#when, this.#again)),
      this.#problem,
      this.#body,
    );
    this.#tell(t("doctor.loading"));
  }

  /** What the fleet knows of the node now; asks for the findings where they are new. */
  show(node: FleetNode): void {
    if (!node.own) {
      this.#tell(t("doctor.elsewhere", { node: this.name }));
      return;
    }
    const doctor = node.report?.doctor;
    this.#again.hidden = false;
    this.#trouble(doctor);
    if (doctor?.at === undefined) {
      if (!this.#asked && this.#at === undefined) this.#tell(t("doctor.not-yet"));
    } else if (doctor.at !== this.#at && !this.#asked) {
      this.#load(false);
    }
  }

  leave(): void {
    this.#asked?.abort();
  }

  #trouble(doctor: { problem?: string } | undefined): void {
    const why = doctor?.problem ?? this.#unasked;
    say(this.#problem, why === undefined ? "" : t("doctor.failed", { why }));
  }

  #tell(words: string): void {
    if (this.#said === words) return;
    this.#said = words;
    this.#body.replaceChildren(h("p", { class: "weak" }, words));
  }

  #load(fresh: boolean): void {
    this.#asked?.abort();
    const own = new AbortController();
    this.#asked = own;
    this.#busy(true);
    ask<Doctor>(`/v1/doctor?language=${language()}${fresh ? "&fresh=true" : ""}`, own.signal, fresh ? LOOK_MAX_MS : undefined)
      .then(
        (doctor) => {
          this.#at = doctor.at;
          this.#unasked = undefined;
          this.#trouble(doctor);
          this.#render(doctor);
        },
        (error: unknown) => {
          if (own.signal.aborted) return;
          this.#unasked = error instanceof Error ? error.message : String(error);
          this.#trouble(undefined);
          if (this.#at === undefined) this.#tell(t("doctor.nothing"));
        },
      )
      .finally(() => {
        if (this.#asked !== own) return;
        this.#asked = undefined;
        this.#busy(false);
      });
  }

  #busy(busy: boolean): void {
    this.element.setAttribute("aria-busy", String(busy));
    this.#again.setAttribute("aria-disabled", String(busy));
    say(this.#again, t(busy ? "doctor.looking" : "doctor.look"));
  }

  #render(doctor: Doctor): void {
    say(this.#when, t("doctor.looked", { at: moment(Date.parse(doctor.at) / 1000, true), took: span(doctor.took_s) }));
    const said = JSON.stringify([doctor.findings, doctor.fine, doctor.hidden]);
    if (said === this.#said) return;
    this.#said = said;
    const blind = new Set(doctor.hidden.map(({ check }) => check)).size;
    const none = blind === 0 ? badge("good", t("doctor.none")) : t("doctor.none-seen", { count: blind });
    const hidden = [...new Set(doctor.hidden.map(({ what, how }) => `${what} (${how})`))];
    this.#body.replaceChildren(
      doctor.findings.length === 0 ? h("p", {}, none) : h("ul", { class: "plain-list" }, ...doctor.findings.map((finding) => this.#finding(finding))),
      this.#more("fine", t("doctor.fine", { count: doctor.fine.length }), doctor.fine.map((fine) => fine.says)),
      this.#more("hidden", t("doctor.hidden", { count: hidden.length }), hidden),
    );
  }

  /** Something folded, which stays as the person leaves it. */
  #folded(key: string, open: boolean, summary: HTMLElement, ...content: HTMLElement[]): HTMLElement {
    const made = h("details", { open: this.#open.get(key) ?? open, toggle: () => this.#open.set(key, made.open) }, summary, ...content);
    return made;
  }

  #more(key: string, title: string, lines: string[]): HTMLElement {
    if (lines.length === 0) return h("span");
    return this.#folded(key, false, h("summary", { "data-part": key }, title), h("ul", {}, ...lines.map((line) => h("li", {}, line))));
  }

  /** A note is folded: it costs little. */
  #finding(finding: Finding): HTMLElement {
    const facts: [string, (Node | string)[]][] = [];
    if (finding.number) {
      const { is, could_be, unit } = finding.number;
      facts.push([t("doctor.number"), [t("doctor.number-of", { is: quantity(is, unit), could_be: quantity(could_be, unit) })]]);
    }
    const evidence = finding.evidence.map(({ source, value }) => h("div", {}, h("code", {}, source), ": ", h("code", { class: "value" }, value)));
    facts.push([t("doctor.evidence"), [...evidence.slice(0, LISTED_MAX), rest(evidence.length)]]);
    const remedies = finding.remedies ?? [];
    if (remedies.length > 0) facts.push([t("doctor.remedy"), remedies.map((remedy, index) => help(finding.id, remedy, finding.help[index] ?? ""))]);
    facts.push([t("doctor.confidence"), [word("confidence", finding.confidence)]]);
    facts.push([t("doctor.since"), [h("time", { datetime: finding.since }, moment(Date.parse(finding.since) / 1000, true))]]);
    const list = h("dl", {}, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value))));
    const summary = h("summary", {}, mark(finding.severity, word("severity", finding.severity)), " ", finding.says);
    return h("li", { "data-finding": finding.id, class: finding.severity }, this.#folded(finding.id, finding.severity !== "note", summary, list));
  }
}

const rest = (count: number): string => (count > LISTED_MAX ? t("doctor.more", { count: count - LISTED_MAX }) : "");

/** What helps, and what is typed for it: what Forebay can do and take back is its own command, with the files that this writes. */
function help(id: string, remedy: Remedy, says: string): HTMLElement {
  const made = h("div", {}, says);
  if (remedy.kind === "explain") {
    if (remedy.command !== undefined) made.append(h("pre", {}, remedy.command));
    return made;
  }
  const writes = remedy.writes.slice(0, LISTED_MAX).map(({ path, value }) => h("div", {}, h("code", {}, `${path} = ${value}`)));
  made.append(h("pre", {}, `forebay doctor --apply ${id}`), h("div", { class: "weak" }, t("doctor.writes"), ...writes, rest(remedy.writes.length)));
  return made;
}
