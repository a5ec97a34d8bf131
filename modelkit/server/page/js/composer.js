// Where a message is written: text, and files of text that are attached, pasted or dropped.

import { $, composes, directionOf, h, icon, iconButton } from "./dom.js";
import { Drafts } from "./drafts.js";
import { bytes } from "./numbers.js";

const LARGEST_BYTES = 1_000_000;
const MOST_FILES = 20;
/** Characters that fill more than the box may have on any screen: it is not measured anew at each key, which would take
 * longer than the key. */
const LONG = 20_000;

export class Composer {
  #drafts = new Drafts();
  #place = null;
  #fresh = null;
  #files = [];
  #long = false;

  /** send: called with (text, files); stop: called while an answer runs; say: tells the person something. */
  constructor({ send, stop, say }) {
    Object.assign(this, { send, stop, say, running: false });
    this.text = $("#message");
    this.button = $("#send");
    $("#composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || composes(event)) return;
      event.preventDefault();
      if (!this.running) this.#submit();
    });
    this.text.addEventListener("input", () => this.#fit());
    this.text.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    $("#attach").addEventListener("click", () => $("#file").click());
    $("#file").addEventListener("change", async (event) => {
      await this.add([...event.target.files]);
      event.target.value = "";
    });
    this.#dropping(document.body);
    addEventListener("pagehide", () => {
      this.#putAway();
      this.#drafts.write();
    });
  }

  /** Show what was typed for this conversation. empty: nothing was said in it yet, so that it has no name of its own. */
  at(id, empty) {
    const place = empty ? "" : id;
    const begun = this.#place === "" && place === this.#fresh; // what is typed behind its first message stays
    const early = this.#place === null && this.text.value !== ""; // typed before the page was ready
    if (empty) this.#fresh = id;
    if (place === this.#place) return;
    if (!begun) this.#putAway();
    this.#place = place;
    if (!begun && !early) this.#fill();
  }

  /** The conversation is deleted, and so is what was typed for it. */
  forget(id) {
    if (id === this.#place) {
      this.text.value = "";
      this.#files = [];
    }
    this.#drafts.keep(id, "", []);
  }

  #putAway() {
    if (this.#place !== null) this.#drafts.keep(this.#place, this.text.value, this.#files);
  }

  #fill() {
    const { text, files } = this.#drafts.of(this.#place);
    this.text.value = text;
    this.#files = files;
    this.#list();
    this.#fit();
  }

  focus() {
    this.text.focus();
  }

  /** An answer runs (the button stops it), or not. */
  show(running) {
    this.running = running;
    const label = running ? "Stop" : "Send";
    this.button.replaceChildren(icon(running ? "stop" : "send"));
    this.button.setAttribute("aria-label", label);
    this.button.title = running ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stops", running);
  }

  #submit() {
    if (this.running) return this.stop();
    const text = this.text.value.trim();
    if (!text && !this.#files.length) return this.focus();
    const files = this.#files;
    if (this.send(text, files) === false) return;
    this.text.value = "";
    this.#files = [];
    this.#list();
    this.#fit();
    this.focus();
  }

  #fit() {
    const { text } = this;
    text.dir = directionOf(text.value);
    const long = text.value.length > LONG;
    if (long && this.#long) return;
    this.#long = long;
    text.style.height = "auto";
    text.style.height = long ? "100vh" : `${text.scrollHeight}px`;
  }

  #take(event, data) {
    const files = [...(data?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  #dropping(place) {
    const over = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      place.classList.toggle("dropping", event.type !== "drop");
    };
    place.addEventListener("dragover", over);
    place.addEventListener("drop", (event) => {
      over(event);
      this.#take(event, event.dataTransfer);
    });
    place.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) place.classList.remove("dropping");
    });
  }

  /** Attach these files, if they are text. */
  async add(files) {
    const refused = [];
    for (const file of files) {
      const reason = await this.#read(file);
      if (reason) refused.push(`${file.name}: ${reason}`);
    }
    if (refused.length) this.say(refused.join(" · "));
    this.#list();
    this.focus();
  }

  async #read(file) {
    if (file.size > LARGEST_BYTES) return `larger than ${bytes(LARGEST_BYTES)}, the most that can be attached`;
    if (this.#files.length >= MOST_FILES) return `at most ${MOST_FILES} files can be attached`;
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      return "not a text in UTF-8";
    }
    if (text.includes("\0")) return "not a text";
    this.#files.push({ name: file.name, text });
    return null;
  }

  #list() {
    const list = $("#files");
    const remove = (file) => {
      this.#files = this.#files.filter((one) => one !== file);
      this.#list();
      this.focus();
    };
    list.replaceChildren(
      ...this.#files.map((file) =>
        h("li", {}, icon("clip"), h("span", { text: file.name }), iconButton("close", `Remove ${file.name}`, () => remove(file))),
      ),
    );
    list.hidden = !this.#files.length;
  }
}
