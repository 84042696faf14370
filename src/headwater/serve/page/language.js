// The language of the page: the reader's choice, else the browser's; English if neither is available.

import english from "./words_en.js";
import korean from "./words_ko.js";
import { byId, store, stored } from "./dom.js";

const WORDS = { en: english, ko: korean };
const KEY = "headwater.language";
let language = "en";

// The text of a key; a function where the text depends on numbers or names.
export function t(key, ...values) {
  const text = WORDS[language][key] ?? english[key];
  return typeof text === "function" ? text(...values) : text;
}

function use(name) {
  language = name;
  document.documentElement.lang = name;
  byId("language").value = name;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) element.setAttribute("aria-label", t(element.dataset.tLabel));
  for (const element of document.querySelectorAll("[data-t-placeholder]")) element.placeholder = t(element.dataset.tPlaceholder);
  for (const link of document.querySelectorAll("[data-read]")) {
    const [question, address] = WORDS[name].read[link.dataset.read];
    link.textContent = question;
    link.href = `page/reading/${address}`;
  }
  document.dispatchEvent(new Event("language"));
}

export function setUpLanguage() {
  const wanted = [stored("localStorage", KEY), ...navigator.languages.map((name) => name.split("-")[0])];
  use(wanted.find((name) => name in WORDS) ?? "en");
  byId("language").addEventListener("change", (event) => {
    store("localStorage", KEY, event.target.value);
    use(event.target.value);
  });
}
