// Numbers and sentences as people read them, in the reader's own language's style.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);

export const ratio = (value) => tenth.format(value);

/** Seconds: 0.31 s, 4.2 s, 75 s. */
export function seconds(value) {
  return `${value < 1 ? value.toFixed(2) : value < 20 ? value.toFixed(1) : whole.format(value)} s`;
}

/** Bytes in powers of 1000, as makers of memory and disks count. */
export function bytes(value) {
  const steps = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 1000 && step < steps.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step === 0 || value >= 100 ? whole.format(value) : tenth.format(value)} ${steps[step]}`;
}

/** What a model takes of the memory now: of what is set aside for earlier prompts, only what is filled. */
export const taken = (state) => state.size_bytes - state.prefix_limit_bytes + state.prefix_bytes;

/** One of them, several of them. */
export const plural = (value, one, more = `${one}s`) => `${count(value)} ${value === 1 ? one : more}`;

/** What a server says, each line with a capital and a full stop: `the model is busy` is a part of JSON, not a text. */
export function sentences(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.map((line) => line.charAt(0).toUpperCase() + line.slice(1) + (/[.!?…)\]]$/.test(line) ? "" : ".")).join(" ");
}
