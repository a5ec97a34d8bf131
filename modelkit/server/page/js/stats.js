// The numbers under an answer: what it cost, what was reused, what drafts brought.

import { h, icon } from "./dom.js";
import { count, plural, ratio, seconds } from "./numbers.js";

/** "reused 480 of 512 tokens": the prompt's part that was not computed again; null without numbers. */
export function reused(stats) {
  if (!stats?.prompt_tokens) return null;
  return `reused ${count(stats.cached_tokens)} of ${plural(stats.prompt_tokens, "token")}`;
}

/** Tokens a second after the first one; null for fewer than two. */
export function speed(stats) {
  return stats.decode_s > 0 && stats.generated_tokens > 1 ? (stats.generated_tokens - 1) / stats.decode_s : null;
}

const ENDS = {
  num_predict: "ended: num_predict reached",
  context: "ended: the context is full",
  cancelled: "stopped",
};

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** [text, what it means] of each number. */
function numbers(message) {
  const { stats } = message;
  const found = [];
  const end = ENDS[message.reason === "cancelled" ? "cancelled" : message.cut] ?? (message.reason === "length" ? "ended: limit reached" : null);
  if (end) found.push([end, "Why the answer ends here"]);
  if (message.formed) found.push([isJson(message.content) ? "valid JSON" : "no whole JSON", "The answer was to follow a form"]);
  if (!stats) return found;
  const rate = speed(stats);
  if (rate !== null) found.push([`${ratio(rate)} tok/s`, "Tokens a second, after the first one"]);
  found.push([plural(stats.generated_tokens, "token"), "Length of the answer, thinking and calls included"]);
  found.push([`first after ${seconds(stats.wait_s + stats.prefill_s)}`, "Time to the first token: waiting and reading the prompt"]);
  found.push([`prompt ${count(stats.prompt_tokens)}`, "Tokens of the prompt"]);
  if (stats.cached_tokens) found.push([reused(stats), "Part of the prompt that was not computed again"]);
  if (stats.drafted_tokens) {
    const kept = `drafts ${count(stats.accepted_tokens)} of ${count(stats.drafted_tokens)} accepted`;
    found.push([kept, "Tokens that were guessed ahead, and how many of them the model kept"]);
    // Without guesses it is one, less what the end of an answer costs.
    if (stats.rounds > 0 && stats.generated_tokens > 1)
      found.push([`${((stats.generated_tokens - 1) / stats.rounds).toFixed(2)} tokens a pass`, "Tokens that each pass of the model gave"]);
  }
  if (stats.dropped_tokens) found.push([`forgot ${plural(stats.dropped_tokens, "token")}`, "The context was full: the oldest were forgotten"]);
  if (message.dropped) found.push([`left out ${plural(message.dropped, "message")}`, "Early messages that no longer fit the context"]);
  return found;
}

/** The line of numbers; empty for an answer without any. */
export function statsLine(message) {
  const found = numbers(message);
  if (!found.length) return null;
  return h("ul", { class: "stats", "aria-label": "About this answer" }, found.map(([text, title]) => h("li", { text, title })));
}

/** Beside the arrows of a branch: how much of the conversation did not have to be read again. */
export function reuseNote(stats) {
  const text = reused(stats);
  return text && h("span", { class: "reuse", title: "What stands before the edit was still in memory" }, icon("again"), text);
}
