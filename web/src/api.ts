// The way to the daemon: requests, and the live stream. Nothing else in the dashboard talks to the network.

/** What the daemon refused, in its own words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The daemon could not be asked at all. */
export class Unreachable extends Error {}

// Kept for this tab alone. It may come behind the # of the address that `serve` prints, which no server ever sees.
let token = sessionStorage.getItem("token");
const sessionListeners = new Set<() => void>();

export function takeTokenFromAddress(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  setToken(given);
  history.replaceState(null, "", `${location.pathname}#/`);
}

export function setToken(given: string | null): void {
  token = given;
  if (given) sessionStorage.setItem("token", given);
  else sessionStorage.removeItem("token");
  for (const listener of sessionListeners) listener();
}

/** Calls when somebody has logged in or out. */
export function onSession(listener: () => void): void {
  sessionListeners.add(listener);
}

export const hasToken = (): boolean => token !== null;

function headers(more: Record<string, string> = {}): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

/** A question that is not answered for so long is not answered. (A change may take longer: a drain takes what it takes.) */
const ANSWER_MAX_MS = 5000;

async function request(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (error instanceof DOMException && error.name === "TimeoutError") throw new Unreachable(`${ANSWER_MAX_MS / 1000} s`);
    throw new Unreachable(error instanceof Error ? error.message : String(error));
  }
}

async function refusal(answer: Response): Promise<Refused> {
  const body: unknown = await answer.json().catch(() => undefined);
  const said = typeof body === "object" && body !== null && "error" in body ? String(body.error) : answer.statusText;
  return new Refused(answer.status, said);
}

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const late = AbortSignal.timeout(ANSWER_MAX_MS);
  const answer = await request(path, { headers: headers(), signal: signal ? AbortSignal.any([signal, late]) : late });
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()) as T;
}

/** A change. `body`: sent as JSON. */
export async function act<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) init.body = JSON.stringify(body);
  const answer = await request(path, init);
  if (!answer.ok) throw await refusal(answer);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** Whether a token is the right one: an empty change is refused as such (400), a wrong token before that (401). */
export async function tokenIsRight(given: string): Promise<boolean> {
  const answer = await request("/v1/volumes", {
    method: "POST",
    headers: { Authorization: `Bearer ${given}`, "Content-Type": "application/json" },
    body: "{}",
  });
  return answer.status !== 401 && answer.status !== 403;
}

export const volumePath = (name: string): string => `/v1/volumes/${encodeURIComponent(name)}`;
export const nodePath = (name: string): string => `/v1/nodes/${encodeURIComponent(name)}`;

export interface Message {
  event: string;
  data: string;
  id: string | undefined;
}

/** Takes the bytes of a stream apart (text/event-stream), whatever pieces they come in. */
export class Parser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;

  push(text: string): Message[] {
    const lines = (this.#rest + text).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() ?? "";
    const found: Message[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) found.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
        this.#event = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#event = value;
      else if (field === "data") this.#data.push(value);
      else if (field === "id") this.#id = value;
    }
    return found;
  }
}

/** How often a message comes at least; a stream that is silent for longer is taken for dead. */
const SILENCE_MAX_MS = 5000;

/**
 * Reads the stream until it ends or `signal` is raised. Not EventSource: that cannot send the token, and does not say why it was
 * refused.
 */
export async function follow(path: string, after: string | undefined, heard: (message: Message) => void, signal: AbortSignal): Promise<void> {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MAX_MS);
  try {
    const more: Record<string, string> = after ? { "Last-Event-ID": after } : {};
    const answer = await request(path, { headers: headers(more), signal: own.signal });
    if (!answer.ok || !answer.body) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MAX_MS);
      for (const message of parser.push(value)) heard(message);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}
