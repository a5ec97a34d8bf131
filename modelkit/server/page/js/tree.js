// A conversation with branches: every message knows the one before it; messages with the same one before them are
// siblings, of which one is shown. Pure: no page, no store.

export class Tree {
  /** messages: {id, parent, at, ...}; chosen: {parent's id or "": id of the child that is shown}. */
  constructor(messages = [], chosen = {}) {
    this.messages = new Map();
    this.children = new Map();
    this.chosen = { ...chosen };
    for (const message of [...messages].sort((one, other) => one.at - other.at)) this.#place(message);
  }

  #place(message) {
    const parent = message.parent ?? "";
    this.messages.set(message.id, message);
    if (!this.children.has(parent)) this.children.set(parent, []);
    this.children.get(parent).push(message.id);
  }

  /** Add a message; it and what is before it are shown from now on. */
  add(message) {
    this.#place(message);
    this.choose(message);
    return message;
  }

  /** The messages that are shown, first to last. A choice that is gone falls back to the newest sibling. */
  path() {
    const shown = [];
    const seen = new Set();
    for (let parent = ""; ; ) {
      const ids = this.children.get(parent);
      if (!ids) return shown;
      const id = ids.includes(this.chosen[parent]) ? this.chosen[parent] : ids.at(-1);
      if (seen.has(id)) return shown; // a file that was imported may tie messages into a ring
      seen.add(id);
      shown.push(this.messages.get(id));
      parent = id;
    }
  }

  /** Those that stand where this message stands, it among them, oldest first. */
  siblings(message) {
    return this.children.get(message.parent ?? "").map((id) => this.messages.get(id));
  }

  /** Show this message, and those before it. */
  choose(message) {
    const seen = new Set();
    for (let at = message; at && !seen.has(at.id); at = this.messages.get(at.parent)) {
      seen.add(at.id);
      this.chosen[at.parent ?? ""] = at.id;
    }
  }

  /** The shown messages before this one. */
  before(message) {
    const path = this.path();
    const place = path.indexOf(message);
    return place < 0 ? path : path.slice(0, place);
  }
}
