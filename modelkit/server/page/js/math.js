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
const AT_ONCE = 100;
const PIECE_MS = 20;
/** Formulas of one paragraph, item or cell. A browser's layout takes seconds for thousands, over again with each that comes;
 * nobody writes such a paragraph. */
const MOST_OF_ONE = 300;

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

/** Draw what is marked as a formula; before KaTeX is there, its source is shown. Of many, only the first at once: the page
 * would stand still. settled: the others follow, else all of this is drawn again soon. */
export function drawFormulas(fragment, settled) {
  const places = drawable([...fragment.querySelectorAll(".math-inline, .math-display")]);
  if (!places.length) return;
  const first = places.slice(0, AT_ONCE);
  const rest = settled ? places.slice(AT_ONCE) : [];
  if (drawer) {
    first.forEach(draw);
    drawInPieces(rest);
    return;
  }
  katex().then(
    (library) => {
      drawer = library;
      first.forEach(draw);
      drawInPieces(rest);
    },
    () => {},
  );
}

function drawable(places) {
  const counts = new Map();
  return places.filter((place) => {
    const box = place.closest("p, li, td, th");
    counts.set(box, (counts.get(box) ?? 0) + 1);
    return counts.get(box) <= MOST_OF_ONE;
  });
}

/** As long as the page shows them. */
async function drawInPieces(places) {
  for (let at = 0; at < places.length; ) {
    await new Promise((resolve) => setTimeout(resolve));
    if (!places[at].isConnected) return;
    const end = performance.now() + PIECE_MS;
    while (at < places.length && performance.now() < end) draw(places[at++]);
  }
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
