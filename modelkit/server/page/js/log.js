// The list of messages that are shown, and where it is scrolled to: at its end it follows an answer, anywhere else it
// stays where the reader is.

import { $, keepingFocus } from "./dom.js";
import { MessageView } from "./message.js";

const NEAR_PX = 60;

export class Log {
  #views = new Map();

  constructor(act) {
    this.act = act;
    this.scroll = $("#scroll");
    this.list = $("#log");
    this.follows = true;
    this.scroll.addEventListener("scroll", () => this.#look(), { passive: true });
    $("#latest").addEventListener("click", () => this.end());
    // Formulas and colours come later than their text, and make it longer.
    new ResizeObserver(() => this.follows && this.end()).observe(this.list);
  }

  #look() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    $("#latest").hidden = this.follows;
  }

  /** Go to the newest message, and follow it. */
  end() {
    this.follows = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    $("#latest").hidden = true;
  }

  /** Draw the conversation. running: the message that is being answered, or null. */
  show(conversation, running) {
    keepingFocus(this.list, () => this.#draw(conversation, running), (had) => $(had.matches("textarea") ? "#message" : "#send"));
    if (this.follows) this.end();
  }

  #draw(conversation, running) {
    const path = conversation.tree.path();
    const views = new Map();
    path.forEach((message, place) => {
      if (message.role === "tool") return;
      const view = this.#views.get(message.id) ?? new MessageView(message, this.act);
      view.message = message;
      views.set(message.id, view);
      view.show(around(conversation, path, place, running));
    });
    this.#views = views;
    this.#place([...views.values()].map((view) => view.element));
    $("#welcome").hidden = path.length > 0;
  }

  /** Elements that stand where they should are not touched: they would lose what is selected and scrolled in them. */
  #place(elements) {
    const wanted = new Set(elements);
    for (const one of [...this.list.children]) if (!wanted.has(one)) one.remove();
    elements.forEach((element, place) => {
      const there = this.list.children[place] ?? null;
      if (there !== element) this.list.insertBefore(element, there);
    });
  }

  /** An answer has grown. */
  grow(message) {
    this.#views.get(message.id)?.grow();
    if (this.follows) this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}

/** What a message has around it. */
function around({ tree, elsewhere }, path, place, running) {
  const message = path[place];
  let end = place + 1;
  while (path[end]?.role === "tool") end += 1;
  const results = path.slice(place + 1, end);
  const answer = message.role === "assistant" ? message : path[place + 1];
  return {
    siblings: tree.siblings(message),
    results,
    resultSiblings: results.length ? { shown: results[0], all: tree.siblings(results[0]) } : null,
    last: end === path.length && !results.length,
    running: running === message,
    elsewhere: running !== message && elsewhere.has(message.id),
    stats: answer?.stats ?? null,
  };
}
