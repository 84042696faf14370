// Two models: each writes with its own settings and seed.

import { continueText, read } from "./api.js";
import { cardKey, forgetChosen, hideCard, hideUnpinned, showCard } from "./card.js";
import { byId, onSubmit } from "./dom.js";
import { t } from "./language.js";
import { Settings } from "./settings.js";
import { Passage } from "./tokens.js";

let models = [];
let running = null;
const sides = {};

export function setUpCompare(all) {
  models = all;
  for (const name of ["a", "b"]) sides[name] = new Side(name);
  onSubmit(byId("compare-form"), () => writeBoth());
  byId("compare-stop").addEventListener("click", () => {
    running?.abort();
    byId("compare-go").focus();
  });
  document.addEventListener("language", () => {
    for (const side of Object.values(sides)) side.relabel();
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
