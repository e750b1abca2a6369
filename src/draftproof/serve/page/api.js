// Calls of the server that this page came from. A key is kept in this tab's session storage and sent nowhere else.

const ROOT = new URL("../", location.href);
const NAMES = { admin: "draftproof.key.admin", api: "draftproof.key.api" };

/** A refusal of the server (status), or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(status, message, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const areaOf = (path) => (path.startsWith("admin/") ? "admin" : "api");

/** Keeps a key for an area, "admin" or "api"; for the other one, too, as long as that has none. */
export function setKey(area, key) {
  sessionStorage.setItem(NAMES[area], key);
  const other = area === "admin" ? "api" : "admin";
  if (sessionStorage.getItem(NAMES[other]) === null) sessionStorage.setItem(NAMES[other], key);
}

/** A key that was refused is forgotten. */
export function dropKey(area) {
  sessionStorage.removeItem(NAMES[area]);
}

/** True where a key is kept for the area. */
export const hasKey = (area) => sessionStorage.getItem(NAMES[area]) !== null;

/** The response of a path under the server's root. Raises ApiError. body: sent as JSON, by POST. */
export async function request(path, { body, signal } = {}) {
  const headers = {};
  const key = sessionStorage.getItem(NAMES[areaOf(path)]);
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  const init = { headers, signal, cache: "no-store" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(init, { method: "POST", body: JSON.stringify(body) });
  }
  let response;
  try {
    response = await fetch(new URL(path, ROOT), init);
  } catch (error) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** The JSON value of a path. Raises ApiError. */
export async function call(path, { body, seconds = 15 } = {}) {
  const response = await request(path, { body, signal: AbortSignal.timeout(1000 * seconds) });
  try {
    return await response.json();
  } catch {
    throw new ApiError(0, "the server's answer broke off");
  }
}

async function refusal(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // not ours: a proxy's page, or nothing
  }
  const message = typeof error?.message === "string" ? error.message : `the server answered with ${response.status}`;
  return new ApiError(response.status, message, error?.code ?? null);
}

/** The values of a stream of server-sent events, in order; ends at [DONE]. Raises ApiError where it breaks off. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "the connection broke: the answer is not whole");
    }
    if (part.done) throw new ApiError(0, "the connection ended early: the answer is not whole");
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice(6);
      if (data === "[DONE]") return;
      const value = JSON.parse(data);
      if (value.error) throw new ApiError(500, value.error.message, value.error.code);
      yield value;
    }
  }
}
