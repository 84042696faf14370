// The card beside a token: how probable it was, what else might have come, and where one can go from there.

import { byId, make, percent } from "./dom.js";
import { readable } from "./tokens.js";

const card = byId("card");
let pinned = false;
let shown = null; // {anchor, choose, look}
let marked = -1;

// entry: {name, logProbability, alternatives: [{id, name, logProbability}]}
export function showCard(anchor, entry, actions, pin = false) {
  if (pinned && !pin && shown?.anchor !== anchor) return;
  pinned = pin;
  if (shown?.anchor === anchor && !card.hidden) return;
  shown = { anchor, ...actions };
  marked = -1;
  const chance = entry.logProbability === null ? "the first token" : percent(Math.exp(entry.logProbability));
  card.replaceChildren(make("p", {}, make("code", {}, readable(entry.name)), " · ", chance));
  for (const other of entry.alternatives) {
    const p = Math.exp(other.logProbability);
    const current = other.id === entry.id ? "true" : null;
    card.append(
      make(
        "button",
        { "--share": p.toFixed(4), "aria-current": current, title: "Branch from here", onclick: () => branch(other) },
        make("code", {}, readable(other.name)),
        make("span", { class: "number" }, percent(p)),
      ),
    );
  }
  card.append(make("button", { class: "plain", onclick: () => leave(shown.look) }, "Look inside here"));
  card.hidden = false;
  place(anchor);
}

function place(anchor) {
  const at = anchor.getClientRects()[0];
  if (!at) return;
  const width = card.offsetWidth;
  const height = card.offsetHeight;
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
  const below = at.bottom + 6;
  const top = below + height > innerHeight && at.top - height - 6 > 0 ? at.top - height - 6 : below;
  card.style.left = `${left + scrollX}px`;
  card.style.top = `${top + scrollY}px`;
}

function branch(other) {
  leave(() => shown.choose(other));
}

function leave(action) {
  hideCard(true);
  action();
}

export function hideCard(force = false) {
  if (pinned && !force) return;
  card.hidden = true;
  pinned = false;
}

// Up and down mark an alternative, Enter takes it. Returns whether the key was one of them.
export function cardKey(event) {
  if (card.hidden) return false;
  const buttons = [...card.querySelectorAll("button")];
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    marked = (marked + (event.key === "ArrowDown" ? 1 : -1) + buttons.length) % buttons.length;
    buttons.forEach((button, place) => button.classList.toggle("marked", place === marked));
  } else if (event.key === "Enter" && marked >= 0) {
    buttons[marked].click();
  } else {
    return false;
  }
  event.preventDefault();
  return true;
}

// The token keeps the focus while its card is used, so that focus leaving it can close the card.
card.addEventListener("pointerdown", (event) => event.preventDefault());

let leaving = 0;
card.addEventListener("pointerenter", () => clearTimeout(leaving));
card.addEventListener("pointerleave", () => hideSoon());

export function hideSoon() {
  clearTimeout(leaving);
  leaving = setTimeout(() => hideCard(), 250);
}
export const stay = () => clearTimeout(leaving);

document.addEventListener("pointerdown", (event) => {
  if (!card.contains(event.target) && !event.target.closest(".token")) hideCard(true);
});
