// What can be done to a volume or a node from here, each with what it means for safety.

import { nodePath, volumePath } from "./api";
import { type Question, change } from "./dialogs";
import { h } from "./dom";
import { known } from "./live";
import type { FleetNode, Policy, Volume } from "./types";
import { bytes, span } from "./units";
import { t } from "./words";

function button(text: string, question: () => Question, off?: string): HTMLButtonElement {
  const made = h("button", { type: "button", click: () => void change(question()) }, text);
  if (off) {
    made.disabled = true;
    made.title = off;
  }
  return made;
}

/** What an acknowledged write survives under write-back on this volume: the promise of docs/losses.md in a sentence. */
function safetyOfBack(volume: Volume): string {
  const most = bytes(volume.dirty.bytes_max);
  const peers = volume.cluster?.peers ?? 0;
  if (peers > 0) return t("safety.peers", { peers, members: peers + 1 });
  if (volume.tier.kind === "memory") return t("safety.memory", { most });
  return t("safety.flash", { most });
}

function setPolicy(volume: Volume, to: Policy): Question {
  const { dirty } = volume;
  const left = dirty.drain_s === undefined ? t("value.unknown") : span(dirty.drain_s);
  const says =
    to === "back"
      ? [t("policy.to-back"), safetyOfBack(volume), t("safety.image")]
      : [t("policy.to-through"), t("policy.to-through.when", { dirty: bytes(dirty.bytes), left })];
  return {
    title: t("policy.title", { volume: volume.name, policy: t(`policy.${to}`) }),
    says,
    yes: t("policy.yes", { policy: t(`policy.${to}`) }),
    method: "PATCH",
    path: volumePath(volume.name),
    body: () => ({ policy: to }),
    done: t("policy.done", { volume: volume.name, policy: t(`policy.${to}`) }),
  };
}

function drain(volume: Volume): Question {
  const through = h("input", { type: "checkbox", id: "drain-through" });
  const { dirty } = volume;
  const left = dirty.drain_s === undefined ? t("value.unknown") : span(dirty.drain_s);
  return {
    title: t("drain.title", { volume: volume.name }),
    says: [t("drain.what", { dirty: bytes(dirty.bytes), left }), t("drain.safety")],
    fields: [h("p", { class: "check" }, through, h("label", { for: "drain-through" }, t("drain.through")))],
    yes: t("drain.yes"),
    method: "POST",
    path: `${volumePath(volume.name)}/drain`,
    body: () => ({ through: through.checked }),
    done: t("drain.done", { volume: volume.name }),
  };
}

function hold(volume: Volume): Question {
  const minutes = h("input", { id: "hold-minutes", type: "number", min: 1, max: 1440, value: 30, required: true });
  return {
    title: t("hold.title", { volume: volume.name }),
    says: [t("hold.what"), t("hold.safety", { most: bytes(volume.dirty.bytes_max) })],
    fields: [h("label", { for: "hold-minutes" }, t("hold.minutes")), minutes],
    yes: t("hold.yes"),
    method: "POST",
    path: `${volumePath(volume.name)}/hold`,
    body: () => ({ seconds: Math.round(60 * minutes.valueAsNumber) }),
    done: t("hold.done", { volume: volume.name }),
  };
}

function release(volume: Volume): Question {
  return {
    title: t("release.title", { volume: volume.name }),
    says: [t("release.what"), t("release.safety")],
    yes: t("release.yes"),
    method: "POST",
    path: `${volumePath(volume.name)}/release`,
    done: t("release.done", { volume: volume.name }),
  };
}

function handOver(volume: Volume, nodes: string[]): Question {
  const to = h("select", { id: "hand-over-to" }, ...nodes.map((name) => h("option", { value: name }, name)));
  return {
    title: t("hand-over.title", { volume: volume.name }),
    says: [t("hand-over.what"), t("hand-over.safety")],
    fields: [h("label", { for: "hand-over-to" }, t("hand-over.to")), to],
    yes: t("hand-over.yes"),
    method: "POST",
    path: `${volumePath(volume.name)}/hand-over`,
    body: () => ({ to: to.value }),
    done: t("hand-over.done", { volume: volume.name }),
  };
}

/** The buttons of a volume. One that cannot be pressed says why. */
export function volumeActions(volume: Volume): HTMLElement {
  const other: Policy = volume.policy.requested === "back" ? "through" : "back";
  const held = volume.backing.state === "held" || volume.policy.reason === "drained-through";
  const idle = volume.phase === "serving" ? undefined : t("action.not-serving");
  const row = h("div", { class: "actions", role: "group", "aria-label": t("action.group") });
  row.append(button(t("policy.switch", { policy: t(`policy.${other}`) }), () => setPolicy(volume, other), idle));
  row.append(button(t("drain.button"), () => drain(volume), idle));
  row.append(held ? button(t("release.button"), () => release(volume)) : button(t("hold.button"), () => hold(volume), idle));
  if (volume.cluster) {
    const owner = volume.cluster.owner;
    const nodes = (known()?.nodes ?? []).map((node) => node.name).filter((name) => name !== owner);
    row.append(button(t("hand-over.button"), () => handOver(volume, nodes), nodes.length === 0 ? t("hand-over.none") : idle));
  }
  return row;
}

/** The buttons of a node of a cluster. */
export function nodeActions(node: FleetNode): HTMLElement | undefined {
  if (!node.cluster) return undefined;
  const row = h("div", { class: "actions", role: "group", "aria-label": t("action.group") });
  const path = `${nodePath(node.name)}/evacuate`;
  if (node.cluster.evacuation) {
    row.append(
      button(t("node.keep.button"), () => ({
        title: t("node.keep.title", { node: node.name }),
        says: [t("node.keep.what")],
        yes: t("node.keep.button"),
        method: "DELETE",
        path,
        done: t("node.keep.done", { node: node.name }),
      })),
    );
  } else {
    row.append(
      button(t("node.evacuate.button"), () => ({
        title: t("node.evacuate.title", { node: node.name }),
        says: [t("node.evacuate.what"), t("node.evacuate.safety")],
        yes: t("node.evacuate.button"),
        method: "POST",
        path,
        done: t("node.evacuate.done", { node: node.name }),
      })),
    );
  }
  return row;
}
