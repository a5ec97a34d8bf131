// All that the page says to the server. The API key is asked for once, when the server wants one; it is kept for this
// tab only and travels as a Bearer token. Paths are found from this file's own address, so that a proxy may put the
// whole server under a path of its own.

const ROOT = new URL("../../", import.meta.url);
const KEY = "modelkit.key";
const LONGEST_LINE = 64 * 1024 * 1024;

export class ServerError extends Error {
  /** status: of HTTP, 0 where nothing answered. retryAfter: seconds, where the server says when to try again. */
  constructor(message, status = 0, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let asking = null;
let askForKey = async () => null;

/** ask: called with true where a key was refused; its promise gives a key, or null for giving up. */
export function whenKeyIsWanted(ask) {
  askForKey = ask;
}

/** One question for all requests that wait for the key. */
async function newKey(refused) {
  asking ??= askForKey(refused !== null).finally(() => (asking = null));
  const key = await asking;
  if (key === null) throw new ServerError("The server wants an API key.", 401);
  sessionStorage.setItem(KEY, key);
}

async function refusal(response) {
  let said = null;
  try {
    const { error } = await response.json();
    said = typeof error === "string" ? error : error?.message;
  } catch {
    // whatever stands between the page and the server may answer in HTML
  }
  const after = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim();
  return new ServerError(said || fallback, response.status, Number.isNaN(after) ? null : after);
}

async function send(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { accept: "application/json" };
    if (key !== null) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    let response;
    try {
      const text = body === undefined ? undefined : JSON.stringify(body);
      const options = { method, headers, body: text, signal, cache: "no-store", credentials: "omit" };
      response = await fetch(new URL(path, ROOT), options);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ServerError("The server cannot be reached. Is `modelkit serve` running?");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await refusal(response);
    if (sessionStorage.getItem(KEY) === key) await newKey(key); // else another request has just got one
  }
}

/** The values of a stream of JSON lines. */
async function* jsonLines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (rest + (value ?? "")).split("\n");
      rest = done ? "" : lines.pop();
      if (rest.length > LONGEST_LINE) throw new ServerError("The server sends a line without an end.");
      for (const line of lines) if (line.trim()) yield JSON.parse(line);
      if (done) return;
    }
  } catch (error) {
    if (error instanceof ServerError || error.name === "AbortError") throw error;
    throw new ServerError("The connection broke off in the middle of the answer.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The events of an answer, see answering.js; the last one has the type "finish". */
export async function* answer(request, signal) {
  const response = await send("modelkit/v1/chat", { method: "POST", body: request, signal });
  for await (const event of jsonLines(response)) {
    if (event.error) throw new ServerError(event.error.message, response.status, event.error.retry_after_s ?? null);
    yield event;
    if (event.type === "finish") return;
  }
  throw new ServerError("The connection broke off in the middle of the answer.");
}

const value = async (path, options) => (await send(path, options)).json();

/** Every model that can be asked for. */
export const models = async () => (await value("api/tags")).models ?? [];

/** Every parameter of a request, with the value that it has unless a package says otherwise. */
export const defaults = () => value("modelkit/v1/defaults");

/** Those in memory. */
export const loaded = async () => (await value("modelkit/v1/ps")).models ?? [];

/** What one model is and can: `capabilities`, `parameters`, `model_info`. */
export const about = (model) => value("api/show", { method: "POST", body: { model } });

/** Bring a model into memory. */
export const load = (model) => value("modelkit/v1/load", { method: "POST", body: { model } });

/** Let a model go, once nobody uses it any more. */
export const unload = (model) => value("modelkit/v1/stop", { method: "POST", body: { model } });
