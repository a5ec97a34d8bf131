// One conversation: its record (title, settings, chosen branches), its tree of messages, and the request for the next
// answer. Every change is kept at once.

import { newId } from "./dom.js";
import { readFormat, readTools } from "./schema.js";
import { Tree } from "./tree.js";
import { writtenElsewhere } from "./writing.js";

export const SETTINGS = {
  system: "",
  parameters: {},
  think: "",
  tools: "",
  toolChoice: "auto",
  format: "",
  probabilities: false,
  /** Of each model whose adapters were chosen: which of them answer. Of any other, all do. */
  adapters: {},
};
const LONGEST_TITLE = 80;

export class Conversation {
  static fresh(store, model, settings) {
    const now = Date.now();
    const record = { id: newId(), title: "New conversation", named: false, model, created: now, updated: now, chosen: {} };
    return new Conversation(store, { ...record, settings: { ...structuredClone(SETTINGS), ...settings } }, []);
  }

  static async load(store, id) {
    const record = await store.chat(id);
    if (!record) return null;
    const conversation = new Conversation(store, record, await store.messages(id));
    await conversation.#ask();
    return conversation;
  }

  constructor(store, record, messages) {
    this.store = store;
    this.record = { ...record, settings: { ...SETTINGS, ...record.settings } };
    this.tree = new Tree(messages, record.chosen);
    /** Ids of the messages that another tab is writing. */
    this.elsewhere = new Set();
  }

  /** Ask which of its messages other tabs are writing; where one of these ends, the store has news. */
  async #ask() {
    this.elsewhere = await writtenElsewhere([...this.tree.messages.values()], () => this.store.changed(this.id));
  }

  get id() {
    return this.record.id;
  }

  get settings() {
    return this.record.settings;
  }

  get empty() {
    return this.tree.messages.size === 0;
  }

  /** Keep the record and these messages. quiet: for the many states of an answer that is still coming. Where the browser
   * takes no more, the person is told, and what is shown stays. */
  async keep(messages = [], quiet = false) {
    if (this.gone) return;
    this.record.chosen = this.tree.chosen;
    if (!quiet) this.record.updated = Date.now();
    await this.store.put(quiet ? null : this.record, messages).catch((error) => this.store.unkept(error));
  }

  /** What other tabs have made of the record: true, or false where they have deleted the conversation. */
  async reread() {
    const record = await this.store.chat(this.id);
    if (record) this.record = { ...record, settings: { ...SETTINGS, ...record.settings } };
    this.gone = !record;
    return !this.gone;
  }

  /** What other tabs have added, too. */
  async reload() {
    if (!(await this.reread())) return false;
    this.tree = new Tree(await this.store.messages(this.id), { ...this.record.chosen, ...this.tree.chosen });
    await this.#ask();
    return true;
  }

  /** What another tab has written of one message; the others stay the same objects, and as they are drawn. */
  async grow(id) {
    const message = await this.store.message(this.id, id);
    if (!message || !this.tree.messages.has(id)) return this.reload();
    this.tree.messages.set(id, message);
    await this.#ask();
    return true;
  }

  /** A new message behind `parent` (null: the first one), shown from now on; not yet kept. */
  add(parent, fields) {
    const message = { chat: this.id, id: newId(), parent: parent?.id ?? null, at: Date.now(), content: "", ...fields };
    if (message.role === "user" && !this.record.named && this.empty) this.record.title = titleOf(message);
    return this.tree.add(message);
  }

  choose(message) {
    this.tree.choose(message);
    return this.keep();
  }

  /** What to send for an answer behind these messages. goOn: the last one is an answer to be continued. */
  request(messages, goOn) {
    const { system, parameters, think, toolChoice, probabilities, adapters } = this.settings;
    const tools = readTools(this.settings.tools);
    const format = readFormat(this.settings.format);
    if (tools.error) throw new Error(`Tools: ${tools.error}`);
    if (format.error) throw new Error(`Schema: ${format.error}`);
    const spoken = messages.map(messageOf);
    if (system.trim()) spoken.unshift({ role: "system", content: system });
    const body = { model: this.record.model, messages: spoken };
    if (tools.value) Object.assign(body, { tools: tools.value, tool_choice: toolChoice || "auto" });
    if (format.value !== undefined) body.format = format.value;
    if (probabilities) body.top_logprobs = 5;
    if (Object.hasOwn(adapters, this.record.model)) body.adapters = adapters[this.record.model];
    if (goOn) body.continue_final = true;
    return { ...body, parameters: think ? { ...parameters, think } : parameters };
  }
}

/** The first words of a message. */
export function titleOf(message) {
  const words = (message.content || message.files?.[0]?.name || "").trim().replace(/\s+/g, " ");
  return words.length > LONGEST_TITLE ? `${words.slice(0, LONGEST_TITLE - 1)}…` : words || "New conversation";
}

/** A message as the model reads it. */
export function messageOf(message) {
  if (message.role === "user") return { role: "user", content: withFiles(message) };
  if (message.role === "tool")
    return { role: "tool", content: message.content, tool_call_id: message.callId, name: message.name };
  const said = { role: "assistant", content: message.content };
  if (message.thinking) said.thinking = message.thinking;
  if (message.calls?.length)
    said.tool_calls = message.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: argumentsOf(call) },
    }));
  return said;
}

/** The JSON text of an object, as the model wrote it: read and written anew, an id of 20 digits would be another one. What
 * is no JSON object is left out: it must not spoil every later answer. */
function argumentsOf(call) {
  try {
    const value = JSON.parse(call.arguments);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? call.arguments : "{}";
  } catch {
    return "{}";
  }
}

/** The text of a message with its files behind it, each in a fence that is longer than any in the file. */
export function withFiles({ content, files = [] }) {
  const blocks = files.map(({ name, text }) => {
    const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (match) => match[0].length));
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text}\n${fence}`;
  });
  return [content, ...blocks].filter(Boolean).join("\n\n");
}
