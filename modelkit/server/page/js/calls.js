// Tools that the model calls, as cards. The page runs nothing: the person pastes what a tool gave, or says that it
// failed, and sends that back.

import { h, icon } from "./dom.js";

const MOST_INDENT = 20;
const PART = /"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g;

/** The JSON of the arguments laid out; as it is where it is no JSON (yet). Numbers stay as they were written: those of
 * JavaScript would round an id of 20 digits. */
function laidOut(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, MOST_INDENT))}`;
  return text.replace(/^\s+|\s+$/g, "").match(PART).map((part) => {
    if (part.startsWith('"')) return JSON.stringify(JSON.parse(part));
    if (part === "{" || part === "[") return (depth += 1), part + line();
    if (part === "}" || part === "]") return (depth -= 1), line() + part;
    if (part === ",") return part + line();
    return part === ":" ? ": " : part.replace(/\s/g, "");
  }).join("");
}

function resultBox(call, draft) {
  const text = h("textarea", { rows: "2", class: "mono", spellcheck: "false", "aria-label": `Result of ${call.name}`, placeholder: "What the tool gave" });
  const failed = h("input", { type: "checkbox" });
  text.value = draft.content ?? "";
  failed.checked = draft.failed ?? false;
  text.addEventListener("input", () => (draft.content = text.value));
  failed.addEventListener("change", () => (draft.failed = failed.checked));
  return h("div", { class: "result-box" }, text, h("label", { class: "line" }, failed, "error"));
}

function shown(result) {
  const label = result.failed ? "Error" : "Result";
  const text = h("pre", { tabindex: "0", role: "group", "aria-label": label, text: result.content || "(nothing)" });
  return h("div", { class: result.failed ? "result failed" : "result" }, h("span", { class: "label", text: label }), text);
}

function card(call, result, draft) {
  const head = h("div", { class: "call-head" }, icon("tool"), h("span", { class: "call-name", text: call.name }));
  const given = h("pre", { tabindex: "0", role: "group", "aria-label": `Arguments of ${call.name}`, text: laidOut(call.arguments || "{}") });
  return h("section", { class: "call", "aria-label": `Call of ${call.name}` }, head, given, result ? shown(result) : draft && resultBox(call, draft));
}

/** The cards of a message. results: messages of the role "tool" behind it; drafts: {call's place: {content, failed}}
 * where results can be given now, else null; send: called with the results in order. */
export function callCards(message, results, drafts, send) {
  const calls = message.calls ?? [];
  const cards = calls.map((call, place) => {
    const result = results.find((one) => one.callId === call.id) ?? null;
    return card(call, drafts ? null : result, drafts ? (drafts[place] ??= { content: result?.content, failed: result?.failed }) : null);
  });
  if (!drafts || !calls.length) return cards;
  const all = () => calls.map((call, place) => ({ callId: call.id, name: call.name, content: drafts[place].content ?? "", failed: drafts[place].failed ?? false }));
  const label = calls.length > 1 ? "Send results" : "Send result";
  return [...cards, h("button", { type: "button", class: "main", on: { click: () => send(all()) } }, label)];
}
