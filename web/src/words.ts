// The string table: one file for each language, all with the same keys (`npm run check` has tsc compare them).

import english from "../strings/en.json";
import japanese from "../strings/ja.json";
import korean from "../strings/ko.json";

export type Key = keyof typeof english;
type Table = Record<Key, string>;

export const LANGUAGES = { en: "English", ja: "日本語", ko: "한국어" } as const;
export type Language = keyof typeof LANGUAGES;

const tables: Record<Language, Table> = { en: english, ja: japanese, ko: korean };

const known = (word: string | null | undefined): word is Language => !!word && Object.hasOwn(tables, word);

function first(): Language {
  const kept = localStorage.getItem("language");
  if (known(kept)) return kept;
  for (const wanted of navigator.languages) {
    const short = wanted.slice(0, 2).toLowerCase();
    if (known(short)) return short;
  }
  return "en";
}

let current = first();

export const language = (): Language => current;

export function speak(wanted: string): void {
  if (!known(wanted)) return;
  current = wanted;
  localStorage.setItem("language", wanted);
}

/** The text of a key; `{name}` stands for what is given. */
export function t(key: Key, given: Record<string, string | number> = {}): string {
  return tables[current][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(given[name] ?? whole));
}

/** The text of a word of the API; the word itself where this table does not know it, which a newer daemon may send. */
export function word(group: string, code: string): string {
  const key = `${group}.${code}`;
  return Object.hasOwn(english, key) ? t(key as Key) : code;
}
