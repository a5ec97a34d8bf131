// Small things that this browser remembers, as JSON under names of ours. Where it allows no storage the very word
// `localStorage` raises: then nothing is remembered, and the page does all else.

const ours = (name) => `modelkit.${name}`;

/** What is remembered under the name; null where nothing is, or nothing that can be read. */
export function recall(name) {
  try {
    return JSON.parse(localStorage.getItem(ours(name)));
  } catch {
    return null;
  }
}

/** Whether it is remembered: the storage may be full. */
export function remember(name, value) {
  try {
    localStorage.setItem(ours(name), JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function forget(name) {
  try {
    localStorage.removeItem(ours(name));
  } catch {
    // nothing is there
  }
}

/** Names that begin so. */
export function remembered(prefix) {
  try {
    const all = Object.keys(localStorage).filter((key) => key.startsWith(ours(prefix)));
    return all.map((key) => key.slice(ours("").length));
  } catch {
    return [];
  }
}
