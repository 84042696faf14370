// What was written in this browser, kept there: a prompt and its settings give the same text again.

import { byId, make, store, stored } from "./dom.js";
import { t } from "./language.js";

const KEY = "headwater.history";
const MOST = 20;
let restore = null;

function load() {
  try {
    const found = JSON.parse(stored("localStorage", KEY));
    return Array.isArray(found) ? found : [];
  } catch {
    return []; // what was kept cannot be read
  }
}

function save(items) {
  store("localStorage", KEY, JSON.stringify(items));
  render(items);
}

export function setUpHistory(action) {
  restore = action;
  byId("forget").addEventListener("click", () => {
    save([]);
    byId("history").querySelector("summary").focus();
  });
  document.addEventListener("language", () => render());
  render();
}

export function remember({ prompt, model, settings, text }) {
  const mine = { prompt, model, settings, text: text.slice(0, 240) };
  const same = (one) => JSON.stringify([one.prompt, one.model, one.settings]) === JSON.stringify([prompt, model, settings]);
  save([mine, ...load().filter((one) => !same(one))].slice(0, MOST));
}

function render(items = load()) {
  byId("history").hidden = !items.length;
  byId("history-list").replaceChildren(...items.map((one) =>
    make("li", {}, make("button", { type: "button", class: "plain", onclick: () => restore(one) },
      make("span", { class: "own" }, one.text), make("span", { class: "hint" }, t("history.about", one.model, one.settings))))));
}
