// Calls of the server. A key, where the server asks for one, is kept until the tab is closed.

import { byId, store, stored } from "./dom.js";
import { t } from "./language.js";
import { ALTERNATIVES } from "./tokens.js";

let key = stored("sessionStorage", "key");
let asking = null; // one dialog for all requests that wait for a key

function askForKey(refused) {
  asking ??= new Promise((done, cancelled) => {
    const dialog = byId("key-dialog");
    byId("key").value = "";
    byId("key-refused").hidden = !refused;
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      const given = byId("key").value;
      if (dialog.returnValue !== "use" || !given) return cancelled(new Error(t("key.needed")));
      key = given;
      store("sessionStorage", "key", key);
      done();
    }, { once: true });
  });
  return asking;
}

export const usesKey = () => Boolean(key);

async function request(path, body, signal) {
  const headers = {};
  const used = key;
  if (used) headers.Authorization = `Bearer ${used}`;
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
    throw new Error(t("server.silent"));
  }
  if (answer.status === 401) {
    // Another request may have brought a key meanwhile.
    if (key === used) await askForKey(Boolean(used));
    return request(path, body, signal);
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => null);
    const error = new Error(problem?.error?.message ?? t("server.status", answer.status));
    throw Object.assign(error, { code: problem?.error?.code });
  }
  return answer;
}

export async function call(path, body, signal) {
  return (await request(path, body, signal)).json();
}

// Server-sent events of a completion, one parsed chunk at a time.
async function* stream(body, signal) {
  const answer = await request("v1/completions", { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error(t("server.broken"));
    }
    if (part.done) throw new Error(t("server.broken"));
    held += part.value;
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

// The entries of one choice of a completion with logprobs; ids: of its tokens.
function entriesOf(choice, ids, more) {
  const found = choice.logprobs;
  return (found?.tokens ?? []).map((name, place) => {
    const top = found.top_token_ids[place] ?? {};
    const alternatives = Object.entries(found.top_logprobs[place] ?? {})
      .map(([other, logProbability]) => ({ id: top[other], name: other, logProbability }))
      .sort((one, two) => two.logProbability - one.logProbability)
      .slice(0, ALTERNATIVES); // beyond them is the token itself, if it is not among them
    return { id: ids[place], name, logProbability: found.token_logprobs[place], alternatives, ...more };
  });
}

// Lets a model continue a text. Calls on(entries, written) for each chunk of tokens. Returns a sentence on how the text ended.
export async function continueText(model, before, settings, seed, signal, on) {
  const { tokens, temperature, top_k, top_p } = settings;
  const room = model.context + 1 - before.length;
  if (room < 1) throw new Error(t("write.full", model.context));
  const wanted = Math.min(tokens, room);
  const asked = {
    model: model.id, prompt: before.map((entry) => entry.id), max_tokens: wanted, temperature,
    top_k: Math.min(top_k, model.vocabulary), top_p, seed, logprobs: ALTERNATIVES, return_token_ids: true,
  };
  let written = 0;
  let reason = "length";
  for await (const chunk of stream(asked, signal)) {
    const choice = chunk.choices[0];
    const entries = entriesOf(choice, choice.token_ids, { origin: "model" });
    for (const entry of entries) entry.draw = { seed, step: written++, settings };
    reason = choice.finish_reason ?? reason;
    on(entries, written);
  }
  const why = reason === "stop" ? t("write.ended") : wanted < tokens ? t("write.cut", wanted, tokens, model.context) : "";
  return [t("write.done", written), why].filter(Boolean).join(" ");
}

// A text or token ids as the model reads them, with its log-probability of each token.
export async function read(model, prompt, signal) {
  const asked = { model, prompt, echo: true, max_tokens: 0, logprobs: ALTERNATIVES, return_token_ids: true };
  const answer = await call("v1/completions", asked, signal);
  const choice = answer.choices[0];
  return entriesOf(choice, choice.prompt_token_ids, { origin: "prompt" });
}

export async function tokenName(model, id) {
  const answer = await call("v1/completions", { model, prompt: [id], echo: true, max_tokens: 0, logprobs: 0 });
  return answer.choices[0].logprobs.tokens[0];
}

// Infinity for a text that is longer than the context.
export async function countTokens(model, prompt) {
  const asked = { model, prompt, echo: true, max_tokens: 0, return_token_ids: true };
  try {
    return (await call("v1/completions", asked)).choices[0].prompt_token_ids.length;
  } catch (error) {
    if (error.code === "context_length_exceeded") return Infinity;
    throw error;
  }
}
