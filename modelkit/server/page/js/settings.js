// What one conversation asks of the model: system text, parameters, form, tools. An empty field is the server's own
// value, which its placeholder shows.

import { $, h } from "./dom.js";
import { forget, recall, remember } from "./local.js";
import { readFormat, readTools } from "./schema.js";

const DEFAULTS = "settings";

/** [PARAMETER, label, step, least, most]. */
const PARAMETERS = [
  ["temperature", "Temperature", 0.05, 0, 100],
  ["top_p", "Top p", 0.05, 0, 1],
  ["top_k", "Top k", 1, 0, 1_000_000],
  ["min_p", "Min p", 0.01, 0, 1],
  ["repeat_penalty", "Repeat penalty", 0.05, 0, 100],
  ["presence_penalty", "Presence penalty", 0.1, -100, 100],
  ["num_predict", "Most tokens", 1, -2, 10_000_000],
  ["seed", "Seed", 1, -1, Number.MAX_SAFE_INTEGER],
];

/** Settings that new conversations begin with. */
export const keptSettings = () => recall(DEFAULTS) ?? {};

/** The values of "name value" lines, as /api/show gives them. */
function defaultsOf(about) {
  const found = {};
  for (const line of (about?.parameters ?? "").split("\n")) {
    const [name, value] = line.trim().split(/\s+(.*)/);
    if (name) (found[name] ??= []).push((value ?? "").replace(/^"(.*)"$/, "$1"));
  }
  return found;
}

export class Settings {
  /** changed: called after every change; the conversation holds it by then. */
  constructor(changed) {
    Object.assign(this, { changed, conversation: null, about: null, defaults: {} });
    this.fields = new Map();
    for (const [name, label, step, least, most] of PARAMETERS) {
      const field = h("input", { type: "number", step, min: least, max: most, inputmode: "decimal", autocomplete: "off" });
      field.addEventListener("input", () => this.#take());
      this.fields.set(name, field);
      $("#parameters").append(h("label", {}, label, field));
    }
    for (const id of ["system", "stop-texts", "format", "tools"]) $(`#${id}`).addEventListener("input", () => this.#take());
    for (const id of ["tool-choice", "probabilities", "think"]) $(`#${id}`).addEventListener("change", () => this.#take());
    $("#open-settings").addEventListener("click", () => $("#settings").showModal());
    $("#keep-settings").addEventListener("click", () => this.#keep());
    $("#reset-settings").addEventListener("click", () => this.#reset());
  }

  /** Show this conversation's settings, with what the model's own are: none where the server says nothing (null), nothing
   * where it has not said it yet (undefined), since a general value would be taken for the model's. */
  show(conversation, about) {
    Object.assign(this, { conversation, about });
    const { settings } = conversation;
    const own = defaultsOf(about);
    const general = about === undefined ? {} : this.defaults;
    for (const [name, field] of this.fields) {
      field.value = settings.parameters[name] ?? "";
      field.placeholder = own[name]?.[0] ?? general[name] ?? "";
    }
    $("#stop-texts").value = [settings.parameters.stop ?? []].flat().join("\n");
    $("#stop-texts").placeholder = own.stop?.join("\n") ?? "";
    $("#system").value = settings.system;
    $("#system").placeholder = about?.system || "How the model shall answer";
    this.#showAdapters(about?.adapters ?? []);
    $("#format").value = settings.format;
    $("#tools").value = settings.tools;
    $("#probabilities").checked = settings.probabilities;
    $("#think").value = settings.think;
    $("#think-choice").hidden = !about?.capabilities?.includes("thinking") && !settings.think;
    this.#check(settings.toolChoice);
  }

  /** All that a package has answer together, unless some of them are chosen. */
  #showAdapters(names) {
    const chosen = this.conversation.settings.adapters[this.conversation.record.model] ?? names;
    $("#adapters").hidden = !names.length;
    const boxes = names.map((name) => {
      const box = h("input", { type: "checkbox", value: name, on: { change: () => this.#take() } });
      box.checked = chosen.includes(name);
      return h("label", { class: "line" }, box, name);
    });
    $("#adapter-list").replaceChildren(...boxes);
  }

  #takeAdapters() {
    const { settings, record } = this.conversation;
    const boxes = [...$("#adapter-list").querySelectorAll("input")];
    if (!boxes.length) return; // what the model has is not known yet
    const { [record.model]: _, ...others } = settings.adapters;
    const all = boxes.every((box) => box.checked);
    settings.adapters = all ? others : { ...others, [record.model]: boxes.filter((box) => box.checked).map((box) => box.value) };
  }

  /** What holds where neither the package nor the person says anything. */
  setDefaults(defaults) {
    this.defaults = defaults;
    if (this.conversation) this.show(this.conversation, this.about);
  }

  #take() {
    const { settings } = this.conversation;
    const parameters = {};
    for (const [name, field] of this.fields) {
      field.setAttribute("aria-invalid", String(!field.validity.valid));
      if (field.value !== "" && field.validity.valid) parameters[name] = field.valueAsNumber;
    }
    const stops = $("#stop-texts").value.split("\n").filter(Boolean);
    if (stops.length) parameters.stop = stops;
    settings.parameters = parameters;
    settings.system = $("#system").value;
    settings.format = $("#format").value;
    settings.tools = $("#tools").value;
    settings.probabilities = $("#probabilities").checked;
    settings.think = $("#think").value;
    this.#takeAdapters();
    this.#check($("#tool-choice").value);
    settings.toolChoice = $("#tool-choice").value;
    this.changed();
  }

  /** Say what is wrong with the form and the tools, and offer what can be chosen. wanted: the use of tools that is. */
  #check(wanted) {
    const format = readFormat($("#format").value);
    this.#note("format", format, format.value === "json" ? "Any JSON object" : "The answer follows this schema");
    const tools = readTools($("#tools").value);
    const names = (tools.value ?? []).map((tool) => tool.function.name);
    this.#note("tools", tools, `The model may call ${names.join(", ")}`);
    const choice = $("#tool-choice");
    const fixed = { auto: "as the model likes", none: "none", required: "at least one" };
    const options = [...Object.entries(fixed), ...names.map((name) => [name, `always ${name}`])];
    choice.replaceChildren(...options.map(([value, text]) => h("option", { value, text })));
    choice.value = options.some(([value]) => value === wanted) ? wanted : "auto";
    choice.disabled = !names.length;
  }

  #note(id, { value, error }, fine) {
    const note = $(`#${id}-note`);
    note.textContent = error ?? (value === undefined ? "" : fine);
    note.classList.toggle("wrong", Boolean(error));
    $(`#${id}`).setAttribute("aria-invalid", String(Boolean(error)));
  }

  #keep() {
    const kept = remember(DEFAULTS, this.conversation.settings);
    const button = $("#keep-settings");
    button.textContent = kept ? "Kept" : "This browser keeps nothing";
    setTimeout(() => (button.textContent = "Use for new conversations"), 1500);
  }

  #reset() {
    forget(DEFAULTS);
    for (const field of this.fields.values()) field.value = "";
    for (const id of ["system", "stop-texts", "format", "tools", "think"]) $(`#${id}`).value = "";
    $("#tool-choice").value = "auto";
    $("#probabilities").checked = false;
    for (const box of $("#adapter-list").querySelectorAll("input")) box.checked = true;
    this.#take();
  }
}
