// What a screen reader hears of an answer: its finished sentences, not its tokens. The list of messages itself stays
// silent; this line, which nobody sees, is the live region.

const PAUSE_MS = 1_500;
const LONGEST = 400;

export class Announcer {
  #said = 0;
  #at = 0;

  constructor(line) {
    this.line = line;
  }

  say(text) {
    this.line.textContent = text;
  }

  /** An answer begins; so much of it was heard before. */
  begin(said) {
    this.#said = said;
    this.#at = performance.now();
  }

  /** The text so far. over: no more comes, so what is left is said as it is. */
  hear(text, over = false) {
    if (!over && performance.now() - this.#at < PAUSE_MS) return;
    const rest = text.slice(this.#said);
    const end = over ? rest.length : Math.max(...[". ", "! ", "? ", ".\n", "\n\n"].map((mark) => rest.lastIndexOf(mark))) + 1;
    if (end <= 0) return;
    this.#at = performance.now();
    this.#said += end;
    const spoken = rest.slice(0, end).replace(/[`*_#|>]+/g, "").trim();
    if (spoken) this.say(spoken.length > LONGEST ? `… ${spoken.slice(-LONGEST)}` : spoken);
  }
}
