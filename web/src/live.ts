// What is known now: the fleet, the newest point of each volume, the last events. One stream feeds it; pages listen.
//
// Nothing is fetched while the tab is hidden: the figures of a page nobody looks at cost nobody anything.

import { Refused, Unreachable, ask, follow } from "./api";
import type { Fleet, Happening, Point } from "./types";
import { language } from "./words";

/** As long as the daemon does not answer, it is asked again after so long, and ever longer. */
const AGAIN_MS = [500, 1000, 2000, 5000, 10_000];
/** Policies, owners and reasons are asked for so often, besides whenever the stream says that they have changed. */
const FLEET_MS = 5000;

export type State =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "refused"; status: number; why: string }
  | { kind: "gone"; why: string };

interface Listener {
  fleet?(fleet: Fleet): void;
  point?(point: Point): void;
  event?(event: Happening): void;
  /** A stream has begun: what was missed before has to be asked for. */
  back?(): void;
}

const listeners = new Set<Listener>();
const stateListeners = new Set<(state: State) => void>();
let fleet: Fleet | undefined;
let state: State = { kind: "connecting" };
let running: AbortController | undefined;
/** Of the run whose stream has begun and not ended since; raised where the run is over. */
let streaming: AbortSignal | undefined;
let lastEvent: string | undefined;
let fleetTimer: ReturnType<typeof setTimeout> | undefined;

export const known = (): Fleet | undefined => fleet;
export const stateNow = (): State => state;

export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Events of an answer, and those of the stream that it need not have, each once: numbers are those of a node. */
export function together(answered: Happening[], streamed: Happening[]): Happening[] {
  const each = new Map([...answered, ...streamed].map((event) => [`${event.node} ${event.id}`, event]));
  return [...each.values()];
}

export function onState(listener: (state: State) => void): void {
  stateListeners.add(listener);
  listener(state);
}

function become(next: State): void {
  state = next;
  for (const listener of stateListeners) listener(next);
}

/** Asks for the fleet now, as after a change that was made here. */
export async function refresh(): Promise<void> {
  clearTimeout(fleetTimer);
  const signal = running?.signal;
  try {
    const asked = await ask<Fleet>(`/v1/fleet?language=${language()}`, signal);
    fleet = asked;
    // A single answer may have failed while the stream went on.
    if (streaming?.aborted === false && state.kind !== "live") become({ kind: "live" });
    for (const listener of listeners) listener.fleet?.(asked);
  } finally {
    clearTimeout(fleetTimer);
    if (!signal?.aborted) fleetTimer = setTimeout(() => void refresh().catch(failed), FLEET_MS);
  }
}

function failed(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  if (error instanceof Refused) become({ kind: "refused", status: error.status, why: error.message });
  else if (error instanceof Unreachable) become({ kind: "gone", why: error.message });
  else throw error;
}

function heard(message: { event: string; data: string; id: string | undefined }): void {
  if (message.id) lastEvent = message.id;
  if (message.event === "point") {
    const point = JSON.parse(message.data) as Point;
    for (const listener of listeners) listener.point?.(point);
  } else if (message.event === "event") {
    const event = JSON.parse(message.data) as Happening;
    for (const listener of listeners) listener.event?.(event);
  } else if (message.event === "fleet") {
    void refresh().catch(failed);
  }
}

async function run(signal: AbortSignal): Promise<void> {
  for (let failures = 0; !signal.aborted; ) {
    try {
      await refresh();
      const begun = () => {
        failures = 0;
        streaming = signal;
        become({ kind: "live" });
        for (const listener of listeners) listener.back?.();
      };
      await follow(`/v1/stream?events=1&language=${language()}`, lastEvent, begun, heard, signal);
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
    }
    if (signal.aborted) return;
    streaming = undefined;
    const wait = AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)];
    failures += 1;
    await new Promise((done) => setTimeout(done, wait));
  }
}

/** Begins anew, as after a login. */
export function restart(): void {
  running?.abort();
  clearTimeout(fleetTimer);
  running = new AbortController();
  void run(running.signal);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    running?.abort();
    clearTimeout(fleetTimer);
    become({ kind: "connecting" });
  } else {
    restart();
  }
});
