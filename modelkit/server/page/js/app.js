// The page as a whole: one conversation is shown; answers may run in several. Everything that a person does comes here.

import { Announcer } from "./announcer.js";
import { Answering } from "./answering.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Conversations } from "./database.js";
import { askKey, askText, confirmed } from "./dialogs.js";
import { $, drawIcons } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { takeBack } from "./left.js";
import { Log } from "./log.js";
import { Models } from "./models.js";
import { fileName, fromFile, save, toJson, toMarkdown } from "./portable.js";
import { keptSettings, Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { showContext, showMemory } from "./under.js";
import { whenKeyIsWanted } from "./wire.js";

class Page {
  #running = new Map();
  #opened = 0;
  #described = 0;

  async start() {
    drawIcons();
    whenKeyIsWanted(askKey);
    this.announcer = new Announcer($("#announcer"));
    this.store = await Conversations.open();
    await takeBack(this.store);
    this.log = new Log(this.#acts());
    this.settings = new Settings(() => this.#keepSettings());
    this.composer = new Composer({ send: (text, files) => this.send(text, files), stop: () => this.stop(), say: (text) => this.say(text) });
    this.models = new Models({ changed: () => this.#modelChanged(), failed: (error) => this.#offline(error), defaulted: (values) => this.settings.setDefaults(values) });
    this.sidebar = new Sidebar(this.store, { open: (id) => this.open(id), rename: (record) => this.rename(record), remove: (record) => this.remove(record) });
    this.#buttons();
    listenToKeys(this);
    this.store.tell({ changed: (id) => this.#othersChanged(id), grown: (id, message) => this.#othersWrite(id, message), unkept: (error) => this.#unkept(error) });
    addEventListener("hashchange", () => this.open(location.hash.slice(1)));
    await this.open(location.hash.slice(1));
    await this.models.refresh();
    await this.#modelChanged();
    document.documentElement.dataset.ready = "";
  }

  // --- which conversation

  /** Show a conversation; one that is not there is a new one. */
  async open(id) {
    const asked = ++this.#opened;
    if (this.chat && this.chat.id === id) return;
    const focused = document.activeElement;
    const running = id && this.#running.get(id);
    const chat = running ? running.conversation : id ? await Conversation.load(this.store, id) : null;
    if (asked !== this.#opened) return; // who went elsewhere while it was read stays there
    this.chat = chat ?? Conversation.fresh(this.store, this.models.chosen, keptSettings());
    if (chat?.record.model) this.models.choose(chat.record.model);
    history.replaceState(null, "", chat ? `#${chat.id}` : location.pathname + location.search);
    this.log.follows = true;
    this.show();
    this.#modelChanged(); // before anything is waited for: what is set from now on is set for this conversation
    // What a person went to while the conversation was read keeps the focus: keys already typed would go astray.
    const free = [focused, document.body].includes(document.activeElement);
    if (this.sidebar.narrow.matches && this.sidebar.isOpen) this.sidebar.toggle(false);
    if (free) this.composer.focus();
    await this.sidebar.show();
  }

  fresh() {
    return this.open("");
  }

  /** Draw everything of the conversation that is shown. */
  show() {
    const running = this.#running.get(this.chat.id) ?? null;
    const { title } = this.chat.record;
    $("#title").textContent = title;
    document.title = this.chat.empty ? "modelkit" : `${title} · modelkit`;
    for (const id of ["rename", "export-markdown", "export-json", "delete"]) $(`#${id}`).disabled = this.chat.empty;
    this.sidebar.current = this.chat.id;
    this.composer.at(this.chat.id, this.chat.empty);
    this.composer.show(Boolean(running));
    this.log.show(this.chat, running?.message ?? null);
    showContext(this.chat, this.models.state(this.chat.record.model));
  }

  async #othersChanged(id) {
    await takeBack(this.store); // of a tab that was closed in the middle of an answer
    await this.sidebar.show();
    const running = this.#running.get(id);
    const chat = running?.conversation ?? this.chat;
    if (id !== chat.id) return;
    const there = await (running ? chat.reread() : chat.reload());
    if (!there) running?.stop();
    if (chat !== this.chat) return;
    if (!there) return this.fresh();
    this.show();
    await this.#modelChanged(); // its settings may be others, and the next change here writes down all of them
  }

  /** Another tab's answer has grown. */
  async #othersWrite(id, message) {
    const { chat } = this;
    if (id !== chat.id || this.#running.has(id)) return;
    if ((await chat.grow(message)) && chat === this.chat) this.show();
  }

  // --- asking and answering

  send(text, files) {
    if (this.#running.has(this.chat.id)) return false;
    const parent = this.chat.tree.path().at(-1) ?? null;
    if (parent && this.chat.elsewhere.has(parent.id)) {
      this.say("Another tab is writing the answer before this. Wait for its end, or stop it there.");
      return false;
    }
    const message = this.chat.add(parent, { role: "user", content: text, files });
    this.#ask(message);
    return true;
  }

  /** Keep these new messages, and have the last one answered: at once, so that what is sent next finds this answer on its
   * way. The database takes them in this order. */
  async #ask(...messages) {
    const { chat } = this;
    chat.record.model = this.models.chosen;
    const kept = chat.keep(messages);
    history.replaceState(null, "", `#${chat.id}`);
    this.#answer(chat, messages.at(-1));
    await kept;
    this.sidebar.show();
  }

  /** A new answer behind this message; or, goOn given, more of that one. */
  async #answer(chat, parent, goOn = null) {
    if (this.#running.has(chat.id)) return;
    const message = goOn ?? chat.add(parent, { role: "assistant", model: chat.record.model });
    const answering = new Answering(chat, message, () => this.#grown(chat, message));
    this.#running.set(chat.id, answering);
    this.log.follows = true;
    this.announcer.begin(message.content.length);
    answering.begin(Boolean(goOn?.content));
    this.show();
    await answering.run();
    this.#running.delete(chat.id);
    if (chat === this.chat) this.show();
    this.announcer.hear(message.content, true);
    if (message.error) this.announcer.say(message.error.message);
    else if (message.calls?.length) this.announcer.say(`The model calls ${message.calls.map((call) => call.name).join(", ")}`);
    await Promise.all([this.sidebar.show(), this.models.look()]);
  }

  #grown(chat, message) {
    this.announcer.hear(message.content);
    if (chat === this.chat) this.log.grow(message);
  }

  stop() {
    this.#running.get(this.chat.id)?.stop();
  }

  /** What the buttons at messages do: nothing, and false, while an answer is on its way. */
  #acts() {
    const parentOf = (message) => this.chat.tree.messages.get(message.parent) ?? null;
    const free = (act) => (...given) => !this.#running.has(this.chat.id) && (act(...given), true);
    return {
      again: free((message) => {
        this.chat.record.model = this.models.chosen;
        const failed = (message.error || message.partial || message.left) && !message.content && !message.calls?.length;
        this.#answer(this.chat, parentOf(message), failed ? message : null); // nothing is lost where nothing came
      }),
      goOn: free((message) => this.#answer(this.chat, null, message)),
      choose: free(async (message) => {
        await this.chat.choose(message);
        this.show();
      }),
      edited: free(async (message, text) => {
        const { role, files, thinking, model } = message;
        const edited = this.chat.add(parentOf(message), role === "user" ? { role, content: text, files } : { role, content: text, thinking, model, reason: "cancelled" });
        if (role === "user") return this.#ask(edited);
        await this.chat.keep([edited]);
        this.show();
      }),
      results: free((message, results) => {
        let parent = message;
        const said = results.map(({ content, ...result }) => {
          const words = result.failed ? `Error: ${content || "the tool failed"}` : content;
          return (parent = this.chat.add(parent, { role: "tool", ...result, content: words }));
        });
        this.#ask(...said);
      }),
    };
  }

  // --- everything else

  #unkept(error) {
    const full = error?.name === "QuotaExceededError";
    this.say(full ? "The browser has no more room for conversations: what is said now is not kept. Export or delete some." : `What is said now is not kept: ${error?.message}`);
  }

  say(text) {
    $("#banner").textContent = text;
    $("#banner").hidden = !text;
    clearTimeout(this.quiet);
    if (text) this.quiet = setTimeout(() => this.say(""), 8_000);
  }

  #offline(error) {
    $("#banner").textContent = error?.message ?? "";
    $("#banner").hidden = !error;
    clearTimeout(this.again);
    if (error && error.status !== 401) this.again = setTimeout(() => this.models.refresh(), 3_000);
  }

  async #modelChanged() {
    const { chat, models } = this;
    if (!chat) return;
    if (chat.empty || models.chosen !== chat.record.model) chat.record.model = models.chosen;
    showContext(chat, models.state(chat.record.model));
    showMemory(models.loaded);
    const asked = ++this.#described;
    this.settings.show(chat);
    const about = await models.about(chat.record.model);
    if (asked === this.#described) this.settings.show(chat, about); // else it is of a model or a conversation left since
  }

  #keepSettings() {
    if (!this.chat.empty) this.chat.keep([], false);
  }

  async rename(record) {
    const title = await askText("Rename the conversation", "Title", record.title, "Rename");
    if (title === null) return;
    const chat = record.id === this.chat.id ? this.chat : this.#running.get(record.id)?.conversation;
    const target = chat?.record ?? (await this.store.chat(record.id)); // the row's may be old by now
    if (!target) return; // deleted in another tab
    Object.assign(target, { title: title.slice(0, 200), named: true });
    await this.store.put(target).catch((error) => this.#unkept(error));
    this.show();
    await this.sidebar.show();
  }

  async remove(record) {
    if (!(await confirmed(`Delete “${record.title}”?`, "Delete"))) return;
    const running = this.#running.get(record.id);
    running?.stop();
    if (running) running.conversation.gone = true; // the end of its answer must not bring it back
    if (record.id === this.chat.id) this.chat.gone = true;
    this.composer.forget(record.id);
    await this.store.remove(record.id);
    if (record.id === this.chat.id) await this.fresh();
    else await this.sidebar.show();
  }

  async #whole(record) {
    return { record, messages: await this.store.messages(record.id) };
  }

  async #import(files) {
    for (const file of files) {
      try {
        const found = await fromFile(file);
        for (const { record, messages } of found) await this.store.put(record, messages);
        if (found.length) await this.open(found[0].record.id);
        this.say(`${found.length} imported`);
      } catch (error) {
        this.say(`${file.name}: ${error.message}`);
      }
    }
  }

  #buttons() {
    const menu = (id, act) => $(id).addEventListener("click", () => {
      $("#menu").hidePopover();
      act(this.chat.record);
    });
    const on = (id, act) => $(id).addEventListener("click", act);
    on("#new-chat", () => this.fresh());
    menu("#rename", (record) => this.rename(record));
    menu("#delete", (record) => this.remove(record));
    menu("#export-markdown", async (record) => save(fileName(record.title, "md"), toMarkdown(await this.#whole(record)), "text/markdown"));
    menu("#export-json", async (record) => save(fileName(record.title, "json"), toJson([await this.#whole(record)]), "application/json"));
    on("#export-all", async () => {
      const all = await Promise.all((await this.store.list()).map((record) => this.#whole(record)));
      save("conversations.json", toJson(all), "application/json");
    });
    on("#import", () => $("#import-file").click());
    $("#import-file").addEventListener("change", async (event) => {
      await this.#import([...event.target.files]);
      event.target.value = "";
    });
  }
}

new Page().start().catch((error) => {
  $("#banner").textContent = `This page cannot work here: ${error.message}. It needs IndexedDB and JavaScript modules.`;
  $("#banner").hidden = false;
});
