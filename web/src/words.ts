// The string table: one file for each language, all with the same keys (`npm run check` has tsc compare them).

import english from "../strings/en.json";
import japanese from "../strings/ja.json";
import korean from "../strings/ko.json";

export type Key = keyof typeof english;
type Table = Record<Key, string>;

export const LANGUAGES = { en: "English", ja: "日本語", ko: "한국어" } as const;
export type Language = keyof typeof LANGUAGES;

const tables: Record<Language, Table> = { en: english, ja: japanese, ko: korean };

const isLanguage = (word: string | null | undefined): word is Language => !!word && Object.hasOwn(tables, word);

function first(): Language {
  const kept = localStorage.getItem("language");
  if (isLanguage(kept)) return kept;
  for (const wanted of navigator.languages) {
    const short = wanted.slice(0, 2).toLowerCase();
    if (isLanguage(short)) return short;
  }
  return "en";
}

let current = first();

export const language = (): Language => current;

export function speak(wanted: string): void {
  if (!isLanguage(wanted)) return;
  current = wanted;
  localStorage.setItem("language", wanted);
}

/** The text of a key; `{name}` stands for what is given. */
export function t(key: Key, given: Record<string, string | number> = {}): string {
  return tables[current][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(given[name] ?? whole));
}

/** Whether the table has it. */
export const known = (key: string): key is Key => Object.hasOwn(english, key);

/** The text of a word of the API; the word itself where this table does not know it, which a newer daemon may send. */
export function word(group: string, code: string): string {
  const key = `${group}.${code}`;
  return known(key) ? t(key) : code;
}
