// Questions before a change: what it means for safety, and who asks. Native dialogs: they keep the focus, and Escape ends them.

import { Refused, act, logIn, mayChange, whoAmI } from "./api";
import { type Child, h, say } from "./dom";
import { refresh, restart } from "./live";
import { t } from "./words";

/** Shows a dialog; `true` when it was confirmed. `check`: says what is wrong, and the dialog stays. */
function show(title: string, body: Child[], yes: string, check?: () => Promise<string | undefined>): Promise<boolean> {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const confirm = h("button", { type: "submit", class: "primary" }, yes);
    let confirmed = false;
    const form = h(
      "form",
      {
        method: "dialog",
        submit: (event) => {
          event.preventDefault();
          if (confirm.disabled) return;
          confirm.disabled = true;
          void (check ? check() : Promise.resolve(undefined))
            .catch((error: unknown) => String(error instanceof Error ? error.message : error))
            .then((wrong) => {
              confirm.disabled = false;
              say(problem, wrong ?? "");
              if (wrong === undefined) {
                confirmed = true;
                dialog.close();
              }
            });
        },
      },
      h("h2", { id: "dialog-title" }, title),
      ...body,
      problem,
      h("div", { class: "buttons" }, h("button", { type: "button", click: () => dialog.close() }, t("dialog.cancel")), confirm),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(confirmed);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks for a token until there is a right one, or the question is put away. `change`: one that may only look is none. */
export async function login(change = false): Promise<boolean> {
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const body = [
    h("p", {}, t("login.why")),
    h("p", { class: "weak" }, t("login.where")),
    h("label", { for: "token" }, t("login.token")),
    input,
  ];
  const given = await show(t("login.title"), body, t("login.yes"), async () => {
    try {
      await logIn(input.value.trim());
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return t("login.wrong");
      throw error;
    }
    return change && !mayChange() ? t("login.only-looks") : undefined;
  });
  if (given) restart();
  return given;
}

/** What a change is, before it is made. */
export interface Question {
  title: string;
  /** What it does, and what it means for safety. */
  says: string[];
  yes: string;
  /** Further fields. */
  fields?: Child[];
  method: "POST" | "PATCH" | "DELETE";
  path: string;
  body?: () => unknown;
  /** What is said when it is done. */
  done: string;
}

/** Confirms a change, logs in where that is needed, makes it, and says how it ended. */
export async function change(question: Question): Promise<void> {
  const body: Child[] = question.says.map((text) => h("p", {}, text));
  if (!(await show(question.title, [...body, ...(question.fields ?? [])], question.yes))) return;
  if (!mayChange() && !(await login(true))) return;
  const note = notice(`${question.title}: ${t("action.running")}`, "info");
  try {
    await act(question.method, question.path, question.body?.());
    note.end(question.done, "info");
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    // A session may have ended: then the next try asks for the token again.
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) await whoAmI().catch(() => undefined);
    note.end(`${question.title}: ${t("action.failed")} ${why}`, "error");
  }
  await refresh().catch(() => undefined);
}

const NOTICE_MS = 8000;

/** A line at the foot of the window; errors stay until they are put away. */
export function notice(text: string, severity: "info" | "error"): { end(text: string, severity: "info" | "error"): void } {
  const words = h("span", {}, text);
  const close = h("button", { type: "button", class: "plain", "aria-label": t("dialog.close"), click: () => line.remove() }, "✕");
  const line = h("div", { class: `notice ${severity}` }, words, close);
  let place = document.getElementById("notices");
  if (!place) {
    place = h("div", { id: "notices", role: "status", "aria-live": "polite" });
    document.body.append(place);
  }
  place.append(line);
  return {
    end(next, how) {
      line.className = `notice ${how}`;
      say(words, next);
      if (!line.isConnected) place.append(line);
      if (how === "info") setTimeout(() => line.remove(), NOTICE_MS);
    },
  };
}
