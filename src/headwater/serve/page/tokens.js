// Tokens on the screen: their text from the API's names, their tint, and moving among them by keyboard.

import { make } from "./dom.js";

// The API names a token that is part of a character "bytes:\xe2\x80"; such a run becomes text at its last token.
export function decoder() {
  const utf8 = new TextDecoder();
  return (name) => {
    if (!name.startsWith("bytes:\\x")) return utf8.decode() + name;
    const bytes = [...name.matchAll(/\\x([0-9a-f]{2})/g)].map((found) => parseInt(found[1], 16));
    return utf8.decode(new Uint8Array(bytes), { stream: true });
  };
}

// One token, readable by itself: spaces and line breaks visible.
export const readable = (name) => name.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "→");

export function tokenElement(text, index) {
  const special = /^<\|.*\|>$/.test(text);
  const element = make("span", { class: special ? "token special" : "token", tabindex: "-1" }, text);
  if (/^\n+$/.test(text)) element.classList.add("break");
  element.dataset.index = index;
  return element;
}

export function tint(element, share) {
  element.style.setProperty("--share", Math.max(0, Math.min(0.85, share)).toFixed(3));
}

// How surprising: nothing for a certain token, full at one in a thousand.
export const surprise = (logProbability) => (logProbability === null ? 0 : (-logProbability / Math.log(1000)) * 0.85);

// Left and right, home and end move the focus among the tokens of a container; one of them is a tab stop.
export function roving(container, onKey) {
  container.addEventListener("keydown", (event) => {
    const token = event.target.closest(".token");
    if (!token) return;
    const target = {
      ArrowLeft: token.previousElementSibling,
      ArrowRight: token.nextElementSibling,
      Home: container.firstElementChild,
      End: container.lastElementChild,
    }[event.key];
    if (target) {
      event.preventDefault();
      target.focus();
    } else {
      onKey?.(event, token);
    }
  });
  container.addEventListener("focusin", (event) => {
    container.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    event.target.setAttribute("tabindex", "0");
  });
}
