// Calls of the server. A key, where it asks for one, lasts as long as the tab.

import { byId } from "./dom.js";

function askForKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  byId("key").value = "";
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => {
      if (byId("key").value) sessionStorage.setItem("key", byId("key").value);
      done();
    }, { once: true }),
  );
}

async function request(path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem("key");
  if (key) headers.Authorization = `Bearer ${key}`;
  const options = { headers, signal };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.status === 401) {
    await askForKey();
    if (sessionStorage.getItem("key") !== key) return request(path, body, signal);
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => null);
    throw new Error(problem?.error?.message ?? `The server answered ${answer.status}.`);
  }
  return answer;
}

export async function call(path, body, signal) {
  return (await request(path, body, signal)).json();
}

// Server-sent events of a completion, one parsed chunk at a time.
export async function* stream(body, signal) {
  const answer = await request("v1/completions", { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}
