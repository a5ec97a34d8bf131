// One message on the page. `show` draws all of it; `grow` only what an answer adds while it comes.

import { wasLeft } from "./answering.js";
import { callCards } from "./calls.js";
import { copyButton } from "./code.js";
import { withFiles } from "./conversation.js";
import { composes, directionOf, h, icon, iconButton } from "./dom.js";
import { Growing, showMarkdown } from "./markdown.js";
import { count, plural, seconds, sentences } from "./numbers.js";
import { coloured } from "./probabilities.js";
import { reuseNote, statsLine } from "./stats.js";

const WAITS = { queue: "Waiting for the model…", reading: "Reading the prompt…" };

export class MessageView {
  #growing = null;
  #thoughts = null;
  #shown = null;

  /** act: what the buttons do, see app.js; each gets the message first. */
  constructor(message, act) {
    Object.assign(this, { message, act, editing: false, colours: false, drafts: {}, answering: false });
    this.element = h("article", { class: `message ${message.role}`, data: { id: message.id } });
  }

  /** around: {siblings, results, resultSiblings, last, running, elsewhere, stats}, what the message has around it. */
  show(around) {
    this.around = around;
    const state = around.running ? null : this.#state();
    if (state && this.#shown?.length === state.length && state.every((value, place) => value === this.#shown[place])) return;
    this.#shown = state;
    this.#growing = this.#thoughts = null;
    if (this.element.querySelector(".editor") && this.editing) return; // what was typed stays, and the caret in it
    const { message } = this;
    this.element.setAttribute("aria-label", message.role === "user" ? "You" : `Answer${message.model ? ` of ${message.model}` : ""}`);
    this.element.setAttribute("aria-busy", String(around.running || around.elsewhere));
    const parts = this.editing ? [this.#editor()] : message.role === "user" ? this.#asked() : this.#answered();
    this.element.replaceChildren(...parts.filter(Boolean));
  }

  /** All that it is drawn from. Where nothing of it is another, the message stays as it is: with what is selected in it, and
   * without reading its Markdown again, for each message of a long conversation whenever an answer begins or ends. */
  #state() {
    const { message, around, editing, colours, answering } = this;
    const { siblings, results, resultSiblings, last, elsewhere, stats } = around;
    return [...Object.entries(message).flat(), ...siblings, "results", ...results, resultSiblings?.shown, ...(resultSiblings?.all ?? []), last, elsewhere, stats, editing, colours, answering];
  }

  #asked() {
    const { content, files = [] } = this.message;
    const attached = files.map(({ name, text }) =>
      h("details", { class: "file" }, h("summary", {}, icon("clip"), name), h("pre", { tabindex: "0", role: "group", "aria-label": name, text })),
    );
    const bubble = h("div", { class: "bubble" }, content && h("p", { class: "asked", dir: directionOf(content), text: content }), attached);
    return [bubble, this.#foot([this.#copy(() => withFiles(this.message)), this.#button("pencil", "Edit", () => this.#edit())])];
  }

  #answered() {
    const { message, around } = this;
    const body = h("div", { class: "prose" });
    if (this.colours && message.tokens) body.append(coloured(message.tokens));
    else if (around.running) (this.#growing = new Growing(body)).show(message.content);
    else showMarkdown(body, message.content);
    return [
      this.#thinking(),
      this.#waiting(),
      body,
      ...this.#calls(),
      this.#error(),
      ...(around.running || around.elsewhere ? [] : [statsLine(message), this.#foot(this.#buttons())]),
    ];
  }

  #waiting() {
    const { message, around } = this;
    if (around.elsewhere) return h("p", { class: "waiting" }, h("span", { class: "pulse" }), "Another tab is writing this answer…");
    const quiet = around.running && !message.content && !message.thinking && !message.calls?.length;
    if (!quiet) return null;
    const { reading } = message;
    const far = reading ? ` ${count(reading.read)} of ${count(reading.total)} tokens` : "";
    return h("p", { class: "waiting" }, h("span", { class: "pulse" }), (reading ? WAITS.reading : WAITS.queue) + far);
  }

  #thinking() {
    const { message, around } = this;
    if (!message.thinking) return null;
    const summary = h("summary", { text: this.#thoughtFor() });
    const text = h("div", { class: "prose" });
    const box = h("details", { class: "thinking" }, summary, text);
    box.open = this.thinkingOpen ?? false;
    box.addEventListener("toggle", () => (this.thinkingOpen = box.open));
    if (around.running) {
      this.#thoughts = { summary, text: new Growing(text) };
      this.#thoughts.text.show(message.thinking);
    } else showMarkdown(text, message.thinking);
    return box;
  }

  #thoughtFor() {
    const { thinkingS, thinkingFrom } = this.message;
    if (thinkingS !== undefined) return `Thought for ${seconds(thinkingS)}`;
    if (!this.around.running || thinkingFrom === undefined) return "Thinking";
    return `Thinking… ${seconds((performance.now() - thinkingFrom) / 1000)}`;
  }

  #calls() {
    const { message, around } = this;
    const open = (around.last || this.answering) && !around.running && message.calls?.length;
    return callCards(message, around.results, open ? this.drafts : null, (results) => {
      this.answering = false;
      this.act.results(message, results);
    });
  }

  #error() {
    const left = wasLeft(this.message, this.around);
    const error = left ? { message: "The page was left in the middle of this answer.", retryAfter: null } : this.message.error;
    if (!error) return null;
    const again = error.retryAfter !== null ? ` Try again in ${plural(error.retryAfter, "second")}.` : "";
    const retry = h("button", { type: "button", on: { click: () => this.act.again(this.message) } }, icon("again"), "Try again");
    return h("div", { class: "error", role: "alert" }, h("p", { text: sentences(error.message) + again }), retry);
  }

