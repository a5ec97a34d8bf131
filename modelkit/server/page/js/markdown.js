// Markdown to nodes, in this order: marked, clean.js, then code, formulas and tables inside the nodes. While an answer
// comes, only its last block is read again: everything before it stands still.

import { clean, WEB } from "./clean.js";
import { dressCode } from "./code.js";
import { h } from "./dom.js";
import { marked } from "./libraries.js";
import { MATH, drawFormulas } from "./math.js";

/** Characters of one block that are read as Markdown; a longer one is shown as it is. Some of marked's patterns take
 * quadratic time, and nobody writes such a paragraph. */
const LONGEST_BLOCK = 40_000;

/** Elements inside of each other, without those of a formula: a browser's layout ends the whole tab at some hundreds. */
const DEEPEST = 200;

const escaped = (text) =>
  text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

const BARE = "b|br|dd|del|details|dl|dt|em|hr|i|kbd|li|mark|ol|p|s|samp|strong|sub|summary|sup|table|tbody|td|th|thead|tr|u|ul|var";
const BARE_TAG = new RegExp(`&lt;(/?)(${BARE})\\s*/?&gt;`, "gi");

const parser = new marked.Marked({
  gfm: true,
  renderer: {
    // HTML that a model writes is text, but for a few tags without attributes. What clean.js takes away would else be
    // lost to the reader, an open <style> would swallow the rest, and the browser would complain of what it blocked.
    html: ({ text }) => escaped(text).replace(BARE_TAG, "<$1$2>"),
    // An image would be fetched from wherever the model says, and its address may carry the conversation away.
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});
// "[Alice]: Hello" is what somebody says, and "[^1]: So it was" a note. Read as definitions of links they would not be shown.
parser.use({
  tokenizer: {
    def(source) {
      const found = marked.Tokenizer.prototype.def.call(this, source);
      return found && WEB.test(found.href) ? found : undefined;
    },
  },
});
parser.use({ extensions: MATH });

/** The nodes of one piece of Markdown. settled: no more of it comes, so code gets its colours. */
function nodesOf(tokens, settled) {
  try {
    return drawn(tokens, settled);
  } catch {
    return plain(tokens.map(({ raw }) => raw).join("")); // whatever it was, the answer has to be readable
  }
}

function drawn(tokens, settled) {
  const fragment = clean(parser.parser(tokens));
  if (depth(fragment) > DEEPEST) throw new RangeError("too deep");
  for (const block of fragment.children) block.dir = "auto"; // each is read from the side on which its own first letter begins
  drawFormulas(fragment, settled);
  dressCode(fragment, settled);
  for (const table of fragment.querySelectorAll("table")) {
    const box = h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" });
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

/** How deep a fragment is, without calls inside of calls. */
function depth(fragment) {
  let deepest = 0;
  let here = 0;
  for (let node = fragment.firstChild; node && node !== fragment; ) {
    deepest = Math.max(deepest, here + 1);
    if (node.firstChild) {
      node = node.firstChild;
      here += 1;
      continue;
    }
    while (node !== fragment && !node.nextSibling) {
      node = node.parentNode;
      here -= 1;
    }
    node = node === fragment ? null : node.nextSibling;
  }
  return deepest;
}

const plain = (text) => h("pre", { class: "plain", tabindex: "0", role: "group", "aria-label": "Long text", text });

/** Where the blocks of this text are; null for one that is shown as it is, too long to look at or too deep: a quotation in
 * a quotation a thousand times over leaves marked's own calls no room. */
function blocksOf(text) {
  if (text.length > LONGEST_BLOCK) return null;
  try {
    return parser.lexer(text);
  } catch {
    return null;
  }
}

/** One answer, growing inside an element. */
export class Growing {
  #settled = 0;
  #text = "";
  #last;

  constructor(element) {
    this.element = element;
    this.#last = h("div", { class: "last" });
    element.replaceChildren(this.#last);
  }

  /** All of the text so far: it may only have grown. */
  show(text) {
    if (text === this.#text) return;
    this.#text = text;
    const rest = text.slice(this.#settled);
    const blocks = blocksOf(rest);
    if (blocks === null) return this.#showLong(rest);
    const end = blocks.findLastIndex((block) => block.type !== "space");
    if (end > 0) this.#settle(blocks.slice(0, end), blocks.links);
    const open = Object.assign(blocks.slice(Math.max(end, 0)), { links: blocks.links });
    this.#last.replaceChildren(nodesOf(open, false));
  }

  #settle(blocks, links) {
    this.#last.before(nodesOf(Object.assign(blocks, { links }), true));
    this.#settled += blocks.reduce((sum, block) => sum + block.raw.length, 0);
  }

  /** A block that has outgrown the limit: its text as it is, added to, not set again. */
  #showLong(rest) {
    const box = this.#last.firstChild;
    if (!box?.classList?.contains("plain")) return this.#last.replaceChildren(plain(rest));
    const shown = box.firstChild;
    shown.appendData(rest.slice(shown.length));
  }

  /** The text is whole. */
  finish(text) {
    showMarkdown(this.element, text);
  }
}

/** Show a whole text. */
export function showMarkdown(element, text) {
  const fragment = document.createDocumentFragment();
  for (const part of parts(text)) {
    const blocks = blocksOf(part);
    fragment.append(blocks === null ? plain(part) : nodesOf(blocks, true));
  }
  element.replaceChildren(fragment);
}

/** A text in parts that are short enough to read, cut at blank lines outside of fences; a part without any stays. */
function parts(text) {
  if (text.length <= LONGEST_BLOCK) return [text];
  const found = [];
  let start = 0;
  let cut = 0;
  let fence = null;
  for (const line of text.matchAll(/.*(?:\n|$)/g)) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line[0])?.[1];
    if (mark && fence === null) fence = mark;
    else if (mark && mark.startsWith(fence)) fence = null;
    const end = line.index + line[0].length;
    if (end - start > LONGEST_BLOCK && cut > start) {
      found.push(text.slice(start, cut));
      start = cut;
    }
    if (fence === null && line[0].trim() === "") cut = end;
  }
  return [...found, text.slice(start)];
}
