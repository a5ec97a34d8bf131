// The vendored libraries. marked and DOMPurify come with the page; the large ones when the first formula or the first
// block of code is there. All are loaded as modules: the policy of the page (CSP) allows no other way to run them.

import "../vendor/marked/marked.umd.js";
import "../vendor/dompurify/purify.min.js";

export const { marked, DOMPurify } = globalThis;

const once = (load) => {
  let loading = null;
  return () => (loading ??= load());
};

export const highlighter = once(async () => (await import("../vendor/highlight/highlight.min.js")).default);

export const katex = once(async () => {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = new URL("../vendor/katex/katex.min.css", import.meta.url).href;
  const styled = new Promise((resolve) => (sheet.onload = sheet.onerror = resolve));
  document.head.append(sheet);
  await import("../vendor/katex/katex.min.js");
  await styled;
  return globalThis.katex;
});
