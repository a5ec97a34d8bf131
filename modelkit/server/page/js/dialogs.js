// Questions that stop everything else: for a name, for a yes, for the key.

import { $ } from "./dom.js";

function answered(dialog, first) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
    dialog.showModal();
    first.focus();
    first.select?.();
  });
}

function prepare(title, ok, danger) {
  $("#ask-title").textContent = title;
  $("#ask-ok").textContent = ok;
  $("#ask-ok").classList.toggle("danger", danger);
}

/** A yes (true) or not. */
export async function confirmed(title, ok) {
  prepare(title, ok, true);
  $("#ask-label").hidden = true;
  $("#ask-text").required = false;
  return answered($("#ask"), $("#ask-ok"));
}

/** A text, or null. */
export async function askText(title, label, text, ok) {
  prepare(title, ok, false);
  $("#ask-label").hidden = false;
  $("#ask-label span").textContent = label;
  $("#ask-text").required = true;
  $("#ask-text").value = text;
  return (await answered($("#ask"), $("#ask-text"))) ? $("#ask-text").value.trim() || null : null;
}

/** The API key, or null. refused: one was tried. */
export async function askKey(refused) {
  $("#key-title").textContent = refused ? "The server refused that key" : "This server wants a key";
  $("#key-text").value = "";
  const given = await answered($("#key"), $("#key-text"));
  const key = $("#key-text").value.trim();
  $("#key-text").value = "";
  return given && key ? key : null;
}
