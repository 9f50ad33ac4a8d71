// Elements by plain calls; text is always text, never markup.

export type Child = Node | string | number | undefined | null | false;

type Attributes = Record<string, string | number | boolean | undefined | ((event: Event) => void)>;

/** Makes an element. A function is a listener, `true` an empty attribute, `false` and `undefined` none. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
  add(made, ...children);
  return made;
}

export function add(to: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child !== undefined && child !== null && child !== false) to.append(child instanceof Node ? child : String(child));
  }
}

/** Sets a text only where it differs: an unchanged one costs no layout, and a screen reader hears nothing. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
