// Answers whose page goes away while they come: a reload, a closed tab, another address. A database takes nothing from a
// page that is leaving, so what has come is written to the local storage at that moment, which waits for nobody, and the
// next page of this server, in whatever tab, moves it into the conversation: as an answer that was stopped there.

const LEFT = "modelkit.left.";

/** From now on, `state()` is what to keep of the message with this id if the page goes away. What it gives ends that. */
export function keptIfLeft(id, state) {
  const leave = () => {
    try {
      localStorage.setItem(LEFT + id, JSON.stringify(state()));
    } catch {
      // the storage is full: what was kept a second ago has to do
    }
  };
  addEventListener("pagehide", leave);
  return () => {
    removeEventListener("pagehide", leave);
    localStorage.removeItem(LEFT + id); // a page that was left and came back has it all
  };
}

/** Put what earlier pages left into the conversations that are still there. */
export async function takeBack(store) {
  for (const key of Object.keys(localStorage).filter((key) => key.startsWith(LEFT))) {
    const message = JSON.parse(localStorage.getItem(key) ?? "null"); // null: another tab was faster
    if (message && (await store.chat(message.chat))) await store.put(null, [message]);
    localStorage.removeItem(key);
  }
}
