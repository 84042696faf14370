// What a token competed with: its probability and rank, the alternatives, and what can be done next.
// A panel next to the text; on a narrow screen a sheet at the bottom.

import { announce, byId, make, percent } from "./dom.js";
import { t } from "./language.js";
import { ALTERNATIVES, describe, rankOf, readable } from "./tokens.js";

const card = byId("card");
const narrow = matchMedia("(max-width: 64rem)");
let shown = null; // {passage, index, actions, pinned}
let chosen = null; // the story of the token that was chosen last
let openStory = null;
let marked = -1;

export const setUpCard = (story) => (openStory = story);

// What `setUpCard` was given opens, for the token that was chosen last; once.
export function takeChosen() {
  const story = chosen?.();
  chosen = null;
  return story;
}

export const forgetChosen = () => (chosen = null);

// actions: {branch(other), again(), story() -> [model, entries, index, settings]}, each where it is possible here.
export function showCard(passage, index, actions, pinned) {
  if (!pinned && (shown?.pinned || narrow.matches)) return; // a sheet would come between the pointer and the text
  if (shown?.passage === passage && shown.index === index && shown.pinned === pinned) return;
  const entry = passage.entries[index];
  if (!entry) return;
  shown = { passage, index, actions, pinned };
  marked = -1;
  if (pinned) {
    passage.select(index);
    chosen = actions.story;
  }
  const close = make("button", { type: "button", class: "plain close", "aria-label": t("card.close"), onclick: () => hideCard(true) }, "×");
  card.replaceChildren(
    make("header", {}, make("code", { class: "token-name" }, readable(entry.name)), close),
    make("p", { class: "fact" }, fact(entry)),
    ...choices(entry, actions),
    make("div", { class: "actions" },
      actions.story && make("button", { type: "button", class: "story", onclick: () => leave(() => openStory(...takeChosen())) }, t("card.story")),
      actions.again && make("button", { type: "button", class: "again", onclick: () => leave(actions.again) }, t("card.again"))),
  );
  card.hidden = false;
  document.body.classList.add("with-card");
  if (narrow.matches) passage.element.children[index]?.scrollIntoView({ block: "nearest" });
}

function fact(entry) {
  if (entry.logProbability === null || entry.logProbability === undefined) return t("card.first");
  const rank = rankOf(entry);
  const p = percent(Math.exp(entry.logProbability));
  return `${p} · ${rank ? t("token.rank", rank) : t("token.beyond", Math.min(ALTERNATIVES, entry.alternatives.length))}`;
}

function choices(entry, actions) {
  if (!entry.alternatives.length) return [];
  const rows = entry.alternatives.map((other) => {
    const p = Math.exp(other.logProbability);
    const content = [make("code", {}, readable(other.name)), make("span", { class: "number" }, percent(p))];
    const about = { class: "choice", "--share": p.toFixed(4), "aria-current": other.id === entry.id ? "true" : null };
    if (!actions.branch) return make("div", about, ...content);
    const label = t("card.branch", describe({ ...other, alternatives: entry.alternatives }));
    return make("button", { type: "button", ...about, "aria-label": label, onclick: () => leave(() => actions.branch(other)) }, ...content);
  });
  const rest = Math.max(0, 1 - entry.alternatives.reduce((sum, other) => sum + Math.exp(other.logProbability), 0));
  return [
    make("p", { class: "hint" }, actions.branch ? t("card.hint") : t("card.competed")),
    ...rows,
    make("div", { class: "choice others", "--share": rest.toFixed(4) }, make("span", {}, t("card.others")), make("span", { class: "number" }, percent(rest))),
  ];
}

function leave(action) {
  hideCard();
  action();
}

// back: the focus returns to the token.
export function hideCard(back = false) {
  const { passage, index } = shown ?? {};
  shown = null;
  card.hidden = true;
  document.body.classList.remove("with-card");
  if (back && passage?.element.isConnected) passage.focus(index);
}

export const cardIsOpen = () => !card.hidden;

// The pointer left the text: what it merely passed over is closed.
export function hideUnpinned() {
  if (shown && !shown.pinned) hideCard();
}

// On a token, up and down mark an alternative and Enter takes it. Without a mark, Enter goes into the card.
export function cardKey(event) {
  if (card.hidden) return;
  const buttons = [...card.querySelectorAll("button.choice")];
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (!buttons.length) return;
    marked = (marked + (event.key === "ArrowDown" ? 1 : -1) + buttons.length + (marked < 0 && event.key === "ArrowUp" ? 1 : 0)) % buttons.length;
    buttons.forEach((button, place) => button.classList.toggle("marked", place === marked));
    announce(buttons[marked].getAttribute("aria-label"));
  } else if (event.key === "Enter" || event.key === " ") {
    if (marked >= 0) buttons[marked].click();
    else card.querySelector("button:not(.close)")?.focus();
  } else {
    return;
  }
  event.preventDefault();
}
