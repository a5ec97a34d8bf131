// One answer on its way: the server's events become fields of a message. The message is kept once a second, so that a
// tab that crashes loses little, and as far as it has come where the page is left (left.js). `changed` is called at most
// once per frame.

import { keptIfLeft } from "./left.js";
import { answer, ServerError } from "./wire.js";
import { hold, TAB } from "./writing.js";

const KEEP_EVERY_MS = 1_000;
/** A drawing that takes longer is given time to rest behind it. */
const SLOW_MS = 20;

/** What the parts of an event do to the message. */
const TAKE = {
  start(message, event) {
    message.context = event.context_tokens;
  },
  thinking(message, event) {
    message.thinking = (message.thinking ?? "") + event.text;
    message.thinkingFrom ??= performance.now();
  },
  text(message, event) {
    endThinking(message);
    message.content += event.text;
  },
  call_start(message, { index, id, name }) {
    endThinking(message);
    message.calls ??= [];
    message.calls[index] = { id, name, arguments: "" };
  },
  call_arguments(message, event) {
    message.calls[event.index].arguments += event.text;
  },
  progress(message, { read_tokens: read, total_tokens: total }) {
    message.reading = { read, total };
  },
  finish(message, event) {
    endThinking(message);
    for (const key of ["reason", "cut", "seed", "stats"]) message[key] = event[key] ?? null;
    message.dropped = event.dropped_messages ?? 0;
  },
};

function endThinking(message) {
  if (message.thinkingFrom === undefined) return;
  message.thinkingS = (performance.now() - message.thinkingFrom) / 1000;
  delete message.thinkingFrom;
}

function take(message, event) {
  TAKE[event.type]?.(message, event);
  if (event.tokens?.length) (message.tokens ??= []).push(...event.tokens.map((token) => ({ ...token, in: event.type })));
}

/** Was the page left while this answer came? running: it comes still, here; elsewhere: in another tab. */
export function wasLeft(message, { running, elsewhere }) {
  return !running && !elsewhere && Boolean(message.left || message.partial);
}

/** The message as an answer that ended where it has got to, since the page goes away. */
function leftState(message) {
  const state = { ...message, partial: false, left: true, reason: "cancelled" };
  endThinking(state);
  delete state.reading;
  delete state.tab;
  return state;
}

export class Answering {
  #abort = new AbortController();

  /** changed: called after events with the message, in time for the next frame. */
  constructor(conversation, message, changed) {
    Object.assign(this, { conversation, message, changed, drawn: false, took: 0 });
  }

  stop() {
    this.#abort.abort();
  }

  /** It is on its way, before anything of it is shown. goOn: behind the text that the message has. */
  begin(goOn) {
    const { message } = this;
    this.goOn = goOn;
    Object.assign(message, { partial: true, tab: TAB, error: null, reason: null });
    delete message.left;
    // Asked for anew where an earlier try brought no text: what it thought is not part of this one.
    if (!goOn) for (const key of ["thinking", "thinkingS", "thinkingFrom", "tokens", "firstS"]) delete message[key];
  }

  /** Read the whole answer, which has begun. Whatever happens is in the message in the end, and kept; nothing is raised. */
  async run() {
    const { conversation, message, goOn } = this;
    const begun = performance.now();
    let keptAt = begun;
    const over = keptIfLeft(message.id, () => leftState(message));
    const letGo = await hold(message.id);
    try {
      const messages = conversation.tree.before(message);
      const request = conversation.request(goOn ? [...messages, message] : messages, goOn);
      message.formed = request.format !== undefined;
      await conversation.keep([message]);
      for await (const event of answer(request, this.#abort.signal)) {
        if (["text", "thinking", "call_start"].includes(event.type)) message.firstS ??= (performance.now() - begun) / 1000;
        take(message, event);
        this.#soon();
        if (performance.now() - keptAt > KEEP_EVERY_MS) {
          keptAt = performance.now();
          await conversation.keep([message], true);
        }
      }
    } catch (error) {
      this.#fail(error);
    }
    endThinking(message);
    delete message.reading;
    message.partial = false;
    delete message.tab;
    await conversation.keep([message]);
    letGo();
    over();
    this.changed(message);
  }

  #fail(error) {
    const { message } = this;
    if (this.#abort.signal.aborted) return void (message.reason = "cancelled");
    const known = error instanceof ServerError;
    message.error = { message: error.message, status: known ? error.status : -1, retryAfter: known ? error.retryAfter : null };
  }

  #soon() {
    if (this.drawn) return;
    this.drawn = true;
    const draw = () => {
      this.drawn = false;
      if (!this.message.partial) return;
      const begun = performance.now();
      this.changed(this.message);
      setTimeout(() => (this.took = performance.now() - begun)); // the layout that follows counts, too
    };
    if (document.hidden) setTimeout(draw, 250); // a hidden tab gets no frames, but its answers go on
    // A table of a thousand lines is drawn anew with each: whoever types meanwhile has three quarters of the time.
    else if (this.took > SLOW_MS) setTimeout(() => requestAnimationFrame(draw), 3 * this.took);
    else requestAnimationFrame(draw);
  }
}
