// The line under the message box: how full the context is, and what the models take of the memory.

import { $ } from "./dom.js";
import { bytes, count, taken } from "./numbers.js";

/** state: what the server says of the loaded model, or null. */
export function showContext(chat, state) {
  const answers = chat.tree.path().filter((message) => message.stats);
  const last = answers.at(-1);
  const all = state?.context_tokens ?? last?.context;
  const bar = $("#context");
  bar.hidden = !last || !all;
  $("#context-text").textContent = "";
  if (bar.hidden) return;
  const used = Math.min(last.stats.prompt_tokens + last.stats.generated_tokens, all);
  const text = `${count(used)} of ${count(all)} tokens of context`;
  for (const [name, value] of [["aria-valuemax", all], ["aria-valuenow", used], ["aria-valuetext", text]]) bar.setAttribute(name, value);
  bar.title = text;
  bar.classList.toggle("full", used > 0.9 * all);
  bar.firstElementChild.style.width = `${Math.max(2, (100 * used) / all)}%`;
  $("#context-text").textContent = text;
}

/** loaded: as the server lists them. */
export function showMemory(loaded) {
  const size = loaded.reduce((sum, model) => sum + taken(model), 0);
  $("#memory-text").textContent = size ? `${bytes(size)} in memory` : "";
}
