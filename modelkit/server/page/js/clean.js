// What a model writes is hostile until it has been here: HTML goes in, a fragment of allowed elements comes out, without
// scripts, styles, images, forms, ids and event handlers. Links lead to the web only, and open elsewhere.

import { DOMPurify } from "./libraries.js";

const TAGS = (
  "a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i kbd li mark ol p pre s samp " +
  "span strong sub summary sup table tbody td tfoot th thead tr u ul var"
).split(" ");
const ATTRIBUTES = ["href", "title", "class", "align", "start", "colspan", "rowspan", "lang", "dir"];
// Only the classes that our own renderers write. With others an answer could look like a part of the page.
const CLASS = /^(?:language-[\w.+#-]{1,40}|math-(?:inline|display)|hljs-[\w-]{1,40}(?: [a-z]{1,20}_)?)$/;
/** Addresses that links may lead to. */
export const WEB = /^(?:https?:\/\/|mailto:)/i;

DOMPurify.addHook("uponSanitizeAttribute", (node, attribute) => {
  if (attribute.attrName === "class" && !CLASS.test(attribute.attrValue)) attribute.keepAttr = false;
  if (attribute.attrName === "href" && !WEB.test(attribute.attrValue)) attribute.keepAttr = false;
});
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A" || !node.hasAttribute("href")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** A fragment of this HTML that does nothing but show. */
export function clean(html) {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
