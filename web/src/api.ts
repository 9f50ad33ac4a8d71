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

/** What this browser may do, and by what it has that right. */
interface Caller {
  role: "read-only" | "admin" | null;
  by: string | null;
}

let caller: Caller = { role: null, by: null };
const callerListeners = new Set<() => void>();

export const mayChange = (): boolean => caller.role === "admin";
export const isLoggedIn = (): boolean => caller.by === "session";

/** Calls when somebody has logged in or out. */
export function onCaller(listener: () => void): void {
  callerListeners.add(listener);
}

function become(next: Caller): void {
  caller = next;
  for (const listener of callerListeners) listener();
}

export async function whoAmI(): Promise<void> {
  become(await ask<Caller>("/v1/login"));
}

/** A token becomes a session, whose cookie no script can read; nothing of it is kept here. */
export async function logIn(token: string): Promise<void> {
  become(await act<Caller>("POST", "/v1/login", { token }));
}

export async function logOut(): Promise<void> {
  await act("DELETE", "/v1/login");
  await whoAmI();
}

/** The token that `forebay dashboard` puts behind the # of the address, which no server ever sees; it is taken from there. */
export function tokenOfAddress(): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", `${location.pathname}#/`);
  return given;
}

/** A question that is not answered for so long is not answered. (A change may take longer: a drain takes what it takes.) */
const ANSWER_MAX_MS = 5000;

/** What comes of `arriving`; where it does not come whole, that the daemon is out of reach, and why. */
async function arrived<T>(arriving: Promise<T>, limit = ANSWER_MAX_MS): Promise<T> {
  try {
    return await arriving;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (error instanceof DOMException && error.name === "TimeoutError") throw new Unreachable(`${limit / 1000} s`);
    throw new Unreachable(error instanceof Error ? error.message : String(error));
  }
}

async function refusal(answer: Response): Promise<Refused> {
  const body: unknown = await answer.json().catch(() => undefined);
  const said = typeof body === "object" && body !== null && "error" in body ? String(body.error) : answer.statusText;
  return new Refused(answer.status, said);
}

/** `limit`: of what takes its time to be found out. */
export async function ask<T>(path: string, signal?: AbortSignal, limit = ANSWER_MAX_MS): Promise<T> {
  const late = AbortSignal.timeout(limit);
  const answer = await arrived(fetch(path, { signal: signal ? AbortSignal.any([signal, late]) : late }), limit);
  if (!answer.ok) throw await refusal(answer);
  return (await arrived(answer.json(), limit)) as T;
}

/** A change. `body`: sent as JSON. The header is what no other site can send in a session's name. */
export async function act<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "X-Forebay": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method, headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  const answer = await arrived(fetch(path, init));
  if (!answer.ok) throw await refusal(answer);
  return (answer.status === 204 ? undefined : await arrived(answer.json())) as T;
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
 * Reads the stream until it ends or `signal` is raised; `begun` is called once nothing is missed any more. Not EventSource: that does
 * not say why it was refused, and takes a stream that is silent for one that lives.
 */
export async function follow(path: string, after: string | undefined, begun: () => void, heard: (message: Message) => void, signal: AbortSignal): Promise<void> {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MAX_MS);
  try {
    const headers: Record<string, string> = after ? { "Last-Event-ID": after } : {};
    const answer = await arrived(fetch(path, { headers, signal: own.signal }));
    if (!answer.ok || !answer.body) throw await refusal(answer);
    begun();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await arrived(reader.read());
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
