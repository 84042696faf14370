// Copy a text: as text, as a request in curl or Python, as a link that carries every setting.

import { usesKey } from "./api.js";
import { announce, byId, say } from "./dom.js";
import { t } from "./language.js";

// state() -> {prompt, model, settings}; text() -> the text as it is shown.
export function setUpShare(state, text) {
  const offered = { "copy-text": text, "copy-curl": () => asCurl(state()), "copy-python": () => asPython(state()) };
  for (const [id, make] of Object.entries(offered)) byId(id).addEventListener("click", () => copy(make()));
}

// The address with a query that `readLink` understands.
export function link(values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  return `${location.origin}${location.pathname}#${query}`;
}

export const readLink = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return say(t("share.refused"));
  }
  announce(t("share.copied"));
  byId("copied").hidden = false;
  setTimeout(() => (byId("copied").hidden = true), 2000);
}

function body({ prompt, model, settings: { tokens, ...settings } }) {
  return { model, prompt, max_tokens: tokens, ...settings };
}

const address = () => new URL("v1/completions", document.baseURI.replace(/#.*/, "")).href;
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asCurl(given) {
  const key = usesKey() ? ` \\\n  -H "Authorization: Bearer $HEADWATER_KEY"` : "";
  return `curl -s ${quoted(address())} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body(given)))}\n`;
}

export function asPython(given) {
  const { top_k, ...known } = body(given);
  const base = address().replace(/\/completions$/, "");
  const key = usesKey() ? 'os.environ["HEADWATER_KEY"]' : '"none"';
  const lines = Object.entries(known).map(([name, value]) => `    ${name}=${literal(value)},`);
  return [
    ...(usesKey() ? ["import os", ""] : []),
    "from openai import OpenAI", "",
    `client = OpenAI(base_url=${literal(base)}, api_key=${key})`,
    "answer = client.completions.create(",
    ...lines,
    `    extra_body={"top_k": ${top_k}},`,
    ")",
    "print(answer.choices[0].text)", "",
  ].join("\n");
}

// JSON's strings and numbers are Python's; a line separator in a string is not, nor is a pair of surrogates.
const literal = (value) => JSON.stringify(value).replace(/[\u007f-\u{10ffff}]/gu, escaped);

function escaped(c) {
  const code = c.codePointAt(0).toString(16);
  return code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
}
