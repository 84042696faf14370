// Two models: each writes with its own settings and seed; and one text, scored by both.

import { continueText, read } from "./api.js";
import { align, difference, total } from "./align.js";
import { cardKey, forgetChosen, hideCard, hideUnpinned, showCard } from "./card.js";
import { attempt, byId, make, onSubmit, percent } from "./dom.js";
import { t } from "./language.js";
import { Settings } from "./settings.js";
import { Passage, bytesOf, readable, textOf, tint } from "./tokens.js";

let models = [];
let running = null;
let scoring = null; // what aborts the requests under way
let scored = null; // [entries of a, entries of b]
const sides = {};

export function setUpCompare(all) {
  models = all;
  for (const name of ["a", "b"]) sides[name] = new Side(name);
  onSubmit(byId("compare-form"), () => writeBoth());
  byId("compare-stop").addEventListener("click", () => {
    running?.abort();
    byId("compare-go").focus();
  });
  onSubmit(byId("score-form"), () => score());
  for (const name of ["a", "b"]) byId(`take-${name}`).addEventListener("click", () => {
    byId("score-text").value = textOf(sides[name].passage.entries);
    attempt(score);
  });
  document.addEventListener("language", () => {
    for (const side of Object.values(sides)) side.relabel();
    if (scored) showScores();
  });
}

export function compareState() {
  const [a, b] = [sides.a, sides.b];
  const prefixed = Object.fromEntries(Object.entries(b.settings.values).map(([name, value]) => [`b_${name}`, value]));
  return { prompt: byId("compare-prompt").value, a: a.model, b: b.model, ...a.settings.values, ...prefixed };
}

export function restoreCompare(given) {
  if (given.prompt !== undefined) byId("compare-prompt").value = given.prompt;
  for (const [name, prefix] of [["a", ""], ["b", "b_"]]) {
    if (given[name]) byId(`compare-model-${name}`).value = given[name];
    sides[name].settings.values = Object.fromEntries(["tokens", "temperature", "top_k", "top_p", "seed"].map((key) => [key, given[prefix + key] ?? given[key]]));
  }
}

// One model's text.
class Side {
  constructor(name) {
    this.name = name;
    this.settings = new Settings(byId(`compare-settings-${name}`), `compare-${name}`);
    this.passage = new Passage("", { choose: (index, how) => this.open(index, how), key: cardKey });
    byId(`compare-text-${name}`).append(this.passage.element);
    byId(`compare-text-${name}`).addEventListener("pointerleave", hideUnpinned);
    this.relabel();
  }

  get model() {
    return byId(`compare-model-${this.name}`).value;
  }

  relabel() {
    this.passage.element.setAttribute("aria-label", t("compare.text", this.name.toUpperCase()));
  }

  open(index, how) {
    const story = () => [this.written, this.passage.entries, index, this.settings.values];
    showCard(this.passage, index, { story }, how !== "hover");
  }

  async write(prompt, signal) {
    const model = models.find((one) => one.id === this.model);
    const status = byId(`compare-status-${this.name}`);
    status.textContent = "";
    const before = await read(model.id, prompt, signal);
    hideCard();
    forgetChosen();
    this.written = model.id;
    this.passage.show(before);
    const settings = this.settings.values;
    status.textContent = await continueText(model, before, settings, settings.seed, signal, (entries) => this.passage.add(entries));
    this.passage.flush();
  }
}

export async function writeBoth() {
  running?.abort();
  const mine = (running = new AbortController());
  byId("compare-stop").disabled = false;
  byId("compare-shown").hidden = false;
  document.body.dataset.running = "true";
  const prompt = byId("compare-prompt").value;
  const outcomes = await Promise.allSettled(Object.values(sides).map((side) => side.write(prompt, mine.signal)));
  if (running === mine) {
    running = null;
    byId("compare-stop").disabled = true;
    document.body.dataset.running = "false";
  }
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed) throw failed.reason;
}

async function score() {
  const text = byId("score-text").value;
  const [a, b] = [sides.a.model, sides.b.model];
  scoring?.abort();
  const mine = (scoring = new AbortController());
  byId("score-pieces").setAttribute("aria-busy", "true");
  try {
    const found = await Promise.all([read(a, text, mine.signal), read(b, text, mine.signal)]);
    if (scoring !== mine) return; // an older text never replaces a newer one
    scored = { entries: found, models: [a, b], text };
    showScores();
  } finally {
    if (scoring === mine) byId("score-pieces").setAttribute("aria-busy", "false");
  }
}

// Bits a byte, which do not depend on how a model cuts the text.
function bits(entries) {
  const length = entries.slice(1).reduce((sum, entry) => sum + bytesOf(entry.name).length, 0);
  return length ? -total(entries) / Math.LN2 / length : 0;
}

function showScores() {
  const { entries, models: names } = scored;
  byId("scores").hidden = false;
  byId("score-table").replaceChildren(
    make("tr", {}, make("td"), make("th", { scope: "col" }, t("score.tokens")), make("th", { scope: "col" }, t("score.total")), make("th", { scope: "col" }, t("score.bits"))),
    ...entries.map((side, place) => make("tr", {}, make("th", { scope: "row" }, `${"AB"[place]} · ${names[place]}`),
      make("td", { class: "number" }, String(side.length)), make("td", { class: "number" }, total(side).toFixed(1)), make("td", { class: "number" }, bits(side).toFixed(3)))),
  );
  const same = textOf(entries[0]) === textOf(entries[1]);
  byId("score-same").textContent = same ? t("score.hint") : t("score.differ");
  byId("score-legend").hidden = !same;
  const list = byId("score-pieces");
  list.replaceChildren(...(same ? align(...entries).map(pieceElement) : []));
  list.hidden = !same;
  byId("score-said").textContent = "";
}

function pieceElement(piece) {
  const share = difference(piece);
  const text = textOf(piece.first);
  const chances = [piece.first, piece.second].map((side) => (side.some((entry) => entry.logProbability === null) ? "–" : percent(Math.exp(total(side)))));
  const said = t("score.piece", readable(text), ...chances);
  const element = make("span", { class: share >= 0 ? "piece for" : "piece against", role: "listitem", title: said, "aria-label": said }, text);
  tint(element, Math.abs(share));
  element.addEventListener("pointerenter", () => (byId("score-said").textContent = said));
  return element;
}
