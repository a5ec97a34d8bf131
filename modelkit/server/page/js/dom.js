// Elements, made without markup. Nothing in this page becomes HTML from a string but what clean.js has cleaned.

/** An element. attributes: `class`, `text`, `on: {event: listener}`, `data: {...}`; any other is set as an attribute,
 * true as an empty one; false, null and undefined leave it out. children: nodes and texts; null is left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (selector, root = document) => root.querySelector(selector);

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  sliders: "M4 8h9M19 8h1M4 16h1M11 16h9M16 5.5v5M8 13.5v5",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  again: "M19 12a7 7 0 1 1-2-4.9M19 4v4h-4",
  pencil: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  forward: "M5 6l7 6-7 6zM13 6l6 6-6 6z",
  down: "M12 5v13M6 13l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  clip: "M19 11l-7.5 7.5a4.6 4.6 0 0 1-6.5-6.5l7.5-7.500a3 3 0 0 1 4.300 4.300L9.500 16a1.500 1.500 0 0 1-2-2L14 7.500",
  more: "M5.6 12a.6.6 0 1 0-1.2 0 .6.6 0 0 0 1.2 0zM12.6 12a.6.6 0 1 0-1.2 0 .6.6 0 0 0 1.2 0zM19.6 12a.6.6 0 1 0-1.2 0 .6.6 0 0 0 1.2 0z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  tool: "M14 6a4 4 0 0 0-5 5l-5 5 3 3 5-5a4 4 0 0 0 5-5l-2.500 2.500-2.500-.5-.5-2.500z",
  drop: "M12 4c3 4 5 6.500 5 9.500a5 5 0 0 1-10 0C7 10.500 9 8 12 4z",
};

/** A line drawing that says nothing to a screen reader: what it stands on has a label. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of [["viewBox", "0 0 24 24"], ["class", "icon"], ["aria-hidden", "true"], ["focusable", "false"]])
    svg.setAttribute(key, value);
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** A button that shows only a drawing; label is its name and its hint. */
export function iconButton(name, label, click, attributes = {}) {
  return h("button", { type: "button", class: "quiet", "aria-label": label, title: label, on: { click }, ...attributes }, icon(name));
}

/** Fill the places that the page's own markup keeps for drawings: `<span data-icon="plus">`. */
export function drawIcons(root = document) {
  for (const place of root.querySelectorAll("[data-icon]")) place.replaceChildren(icon(place.dataset.icon));
}

const TO_THE_LEFT = /[\p{sc=Adlam}\p{sc=Arabic}\p{sc=Hebrew}\p{sc=Mandaic}\p{sc=Nko}\p{sc=Samaritan}\p{sc=Syriac}\p{sc=Thaana}]/u;

/** "rtl" or "ltr": where a text begins, by its first letter. As dir="auto" has it, with which a browser takes seconds for each
 * key that is pressed in some ten thousand lines. */
export const directionOf = (text) => (TO_THE_LEFT.test(/\p{L}/u.exec(text)?.[0] ?? "") ? "rtl" : "ltr");

/** Where the page is not served over HTTPS nor from this machine, browsers give no clipboard: then by selection. */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const box = h("textarea", { class: "hidden-text", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  focused?.focus({ preventScroll: true });
  if (!copied) throw new Error("The browser does not allow it.");
}

/** Does this key belong to a word that is being put together, as Japanese is written? In Safari the last Enter of it comes when
 * it is over, and only its old code tells. */
export const composes = (event) => event.isComposing || event.keyCode === 229;

const FOCUSABLE = "button, summary, textarea, input, select, [tabindex]";
const nameOf = (element) => element.dataset.act ?? element.getAttribute("aria-label") ?? element.textContent;
const able = (element) => !element.disabled;

/** Draw anew inside of `root`, whose rows have `data-id`. The focus stays where it was: at the same element, or at the one
 * of that name (`data-act`, else its label) in that row, or in the row that has its place now, or at another one of its group.
 * Where there is none, `instead(had)` is focused: a keyboard that has lost its place begins at the top of the page. */
export function keepingFocus(root, draw, instead) {
  const had = root.contains(document.activeElement) ? document.activeElement : null;
  if (!had) return draw();
  const rows = () => [...root.querySelectorAll("[data-id]")];
  const row = had.closest("[data-id]");
  const place = rows().indexOf(row);
  draw();
  if (document.activeElement === had) return;
  const now = rows().find((one) => one.dataset.id === row?.dataset.id) ?? rows()[Math.min(place, rows().length - 1)];
  const found = had.isConnected ? had : now && standIn(now, had);
  (found ?? instead(had))?.focus({ preventScroll: true });
}

function standIn(row, had) {
  const group = had.closest("[role=group]")?.getAttribute("aria-label");
  const all = [...row.querySelectorAll(FOCUSABLE)].filter(able);
  const beside = (one) => group && one.closest("[role=group]")?.getAttribute("aria-label") === group;
  return all.find((one) => nameOf(one) === nameOf(had)) ?? all.find(beside) ?? null;
}

/** 128 random bits. crypto.randomUUID is kept from pages that come over plain HTTP from another machine. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
