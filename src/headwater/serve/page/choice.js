// How a token is chosen: the distribution of the model, after temperature, after top-k and top-p, and the draw.

import { tokenName } from "./api.js";
import { bar, byId, make, percent } from "./dom.js";
import { t } from "./language.js";
import { decodeFloats, distributions, draw, ranked } from "./sampling.js";
import { readable } from "./tokens.js";

const ROWS = 10;
const SLIDERS = ["temperature", "top_k", "top_p", "uniform"];
const PLAIN = { temperature: 1, top_k: 0, top_p: 1 };
let step = null; // {logits, order, names, came, given}

const slider = (name) => byId(`choice-${name.replace("_", "-")}`);

export function setUpChoice() {
  for (const name of SLIDERS) slider(name).addEventListener("input", render);
  byId("draw-again").addEventListener("click", () => {
    slider("uniform").value = Math.random();
    render();
  });
  byId("as-written").addEventListener("click", () => set(step.given));
}

export function showChoice({ model, found, entries, index, settings }) {
  const logits = decodeFloats(found.logits);
  const entry = entries[index];
  const names = new Map(found.layers.at(-1).map((one) => [one.token, one.text]));
  names.set(found.target.token, found.target.text);
  if (entry) names.set(entry.id, entry.name);
  for (const other of entry?.alternatives ?? []) names.set(other.id, other.name);
  const drawn = entry?.draw;
  const given = { ...PLAIN, ...(drawn?.settings ?? settings ?? {}), uniform: found.uniform ?? 0.5 };
  // The ranges include the settings that the text was written with.
  slider("temperature").max = Math.max(2, given.temperature);
  slider("top_k").max = Math.min(Math.max(200, given.top_k), logits.length);
  slider("top_p").min = Math.min(0.01, given.top_p);
  step = { model, logits, order: ranked(logits), names, came: entry?.id ?? null, drawn: Boolean(drawn), chosen: entry?.origin, given, asked: new Set() };
  set(given);
}

function set(values) {
  for (const name of SLIDERS) slider(name).value = values[name];
  render();
}

function render() {
  const [temperature, topK, topP, uniform] = SLIDERS.map((name) => Number(slider(name).value));
  const shown = { temperature: temperature.toFixed(2), top_k: topK || t("choice.off"), top_p: topP < 1 ? topP.toFixed(2) : t("choice.off"), uniform: uniform.toFixed(4) };
  for (const [name, text] of Object.entries(shown)) {
    byId(`${slider(name).id}-shown`).textContent = text;
    slider(name).setAttribute("aria-valuetext", text);
  }
  const { logits, order, came } = step;
  const all = distributions(logits, order, { temperature, topK, topP });
  const chosen = temperature > 0 ? draw(all.filtered, uniform) : order[0];
  const ids = order.slice(0, ROWS);
  for (const extra of [came, chosen]) if (extra !== null && !ids.includes(extra)) ids.push(extra);
  ids.sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const others = (values) => Math.max(0, 1 - ids.reduce((sum, id) => sum + values[id], 0));
  const steps = [all.raw, all.tempered, all.filtered];
  const widest = Math.max(...steps.flatMap((values) => [others(values), ...ids.map((id) => values[id])]));
  const cell = (p) => bar(p / widest, percent(p));
  const row = (id) => make("tr", { class: id === chosen ? "drawn" : null },
    make("td", { class: "number" }, (order.indexOf(id) + 1).toLocaleString("en")),
    make("th", { scope: "row" }, make("code", {}, nameOf(id)), id === came ? make("span", { class: "mark" }, t("choice.came")) : null, id === chosen ? make("span", { class: "mark" }, t("choice.drawn")) : null),
    ...steps.map((values) => make("td", {}, values[id] > 0 ? cell(values[id]) : make("span", { class: "hint" }, t("choice.out")))));
  const left = logits.length - ids.length;
  byId("choice").replaceChildren(
    make("thead", {}, make("tr", {}, ...["choice.rank", "choice.token", "choice.raw", "choice.tempered", "choice.filtered"].map((key) => make("th", { scope: "col" }, t(key))))),
    make("tbody", {}, ...ids.map(row), make("tr", { class: "others" }, make("td"), make("th", { scope: "row" }, t("choice.others", left.toLocaleString("en"))), ...steps.map((values) => make("td", {}, cell(others(values)))))),
  );
  showDraw(all.filtered, temperature > 0 ? uniform : null, chosen);
  byId("choice-said").textContent = sentence(chosen);
}

function nameOf(id) {
  const name = step.names.get(id);
  if (name === undefined) lookUp(step, id).catch(() => {}); // its number is shown
  return name === undefined ? t("choice.id", id) : readable(name);
}

// The server named the likeliest tokens only; the name of another is asked for when it is drawn.
async function lookUp(mine, id) {
  if (mine.asked.has(id)) return;
  mine.asked.add(id);
  mine.names.set(id, await tokenName(mine.model, id));
  if (mine === step) render();
}

function sentence(chosen) {
  const name = nameOf(chosen);
  if (step.came === null) return t("choice.said.next", name);
  if (step.chosen === "prompt") return t("choice.said.prompt", name);
  if (step.chosen === "you") return t("choice.said.you", name);
  return step.drawn && chosen === step.came ? t("choice.said.same", name) : t("choice.said.other", name);
}

// The interval from 0 to 1, cut into the tokens' probabilities in the order of their ids, and the number that fell.
function showDraw(probabilities, uniform, chosen) {
  const parts = [];
  let rest = 0;
  const closeRest = () => {
    if (rest) parts.push(make("span", { class: "part rest", "--share": rest.toFixed(5) }));
    rest = 0;
  };
  probabilities.forEach((p, id) => {
    if (!p) return;
    if (p < 0.004 && id !== chosen) return void (rest += p);
    closeRest();
    const text = p > 0.05 || id === chosen ? nameOf(id) : "";
    parts.push(make("span", { class: id === chosen ? "part chosen" : "part", "--share": p.toFixed(5), title: text && `${text}: ${percent(p)}` }, text));
  });
  closeRest();
  if (uniform !== null) parts.push(make("span", { class: "needle", "--share": uniform.toFixed(5) }));
  byId("draw").replaceChildren(...parts);
}
