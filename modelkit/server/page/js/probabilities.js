// The tokens of an answer, coloured by how sure the model was. One stop of the Tab key for all of them: the arrow keys
// walk along, and the token's alternatives are told below.

import { h } from "./dom.js";

/** 0 (sure) to 4 (hardly), by probability. */
const level = (probability) => [0.9, 0.6, 0.3, 0.1].findIndex((least) => probability >= least);

const percent = (logprob) => {
  const value = 100 * Math.exp(logprob);
  return value > 99.95 ? "100 %" : value < 0.1 ? "< 0.1 %" : `${value.toFixed(1)} %`;
};

/** A token's text with what one cannot see made visible. */
const visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "␣") || "∅";

function describe(token, place, all) {
  const others = token.top.filter((other) => other.text !== token.text).slice(0, 4);
  const rest = others.map((other) => `${visible(other.text)} ${percent(other.logprob)}`).join(" · ");
  return `${place + 1} of ${all}: ${visible(token.text)} ${percent(token.logprob)}${rest ? ` — instead: ${rest}` : ""}`;
}

/** The coloured text of these tokens: {text, logprob, top: [{text, logprob}]}. */
export function coloured(tokens) {
  const detail = h("p", { class: "token-detail", "aria-live": "polite", text: "Point at a token, or walk with the arrow keys." });
  const spans = tokens.map((token, place) => {
    const found = level(Math.exp(token.logprob));
    return h("span", { class: `token sure-${found < 0 ? 4 : found}`, text: token.text, data: { place } });
  });
  let at = -1;
  const show = (place) => {
    spans[at]?.classList.remove("current");
    at = Math.min(Math.max(place, 0), spans.length - 1);
    spans[at]?.classList.add("current");
    detail.textContent = describe(tokens[at], at, tokens.length);
  };
  const box = h("div", {
    class: "tokens",
    tabindex: "0",
    role: "group",
    "aria-label": "Tokens by probability",
    on: {
      mouseover: (event) => event.target.dataset.place !== undefined && show(Number(event.target.dataset.place)),
      keydown: (event) => {
        const step = { ArrowRight: 1, ArrowDown: 10, ArrowLeft: -1, ArrowUp: -10, Home: -tokens.length, End: tokens.length }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        show(at + step);
      },
    },
  }, spans);
  const names = ["over 90 %", "over 60 %", "over 30 %", "over 10 %", "less"];
  const legend = names.map((name, place) => h("span", { class: `token sure-${place}`, text: name }));
  return h("div", { class: "probabilities" }, box, detail, h("p", { class: "legend" }, "Sure: ", legend));
}
