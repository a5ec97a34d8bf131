// Which answers are on their way, in whatever tab of this browser. A tab holds a lock for each answer that it writes; the
// browser takes it away where the tab ends, crashed ones too. A page that comes over plain HTTP from another machine gets no
// locks: there each tab knows its own answers, and takes those of others for written.

import { newId } from "./dom.js";

const NAME = "modelkit.answer.";
/** This tab, which a reload does not change: what it has begun and is not writing any more was left. */
export const TAB = (sessionStorage.tab ??= newId());

/** Hold the lock of this answer from now on. What it gives lets it go. */
export async function hold(id) {
  let letGo = () => {};
  if (!navigator.locks) return letGo;
  await new Promise((held) => {
    navigator.locks
      .request(NAME + id, { ifAvailable: true }, (lock) => (held(), lock && new Promise((over) => (letGo = over))))
      .catch(held); // not allowed here: others are told nothing
  });
  return () => letGo();
}

const awaited = new Set();

/** Ids of those of these messages that another tab is writing. ended: called when one of them is whole, or was left. */
export async function writtenElsewhere(messages, ended) {
  const begun = messages.filter((message) => message.partial);
  if (!begun.length) return new Set();
  const held = await heldLocks();
  const found = begun.filter((message) => (held ? held.has(NAME + message.id) : message.tab !== TAB));
  if (held) for (const { id } of found) if (!awaited.has(id)) awaitEnd(id, ended);
  return new Set(found.map(({ id }) => id));
}

async function awaitEnd(id, ended) {
  awaited.add(id);
  try {
    await navigator.locks.request(NAME + id, () => {}); // it is ours only once nobody has it
  } finally {
    awaited.delete(id);
  }
  ended();
}

async function heldLocks() {
  try {
    return new Set((await navigator.locks.query()).held.map(({ name }) => name));
  } catch {
    return null;
  }
}
