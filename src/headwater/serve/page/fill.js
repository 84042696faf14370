// A masked model: the words that it finds likely for each [MASK].

import { call } from "./api.js";
import { bar, byId, fillSelect, make, onSubmit } from "./dom.js";
import { t } from "./language.js";
import { readable } from "./tokens.js";

const MASK = "[MASK]";
const TOP = 8;
let found = null;

export function setUpFill(models) {
  fillSelect(byId("fill-model"), models.map((model) => [model.id, model.id]));
  onSubmit(byId("fill-form"), fill);
  byId("blank").addEventListener("click", () => {
    const area = byId("fill-text");
    area.setRangeText(MASK, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  });
  document.addEventListener("language", () => found && showFound());
}

async function fill() {
  const text = byId("fill-text").value;
  if (!text.includes(MASK)) throw new Error(t("fill.none"));
  const answer = await call("v1/fill", { model: byId("fill-model").value, input: text, top: TOP });
  found = { text, masks: answer.data, words: answer.data.map((mask) => mask.tokens[0]?.text ?? "") };
  showFound();
}

function showFound() {
  const { text, masks, words } = found;
  byId("filled").hidden = false;
  const parts = text.split(MASK);
  byId("filled-text").replaceChildren(...parts.flatMap((part, place) => (place < masks.length ? [part, make("mark", {}, words[place].trim())] : [part])));
  byId("filled-masks").replaceChildren(...masks.map((mask, place) => make("section", {}, make("h2", {}, t("fill.blank", place + 1)),
    ...mask.tokens.map((one) => make("button", {
      type: "button", class: "choice", "--share": one.probability.toFixed(4), "aria-pressed": String(words[place] === one.text),
      onclick: (event) => choose(place, one.text, event.currentTarget),
    }, make("code", {}, readable(one.text)), bar(one.probability))))));
}

function choose(place, text, button) {
  found.words[place] = text;
  const at = [...byId("filled-masks").querySelectorAll("button")].indexOf(button);
  showFound();
  byId("filled-masks").querySelectorAll("button")[at].focus();
}
