// Begins: the frame around the pages, and which page the address asks for.

import { Refused, isLoggedIn, logIn, logOut, mayChange, onCaller, tokenOfAddress, whoAmI } from "./api";
import { login, notice } from "./dialogs";
import { h, say } from "./dom";
import { onState, restart } from "./live";
import { eventsPage } from "./pages/events";
import { fleetPage } from "./pages/fleet";
import { nodePage } from "./pages/node";
import { type Page, rangeOf } from "./pages/page";
import { volumePage } from "./pages/volume";
import { type Theme, onTheme, setTheme, theme } from "./theme";
import { LANGUAGES, language, speak, t } from "./words";

const THEMES: Theme[] = ["auto", "light", "dark"];

let page: Page | undefined;
const main = h("main", { id: "main", tabindex: -1 });

/** The page of an address `#/PLACE/NAME?QUERY`. */
function open(): Page {
  const [path = "", query = ""] = location.hash.slice(1).split("?");
  const [place, ...rest] = path.split("/").filter(Boolean).map(decoded);
  const asked = new URLSearchParams(query);
  const name = rest.join("/");
  if (place === "volumes" && name) return volumePage(name, rangeOf(asked));
  if (place === "nodes" && name) return nodePage(name, rangeOf(asked));
  if (place === "events") return eventsPage(asked);
  return fleetPage();
}

/** An address that somebody typed may hold a percent sign that means nothing. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function go(): void {
  void enter();
  page?.leave();
  page = open();
  main.replaceChildren(page.element);
  document.title = `${page.title} – Forebay`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${location.hash.startsWith("#/events") ? "events" : ""}`;
    if (here && (location.hash.length <= 2 || location.hash.startsWith("#/events"))) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Logs in with what the address brings, if it does. */
async function enter(): Promise<void> {
  const token = tokenOfAddress();
  if (!token) return;
  try {
    await logIn(token);
    restart();
  } catch (error) {
    notice(error instanceof Refused && error.status === 401 ? t("login.wrong") : String(error), "error");
  }
}

function nameSession(button: HTMLElement): void {
  say(button, isLoggedIn() ? t("login.out") : t("login.in"));
  // Whose certificate lets them change everything has nothing to log in for.
  button.hidden = mayChange() && !isLoggedIn();
}

function frame(): HTMLElement {
  const languages = h("select", { id: "language", "aria-label": t("frame.language"), change: () => { speak(languages.value); restart(); begin(); } });
  for (const [code, name] of Object.entries(LANGUAGES)) languages.append(h("option", { value: code, lang: code, selected: code === language() }, name));
  const themes = h("select", { id: "theme", "aria-label": t("frame.theme"), change: () => setTheme(THEMES.find((one) => one === themes.value) ?? "auto") });
  for (const one of THEMES) themes.append(h("option", { value: one, selected: one === theme() }, `◐ ${t(`theme.${one}`)}`));
  const session = h("button", { type: "button", id: "session" });
  session.addEventListener("click", () => {
    if (isLoggedIn()) void logOut().then(restart, (error: unknown) => notice(String(error), "error"));
    else void login();
  });
  nameSession(session);
  // The link for those who skip: to the content, not to a page.
  const skip = h("a", { href: "#main", class: "skip", click: (event) => { event.preventDefault(); main.focus(); } }, t("frame.skip"));
  return h(
    "div",
    {},
    skip,
    h(
      "header",
      { class: "frame" },
      h("a", { href: "#/", class: "brand" }, "Forebay"),
      h("nav", { "aria-label": t("frame.pages") }, h("a", { href: "#/" }, t("fleet.title")), h("a", { href: "#/events" }, t("events.title"))),
      h("div", { class: "session" }, languages, themes, session),
    ),
  );
}

const banner = h("div", { id: "connection", role: "status", hidden: true });
let asked = false;

function begin(): void {
  document.documentElement.lang = language();
  document.body.replaceChildren(frame(), banner, main);
  go();
}

onState((state) => {
  banner.hidden = state.kind === "live" || state.kind === "connecting";
  document.documentElement.dataset["connection"] = state.kind;
  if (state.kind === "gone") say(banner, t("frame.gone", { why: state.why }));
  else if (state.kind === "refused") say(banner, t("frame.refused", { why: state.why }));
  // From another host reading needs a login, too. Asked once: who puts the question away may look at the sentence.
  if (state.kind === "refused" && state.status === 401 && !asked) {
    asked = true;
    void login();
  }
});
onCaller(() => {
  const button = document.getElementById("session");
  if (button) nameSession(button);
});
window.addEventListener("hashchange", go);
onTheme(() => {
  if (page) go();
});
begin();
// Who asks is known from the daemon; where it does not answer, the page says so by itself.
whoAmI().catch(() => undefined);
restart();
