// The keyboard, beside what every field does on its own.

import { $ } from "./dom.js";

export function listenToKeys(page) {
  addEventListener("keydown", (event) => {
    const control = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (event.key === "Escape") return escape(page);
    if (!control || event.altKey || $("dialog[open]")) return;
    if (key === "k" && !event.shiftKey) find(page);
    else if (key === "o" && event.shiftKey) page.fresh();
    else if (key === "b" && !event.shiftKey) page.sidebar.toggle();
    else return;
    event.preventDefault();
  });
}

function find(page) {
  page.sidebar.toggle(true, false);
  page.sidebar.search.focus();
  page.sidebar.search.select();
}

function escape(page) {
  if ($("dialog[open]") || $("#menu").matches(":popover-open")) return; // they close by themselves
  if (page.sidebar.narrow.matches && page.sidebar.isOpen) page.sidebar.toggle(false);
  else page.stop();
}
