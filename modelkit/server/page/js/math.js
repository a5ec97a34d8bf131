// Formulas: $...$, $$...$$, \(...\) and \[...\] are taken out of the Markdown before its own rules see them, and drawn
// by KaTeX into the cleaned nodes. Never through a string of HTML: that would need inline styles, which the page's
// policy forbids.

import { katex } from "./libraries.js";

const OPTIONS = { throwOnError: false, trust: false, strict: "ignore", maxSize: 40, maxExpand: 500 };
const LONGEST = 5_000;
/** Elements inside of each other; a browser's layout ends the whole tab at some thousand. */
const DEEPEST = 250;
/** A short formula that defines words of its own can stand for millions of signs. */
const DEFINING = /\\(?:[egx]?def|let|futurelet|(?:re)?newcommand|providecommand)(?![a-zA-Z])/;
const LONGEST_DEFINING = 300;

const BLOCK = /^ {0,3}(?:\$\$([^$]{1,5000}?)\$\$|\\\[([\s\S]{1,5000}?)\\\])[ \t]*(?:\n+|$)/;
// A dollar is money where a blank stands inside of it, or a digit behind it.
const INLINE = /^\$(?![\s$])((?:\\[^\n]|[^\\$\n]){1,1000}?)(?<!\s)\$(?!\d)/;
const INLINE_ROUND = /^\\\(([\s\S]{1,2000}?)\\\)/;
const INLINE_DISPLAY = /^(?:\$\$([^$]{1,5000}?)\$\$|\\\[([\s\S]{1,5000}?)\\\])/;

const escaped = (text) => text.replace(/[&<>]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[letter]);

const token = (type, match, display) => ({ type, raw: match[0], text: match.slice(1).find(Boolean).trim(), display });

/** Extensions for marked. */
export const MATH = [
  {
    name: "formulaBlock",
    level: "block",
    start: (source) => source.match(/\$\$|\\\[/)?.index,
    tokenizer(source) {
      const match = BLOCK.exec(source);
      return match ? token("formulaBlock", match, true) : undefined;
    },
    renderer: ({ text }) => `<p><span class="math-display">${escaped(text)}</span></p>`,
  },
  {
    name: "formula",
    level: "inline",
    start: (source) => source.match(/\$|\\[([]/)?.index,
    tokenizer(source) {
      const display = INLINE_DISPLAY.exec(source);
      if (display) return token("formula", display, true);
      const match = INLINE.exec(source) ?? INLINE_ROUND.exec(source);
      return match ? token("formula", match, false) : undefined;
    },
    renderer: ({ text, display }) => `<span class="math-${display ? "display" : "inline"}">${escaped(text)}</span>`,
  },
];

let drawer = null;

/** Draw what is marked as a formula; before KaTeX is there, its source is shown. */
export function drawFormulas(fragment) {
  const places = [...fragment.querySelectorAll(".math-inline, .math-display")];
  if (!places.length) return;
  if (drawer) return places.forEach(draw);
  katex().then(
    (library) => {
      drawer = library;
      places.forEach(draw);
    },
    () => {},
  );
}

/** What cannot be drawn stays as it was written. */
function draw(place) {
  const source = place.textContent;
  if (source.length > (DEFINING.test(source) ? LONGEST_DEFINING : LONGEST)) return;
  try {
    const displayMode = place.classList.contains("math-display");
    const tree = drawer.__renderToDomTree(source, { ...OPTIONS, displayMode });
    if (!tree.hasClass("katex-error") && depth(tree) <= DEEPEST) place.replaceChildren(tree.toNode());
  } catch {
    // Braces a thousand deep leave KaTeX's own calls no room.
  }
}

/** How deep it is. MathML's few style attributes are taken out: the policy forbids them, and they only decorate what
 * nobody sees. */
function depth(node) {
  if (node.attributes) delete node.attributes.style;
  return 1 + (node.children ?? []).reduce((deepest, child) => Math.max(deepest, depth(child)), 0);
}
