// Elements. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: `on…` attributes are listeners, `false` and `null` leave an attribute out. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else set(element, name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets an attribute, unless it is so already. */
export function set(element, name, value) {
  if (value === false || value === null || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Sets an element's text, unless it is so already: what is selected in it stays selected. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Has exactly these children, elements or text; elements that are there stay, with their focus. */
export function place(parent, children) {
  children.forEach((child, at) => {
    const there = parent.childNodes[at] ?? null;
    if (there !== child) parent.insertBefore(typeof child === "string" ? new Text(child) : child, there);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

// What cannot be seen, turns the direction of what follows, looks like a space and is none, or is the fourth mark on one
// letter: enough of those cover the lines around.
const UNSEEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]|(?<=\p{M}{3})\p{M}/gu;

/** Text of others with what could deceive made visible. */
export function visible(text) {
  return text.replace(UNSEEN, (c) => c === " " ? c : `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Words of ours, in which what stands in backticks is code. */
export const rich = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
