// The list of conversations: by day, searched by title and by what was said.

import { $, h, iconButton, keepingFocus } from "./dom.js";

const DAY_MS = 86_400_000;
const SEARCH_AFTER_MS = 150;

function group(updated) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (updated >= midnight) return "Today";
  if (updated >= midnight - DAY_MS) return "Yesterday";
  if (updated >= midnight - 7 * DAY_MS) return "This week";
  return "Earlier";
}

export class Sidebar {
  #timer = 0;
  #asked = 0;

  /** act: {open(id), rename(record), remove(record)}. */
  constructor(store, act) {
    Object.assign(this, { store, act, current: null });
    this.search = $("#search");
    this.search.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.show(), SEARCH_AFTER_MS);
    });
    this.narrow = matchMedia("(max-width: 52rem)");
    $("#toggle-sidebar").addEventListener("click", () => this.toggle());
    $("#close-sidebar").addEventListener("click", () => this.toggle(false));
    $("#veil").addEventListener("click", () => this.toggle(false));
    this.narrow.addEventListener("change", () => this.toggle(!this.narrow.matches, false));
    this.toggle(!this.narrow.matches, false);
  }

  get isOpen() {
    return !$("#sidebar").hidden;
  }

  /** On a narrow page the list lies over the rest, which then cannot be reached. */
  toggle(open = !this.isOpen, focus = true) {
    const over = open && this.narrow.matches;
    const leaves = !open && $("#sidebar").contains(document.activeElement);
    $("#sidebar").hidden = !open;
    $("#veil").hidden = !over;
    $("#main").inert = over;
    $("#toggle-sidebar").setAttribute("aria-expanded", String(open));
    if (leaves || (focus && this.narrow.matches)) $(open ? "#close-sidebar" : "#toggle-sidebar").focus();
  }

  /** Read the list anew. */
  async show() {
    const asked = ++this.#asked;
    const wanted = this.search.value.trim().toLowerCase();
    const [all, said] = await Promise.all([this.store.list(), wanted ? this.store.holding(wanted) : null]);
    if (asked !== this.#asked) return; // a later question has its answer on the way
    const found = wanted ? all.filter((one) => one.title.toLowerCase().includes(wanted) || said.has(one.id)) : all;
    const groups = new Map();
    for (const record of found) {
      const name = group(record.updated);
      groups.set(name, [...(groups.get(name) ?? []), this.#row(record)]);
    }
    const lists = [...groups].map(([name, rows]) => [h("h2", { text: name }), h("ul", {}, rows)]);
    const none = wanted ? "Nothing found" : "No conversations yet";
    const shown = found.length ? lists.flat() : [h("p", { class: "none", text: none })];
    keepingFocus($("#chats"), () => $("#chats").replaceChildren(...shown), () => $("#new-chat"));
  }

  #row(record) {
    const open = h("button", {
      type: "button",
      class: "chat",
      dir: "auto",
      data: { act: "open" },
      text: record.title,
      title: record.title,
      "aria-current": record.id === this.current ? "page" : null,
      on: { click: () => this.act.open(record.id) },
    });
    const tools = h(
      "span",
      { class: "row-tools" },
      iconButton("pencil", `Rename ${record.title}`, () => this.act.rename(record), { data: { act: "rename" } }),
      iconButton("trash", `Delete ${record.title}`, () => this.act.remove(record), { data: { act: "remove" } }),
    );
    return h("li", { data: { id: record.id } }, open, tools);
  }
}
