// What is typed and not sent yet: each conversation has its own, in this tab. Texts survive a reload; attached files,
// which may be large, stay in memory alone.

const KEY = "modelkit.drafts";
const NOTHING = { text: "", files: [] };

export class Drafts {
  #all = new Map();

  constructor() {
    try {
      for (const [place, text] of JSON.parse(sessionStorage.getItem(KEY) ?? "[]")) this.#all.set(place, { ...NOTHING, text });
    } catch {
      // no storage, or not of our making: then nothing was typed
    }
  }

  /** place: a conversation's id, or "" for one that is new. */
  of(place) {
    return this.#all.get(place) ?? NOTHING;
  }

  keep(place, text, files) {
    if (text || files.length) this.#all.set(place, { text, files });
    else this.#all.delete(place);
  }

  /** Write the texts down: the page may go away. */
  write() {
    const texts = [...this.#all].filter(([, { text }]) => text).map(([place, { text }]) => [place, text]);
    try {
      sessionStorage.setItem(KEY, JSON.stringify(texts));
    } catch {
      // full, or not allowed
    }
  }
}
