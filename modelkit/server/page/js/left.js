// Answers whose page goes away while they come: a reload, a closed tab, another address. A database takes nothing from a
// page that is leaving, so what has come is written to the local storage at that moment, which waits for nobody, and the
// next page of this server, in whatever tab, moves it into the conversation: as an answer that was stopped there.

import { forget, recall, remember, remembered } from "./local.js";

const LEFT = "left.";

/** From now on, `state()` is what to keep of the message with this id if the page goes away. What it gives ends that. */
export function keptIfLeft(id, state) {
  const leave = () => remember(LEFT + id, state()); // where the storage is full, what was kept a second ago has to do
  addEventListener("pagehide", leave);
  return () => {
    removeEventListener("pagehide", leave);
    forget(LEFT + id); // a page that was left and came back has it all
  };
}

/** Put what earlier pages left into the conversations that are still there. */
export async function takeBack(store) {
  for (const name of remembered(LEFT)) {
    const message = recall(name); // null: another tab was faster
    if (typeof message?.id === "string" && typeof message.chat === "string" && (await store.chat(message.chat))) await store.put(null, [message]);
    forget(name);
  }
}
