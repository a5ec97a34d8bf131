// Conversations in IndexedDB; nothing leaves the browser. A conversation and its messages are kept apart, each message
// under a key of its own: two tabs that go on with one conversation make two branches, and neither undoes the other's.

const NAME = "modelkit";
const news = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("modelkit-conversations");

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

function opened() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("chats", { keyPath: "id" });
    request.result.createObjectStore("messages", { keyPath: ["chat", "id"] });
  };
  return done(request);
}

/** All messages of a conversation: keys [chat, anything]; an array sorts behind every text. */
const of = (chat) => IDBKeyRange.bound([chat], [chat, []]);

export class Conversations {
  static async open() {
    return new Conversations(await opened());
  }

  constructor(database) {
    this.database = database;
    this.changed = this.unkept = () => {};
    database.onversionchange = () => database.close(); // a newer page in another tab wants to change the stores
  }

  #read(store) {
    return this.database.transaction(store).objectStore(store);
  }

  #change(stores, change) {
    const transaction = this.database.transaction(stores, "readwrite");
    change(...stores.map((store) => transaction.objectStore(store)));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error); // behind an error of a request, which is not the transaction's yet
    });
  }

  /** Every conversation without its messages, the last changed first. */
  async list() {
    const chats = await done(this.#read("chats").getAll());
    return chats.sort((one, other) => other.updated - one.updated);
  }

  chat(id) {
    return done(this.#read("chats").get(id));
  }

  message(chat, id) {
    return done(this.#read("messages").get([chat, id]));
  }

  messages(id) {
    return done(this.#read("messages").getAll(of(id)));
  }

  /** changed: called with a conversation's id where another tab has changed it; grown: with that and a message's id where
   * only this has grown; unkept: with an error, where something that was said cannot be kept. */
  tell({ changed, grown, unkept }) {
    Object.assign(this, { changed, unkept });
    news?.addEventListener("message", ({ data }) => (data?.grown ? grown(data.chat, data.grown) : changed(data)));
  }

  /** Keep a conversation (null: it is as it was) and these of its messages. */
  async put(chat, messages = []) {
    await this.#change(["chats", "messages"], (chats, kept) => {
      if (chat) chats.put(chat);
      for (const message of messages) kept.put(message);
    });
    news?.postMessage(chat ? chat.id : { chat: messages[0].chat, grown: messages[0].id });
  }

  async remove(id) {
    await this.#change(["chats", "messages"], (chats, messages) => {
      chats.delete(id);
      messages.delete(of(id));
    });
    news?.postMessage(id);
  }

  /** Ids of the conversations in whose messages the text occurs, in whatever case. */
  async holding(text) {
    const wanted = text.toLowerCase();
    const found = new Set();
    await new Promise((resolve, reject) => {
      const request = this.#read("messages").openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const at = request.result;
        if (!at) return resolve();
        if (at.value.content.toLowerCase().includes(wanted)) found.add(at.value.chat);
        at.continue();
      };
    });
    return found;
  }
}
