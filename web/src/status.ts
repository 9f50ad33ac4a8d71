// Whether something is well, as a word with a sign: never as a colour alone.

import { h } from "./dom";
import type { Degraded, FleetNode, Volume } from "./types";
import { span } from "./units";
import { known, t, word } from "./words";

export type Health = "good" | "warning" | "error";

const SIGNS: Record<Health, string> = { good: "✓", warning: "▲", error: "■" };

export function badge(health: Health, text: string): HTMLElement {
  return h("span", { class: `badge ${health}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[health]} `), text);
}

/** Health of a volume in one word. */
export function health(volume: Volume): { health: Health; text: string } {
  if (volume.phase === "failed") return { health: "error", text: word("phase", volume.phase) };
  if (volume.backing.state === "failing") return { health: "error", text: t("backing.failing") };
  if (volume.backing.state === "awaiting-fence") return { health: "error", text: t("backing.awaiting-fence") };
  if (volume.policy.reason === "tier-error") return { health: "error", text: t("reason.tier-error") };
  if (volume.backing.displaced) return { health: "error", text: t("backing.displaced") };
  if (volume.policy.effective !== volume.policy.requested || volume.policy.reason !== "as-requested") {
    return { health: "warning", text: word("reason", volume.policy.reason) };
  }
  if (volume.phase !== "serving" && volume.cluster?.owner === undefined) return { health: "warning", text: word("phase", volume.phase) };
  if (volume.problem) return { health: "warning", text: word("phase", volume.phase) };
  if (volume.backing.state !== "ready" && volume.backing.state !== "closed") return { health: "warning", text: word("backing", volume.backing.state) };
  return { health: "good", text: word("phase", volume.phase) };
}

export function nodeBadge({ cluster }: FleetNode): HTMLElement {
  if (cluster?.up === false) return badge("error", t("node.down"));
  if (cluster?.evacuation) return badge("warning", word("evacuation", cluster.evacuation.state));
  return badge("good", t("node.up"));
}

/** One line of what is degraded: what, why in the chosen language, and what the daemon says of it. */
export function degradedLine(degraded: Degraded): HTMLElement {
  const since = degraded.since_s === undefined ? "" : ` (${t("value.for", { time: span(degraded.since_s) })})`;
  const what = degraded.volume ?? degraded.node ?? "";
  const path = degraded.volume ? `#/volumes/${encodeURIComponent(degraded.volume)}` : `#/nodes/${encodeURIComponent(what)}`;
  const code = word("degraded", degraded.code);
  return h(
    "li",
    { "data-code": degraded.code },
    badge("warning", code),
    " ",
    h("a", { href: path }, what),
    since,
    h("div", { class: "weak" }, known(`reason-why.${degraded.code}`) ? `${word("reason-why", degraded.code)} ` : "", degraded.text),
  );
}
