// Conversations in files: JSON to move them, Markdown to read them. What is imported is as hostile as what a model
// writes: every field is checked and copied, ids are new, and the texts go the same way as all others.

import { h, newId } from "./dom.js";
import { SETTINGS, withFiles } from "./conversation.js";
import { Tree } from "./tree.js";

const KIND = "modelkit conversations";
const LARGEST_BYTES = 200_000_000;
const ROLES = ["user", "assistant", "tool"];

/** Give the browser a file to save. */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A name that every file system takes. */
export const fileName = (title, ending) => `${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation"}.${ending}`;

/** All branches of these conversations: [{record, messages}]. */
export function toJson(conversations) {
  const plain = conversations.map(({ record, messages }) => ({ ...record, messages }));
  return JSON.stringify({ kind: KIND, version: 1, conversations: plain }, null, 1);
}

/** The shown branch of one conversation. */
export function toMarkdown({ record, messages }) {
  const parts = [`# ${record.title}`];
  if (record.settings?.system?.trim()) parts.push(`## System\n\n${record.settings.system}`);
  for (const message of new Tree(messages, record.chosen).path()) {
    if (message.role === "user") parts.push(`## You\n\n${withFiles(message)}`);
    else if (message.role === "tool") parts.push(`## Result of ${message.name}\n\n${fenced(message.content)}`);
    else parts.push(`## ${message.model || "Answer"}\n\n${answered(message)}`);
  }
  return `${parts.join("\n\n")}\n`;
}

function answered(message) {
  const thought = message.thinking ? [`<details><summary>Thinking</summary>\n\n${message.thinking}\n\n</details>`] : [];
  const calls = (message.calls ?? []).map((call) => `Calls \`${call.name}\`:\n\n${fenced(call.arguments, "json")}`);
  return [...thought, message.content, ...calls].filter(Boolean).join("\n\n");
}

const fenced = (text, language = "") => `\`\`\`\`${language}\n${text}\n\`\`\`\``;

/** [{record, messages}] of a file. Raises an Error that says what is wrong with it. */
export async function fromFile(file) {
  if (file.size > LARGEST_BYTES) throw new Error("the file is too large");
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error("it holds no JSON");
  }
  if (value?.kind !== KIND || !Array.isArray(value.conversations)) throw new Error("it holds no conversations of this page");
  return value.conversations.map(readConversation);
}

const text = (value, otherwise = "") => (typeof value === "string" ? value : otherwise);
const number = (value, otherwise) => (Number.isFinite(value) ? value : otherwise);
const object = (value) => (typeof value === "object" && value !== null && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value : []);

function readConversation(given) {
  const now = Date.now();
  const id = newId();
  const ids = new Map(list(given?.messages).map((message) => [message?.id, newId()]));
  const messages = list(given?.messages).filter((message) => ROLES.includes(message?.role)).map((message) => readMessage(message, id, ids));
  const chosen = Object.entries(object(given?.chosen)).map(([parent, child]) => [ids.get(parent) ?? "", ids.get(child) ?? ""]);
  return {
    record: {
      id,
      title: text(given?.title, "Imported conversation").slice(0, 200),
      named: given?.named === true,
      model: text(given?.model),
      created: number(given?.created, now),
      updated: number(given?.updated, now),
      chosen: Object.fromEntries(chosen),
      settings: readSettings(object(given?.settings)),
    },
    messages,
  };
}

function readSettings(given) {
  const settings = structuredClone(SETTINGS);
  for (const name of ["system", "think", "tools", "toolChoice", "format"]) settings[name] = text(given[name], settings[name]);
  settings.probabilities = given.probabilities === true;
  for (const [name, value] of Object.entries(object(given.parameters)))
    if (Number.isFinite(value) || (name === "stop" && list(value).every((one) => typeof one === "string"))) settings.parameters[name] = value;
  for (const [model, names] of Object.entries(object(given.adapters))) if (Array.isArray(names)) settings.adapters[model] = names.map((name) => text(name));
  return settings;
}

function readMessage(given, chat, ids) {
  const message = {
    chat,
    id: ids.get(given.id),
    parent: ids.get(given.parent) ?? null,
    at: number(given.at, Date.now()),
    role: given.role,
    content: text(given.content),
  };
  if (given.role === "user") message.files = list(given.files).map((file) => ({ name: text(file?.name, "file"), text: text(file?.text) }));
  if (given.role === "tool") Object.assign(message, { callId: text(given.callId), name: text(given.name), failed: given.failed === true });
  if (given.role === "assistant") Object.assign(message, readAnswer(given));
  return message;
}

function readAnswer(given) {
  const stats = Object.fromEntries(Object.entries(object(given.stats)).filter(([, value]) => Number.isFinite(value)));
  const tokens = list(given.tokens).map(readToken);
  return {
    model: text(given.model),
    thinking: text(given.thinking),
    thinkingS: number(given.thinkingS),
    calls: list(given.calls).map((call) => ({ id: text(call?.id), name: text(call?.name), arguments: text(call?.arguments) })),
    reason: text(given.reason, null),
    cut: text(given.cut, null),
    stats: Number.isFinite(stats.prompt_tokens) && Number.isFinite(stats.generated_tokens) ? { cached_tokens: 0, wait_s: 0, prefill_s: 0, ...stats } : null,
    ...(tokens.length ? { tokens } : {}),
  };
}

const readToken = (token) => ({
  text: text(token?.text),
  logprob: number(token?.logprob, 0),
  top: list(token?.top).map((one) => ({ text: text(one?.text), logprob: number(one?.logprob, 0) })),
});