  #buttons() {
    const { message, around, act } = this;
    const broken = ["length", "cancelled", null].includes(message.reason ?? null) || Boolean(message.error);
    return [
      message.content && this.#copy(() => message.content),
      this.#button("again", "Regenerate", () => act.again(message)),
      around.last && broken && message.content && this.#button("forward", "Continue", () => act.goOn(message), true),
      this.#button("pencil", "Edit", () => this.#edit()),
      message.calls?.length && !around.last && this.#button("tool", "Change results", () => this.#reanswer()),
      message.tokens && this.#button("drop", "Probabilities", () => this.#colour()),
    ];
  }

  #button(drawing, label, click, worded = false) {
    if (worded) return h("button", { type: "button", class: "quiet small", on: { click } }, icon(drawing), label);
    const pressed = drawing === "drop" ? { "aria-pressed": String(this.colours) } : {};
    return iconButton(drawing, label, click, pressed);
  }

  #copy(text) {
    return copyButton(text);
  }

  #foot(buttons) {
    const { siblings, resultSiblings } = this.around;
    const row = [...buttons, this.#branches(this.message, siblings, "version"), resultSiblings && this.#branches(resultSiblings.shown, resultSiblings.all, "results")];
    return h("div", { class: "foot" }, ...row.filter(Boolean));
  }

  /** Arrows between siblings, and what the branch cost. */
  #branches(shown, all, name) {
    if (all.length < 2) return null;
    const place = all.indexOf(shown);
    const step = (drawing, label, to) => {
      const button = iconButton(drawing, label, () => this.act.choose(all[to]));
      button.disabled = !all[to];
      return button;
    };
    return h(
      "span",
      { class: "branches", role: "group", "aria-label": `Choice of ${name}` },
      step("left", `Earlier ${name}`, place - 1),
      h("span", { text: `${place + 1} of ${all.length}` }),
      step("right", `Later ${name}`, place + 1),
      reuseNote(this.around.stats),
    );
  }

  #edit() {
    this.editing = true;
    this.show(this.around);
    this.element.querySelector("textarea").focus();
  }

  #reanswer() {
    this.answering = true;
    this.show(this.around);
    this.element.querySelector(".result-box textarea")?.focus();
  }

  #colour() {
    this.colours = !this.colours;
    this.show(this.around);
    this.element.querySelector("[aria-pressed]").focus();
  }

  #editor() {
    const { message } = this;
    const asked = message.role === "user";
    const text = h("textarea", { "aria-label": asked ? "Edit the message" : "Edit the answer", rows: "3", dir: directionOf(message.content) });
    text.value = message.content;
    const leave = () => {
      this.editing = false;
      this.show(this.around);
      this.element.querySelector("button[aria-label=Edit]")?.focus();
    };
    const done = () => (this.editing = !this.act.edited(message, text.value));
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (event.key === "Enter" && !event.shiftKey && asked && !composes(event)) done();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = [
      h("button", { type: "button", class: "main", text: asked ? "Send" : "Keep", on: { click: done } }),
      h("button", { type: "button", class: "quiet", text: "Cancel", on: { click: leave } }),
    ];
    return h("div", { class: "editor" }, text, h("div", { class: "row" }, buttons));
  }

  /** What has come since. */
  grow() {
    const { message } = this;
    if (this.colours || !this.#growing || message.calls?.length || (message.thinking && !this.#thoughts) || this.element.querySelector(".waiting")) {
      return this.show(this.around); // the parts of the message have changed
    }
    if (this.#thoughts) {
      this.#thoughts.summary.textContent = this.#thoughtFor();
      this.#thoughts.text.show(message.thinking);
    }
    this.#growing.show(message.content);
  }
}
