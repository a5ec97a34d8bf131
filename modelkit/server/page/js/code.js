// Blocks of code: a line with the language and a button that copies, and colours once the block is whole.

import { clean } from "./clean.js";
import { copyText, h, icon } from "./dom.js";
import { highlighter } from "./libraries.js";

const LONGEST = 100_000;

/** Give every block of code in these nodes its frame. settled: no more of it comes. */
export function dressCode(fragment, settled) {
  for (const code of fragment.querySelectorAll("pre > code")) {
    const pre = code.parentElement;
    const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
    const frame = h("div", { class: "code" });
    pre.replaceWith(frame);
    pre.setAttribute("tabindex", "0");
    pre.setAttribute("role", "group");
    pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
    frame.append(h("div", { class: "code-head" }, h("span", { text: language || "code" }), copyButton(() => code.textContent)), pre);
    if (settled && language) colour(code, language);
  }
}

/** A button that copies what `text()` gives, and says that it did. */
export function copyButton(text, label = "Copy") {
  const name = h("span", { text: label });
  const button = h("button", { type: "button", class: "quiet small" }, icon("copy"), name);
  button.addEventListener("click", async () => {
    try {
      await copyText(text());
      name.textContent = "Copied";
    } catch {
      name.textContent = "Not allowed";
    }
    setTimeout(() => (name.textContent = label), 1500);
  });
  return button;
}

async function colour(code, language) {
  const text = code.textContent;
  if (text.length > LONGEST) return;
  const library = await highlighter();
  if (!library.getLanguage(language)) return;
  code.replaceChildren(clean(library.highlight(text, { language, ignoreIllegals: true }).value));
}
