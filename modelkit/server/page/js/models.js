// Models: which there are, which are in memory and what they take there, which one answers.

import { $, h, keepingFocus } from "./dom.js";
import { recall, remember } from "./local.js";
import { bytes, count, taken } from "./numbers.js";
import * as wire from "./wire.js";

const AGAIN_MS = 500;
const LAST = "model";
const STATES = { opening: "loading", waiting: "waits for memory", loading: "loading", ready: "loaded", leaving: "leaving" };

/** Asks, and takes what is answered; an answer that comes behind one to a later question is old, and left out. */
function inOrder(ask, take) {
  let asked = 0;
  let taken = 0;
  return async () => {
    const place = ++asked;
    const answer = await ask();
    if (place < taken) return;
    taken = place;
    take(answer);
  };
}

export class Models {
  #about = new Map();
  #defaults = null;
  #askAll = inOrder(wire.models, (all) => (this.all = all));
  #askLoaded = inOrder(wire.loaded, (loaded) => (this.loaded = loaded));

  /** changed: called when the list or the choice is another; failed: called with an error, or null once all is well;
   * defaulted: called once with the values that parameters have. */
  constructor({ changed, failed, defaulted }) {
    Object.assign(this, { changed, failed, defaulted, all: [], loaded: [], busy: new Set(), wanted: recall(LAST) ?? "" });
    this.select = $("#model");
    this.select.addEventListener("change", () => this.choose(this.select.value));
    $("#open-models").addEventListener("click", () => {
      $("#models").showModal();
      this.refresh();
    });
  }

  /** Those that can be talked to: some make embeddings and write no text. */
  get writers() {
    return this.all.filter(({ capabilities }) => !capabilities || capabilities.includes("completion"));
  }

  /** Before the list is there, the one that is to be chosen of it. */
  get chosen() {
    return this.select.value || this.wanted;
  }

  /** What memory and context a model has, where it is loaded. Names of one package share it. */
  state(name) {
    const bare = (digest) => digest?.replace(/^sha256:/, "");
    const digest = bare(this.all.find((one) => one.name === name)?.digest);
    return this.loaded.find((one) => one.name === name || (digest && bare(one.digest) === digest)) ?? null;
  }

  choose(name) {
    if (!this.all.length) this.wanted = name;
    else if (this.writers.some((one) => one.name === name)) this.select.value = name;
    if (this.chosen) remember(LAST, this.chosen);
    this.changed();
  }

  /** Ask the server for its models. */
  async refresh() {
    try {
      await Promise.all([this.#askAll(), this.#askLoaded()]);
      this.failed(null);
      if (!this.#defaults) this.defaulted((this.#defaults = await wire.defaults()));
    } catch (error) {
      return this.failed(error);
    }
    const { writers } = this;
    const wanted = [this.chosen, ...this.loaded.map(({ name }) => name)].find((name) => writers.some((one) => one.name === name));
    this.select.replaceChildren(...writers.map(({ name }) => h("option", { value: name, text: name.replace(/:latest$/, "") })));
    if (!writers.length) this.select.append(h("option", { value: "", text: "no models" }));
    if (wanted) this.select.value = wanted;
    this.#list();
    this.changed();
    clearTimeout(this.again);
    const moving = this.loaded.some((one) => one.state !== "ready");
    if (moving && $("#models").open) this.again = setTimeout(() => this.refresh(), AGAIN_MS);
  }

  /** Only what is in memory. */
  async look() {
    try {
      await this.#askLoaded();
      this.changed();
    } catch {
      // the numbers stay as they were; whoever asks for an answer hears of it
    }
  }

  /** What the server says of a model: capabilities, parameters; null where it says nothing, undefined before the list is there. */
  async about(name) {
    if (!name) return this.select.length ? null : undefined;
    const key = `${name} ${this.all.find((one) => one.name === name)?.digest}`; // another package may get the name
    if (!this.#about.has(key)) this.#about.set(key, wire.about(name).catch(() => (this.#about.delete(key), null)));
    return this.#about.get(key);
  }

  #list() {
    $("#models-note").textContent = this.all.length ? "" : "There is no model yet. `modelkit create` or `modelkit pull` makes one.";
    const rows = this.all.map((model) => this.#row(model));
    keepingFocus($("#model-list"), () => $("#model-list").replaceChildren(...rows), () => $("#models button"));
  }

  #row({ name, size, details, capabilities }) {
    const state = this.state(name);
    const kind = !capabilities || capabilities.includes("completion") ? null : "makes embeddings";
    const said = [kind, details?.parameter_size, details?.quantization_level, size ? `${bytes(size)} on disk` : null];
    if (state) said.push(`${bytes(taken(state))} in memory`, `${count(state.context_tokens)} tokens of context`);
    if (state?.drafters.length) said.push(`drafts by ${state.drafters.join(", ")}`);
    const busy = this.busy.has(name) || (state && state.state !== "ready");
    const goes = this.busy.has(name) ? state : state?.state === "leaving";
    const label = busy ? (goes ? "Unloading…" : "Loading…") : state ? "Unload" : "Load";
    const named = { "aria-label": `${label} ${name}`, "aria-disabled": busy ? "true" : null, data: { act: "switch" } };
    const button = h("button", { type: "button", text: label, ...named, on: { click: () => busy || this.#switch(name, state) } });
    return h(
      "li",
      { class: state ? "loaded" : "", data: { id: name } },
      h("span", { class: "dot", title: state ? "in memory" : "on disk" }),
      h("div", {}, h("strong", { text: name }), h("p", { text: [state ? STATES[state.state] : "not loaded", ...said].filter(Boolean).join(" · ") })),
      button,
    );
  }

  async #switch(name, state) {
    this.busy.add(name);
    this.#list();
    let said = "";
    try {
      await (state ? wire.unload(name) : wire.load(name));
    } catch (error) {
      said = `${name}: ${error.message}`;
    }
    this.busy.delete(name);
    await this.refresh();
    $("#models-note").textContent ||= said;
  }
}
