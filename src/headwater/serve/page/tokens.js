// Tokens on the screen: their bytes, their text, their tint, and the list that one moves in by keyboard.

import { make, percent } from "./dom.js";
import { t } from "./language.js";

export const ALTERNATIVES = 8; // the likeliest tokens that are asked for at each position
const encoder = new TextEncoder();
const END_OF_TEXT = "<|endoftext|>";
const SPECIAL = /^<\|.*\|>$|^_[a-z]+_$/;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\ufffd]/u;

// The API names a token that is part of a character "bytes:\xe2\x80".
const isPart = (name) => name.startsWith("bytes:\\x");

export function bytesOf(name) {
  if (!isPart(name)) return encoder.encode(name);
  return Uint8Array.from([...name.matchAll(/\\x([0-9a-f]{2})/g)].map((found) => parseInt(found[1], 16)));
}

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

// As the API gives it, without the mark before a text with an empty prompt and the mark at which the model ended.
export function textOf(all) {
  const edges = { prompt: 0, model: all.length - 1 };
  const entries = all.filter((entry, place) => !(entry.name === END_OF_TEXT && place === edges[entry.origin]));
  const parts = entries.map((entry) => bytesOf(entry.name));
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(joined, { stream: true }); // an unfinished character at the end is left out
}

// One token, readable by itself: spaces, line breaks and bytes are visible.
export function readable(name) {
  if (isPart(name)) return hex(bytesOf(name));
  return [...name].map((c) => ({ " ": "·", "\n": "↵", "\t": "→" })[c] ?? (UNPRINTABLE.test(c) ? codePoint(c) : c)).join("");
}

// As a screen reader says it.
function spoken(name) {
  if (isPart(name)) return t("token.bytes", hex(bytesOf(name)));
  const text = readable(name.trim());
  return text || (name.includes("\n") ? t("token.line") : t("token.space"));
}

const codePoint = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// Gives the text and the chip of tokens in order. Of a character that several tokens make up, the last shows it
// and the others show their bytes.
export function decoder() {
  const fresh = () => new TextDecoder("utf-8", { ignoreBOM: true });
  let held = fresh();
  return (name) => {
    if (!isPart(name)) {
      held = fresh();
      return printed(name);
    }
    const bytes = bytesOf(name);
    const text = held.decode(bytes, { stream: true }).replaceAll("\ufffd", "");
    return text ? printed(text) : { text: "", chip: hex(bytes) };
  };
}

const printed = (text) => (UNPRINTABLE.test(text.replace(/[\n\t]/g, "")) ? { text: "", chip: readable(text) } : { text, chip: null });

export function rankOf(entry) {
  const place = entry.alternatives.slice(0, ALTERNATIVES).findIndex((other) => other.id === entry.id);
  return place < 0 ? null : place + 1; // the server may list the token itself after the likeliest
}

export function describe(entry) {
  if (entry.origin === "next") return t("token.next");
  const name = spoken(entry.name);
  if (entry.logProbability === null || entry.logProbability === undefined) return name;
  const rank = rankOf(entry);
  const place = rank ? t("token.rank", rank) : t("token.beyond", Math.min(ALTERNATIVES, entry.alternatives.length));
  return `${name}, ${percent(Math.exp(entry.logProbability))}, ${place}`;
}

// How surprising a token is: 0 for a certain one, 1 at one in a thousand.
export const surprise = (logProbability) => Math.min(1, Math.max(0, -(logProbability ?? 0) / Math.log(1000)));

export const tint = (element, share) => element.style.setProperty("--share", Math.max(0, Math.min(1, share)).toFixed(3));

function tokenElement({ text, chip }, entry, index, prefix) {
  const element = make("span", { class: "token", role: "option", id: `${prefix}-${index}`, "aria-selected": "false", "aria-label": describe(entry) }, text);
  if (SPECIAL.test(entry.name)) element.classList.add("special");
  if (entry.origin) element.classList.add(entry.origin);
  if (/^\n+$/.test(text)) element.classList.add("break");
  if (chip) {
    element.classList.add("chip");
    element.dataset.show = chip;
  }
  element.dataset.index = index;
  return element;
}

let passages = 0;

// A text as a list of tokens. The list has the focus, one token of it is active: the arrow keys, Home and End move.
// (Tokens that took the focus themselves could not be selected with the mouse.)
// on.choose(index, how) with how "focus", "hover" or "click"; on.key(event, index).
export class Passage {
  constructor(label, on = {}) {
    this.on = on;
    this.prefix = `passage-${passages++}`;
    this.element = make("div", { class: "text", role: "listbox", tabindex: "0", "aria-label": label, "aria-orientation": "horizontal" });
    this.element.addEventListener("focus", () => this.byPointer || this.activate(this.active?.dataset.index ?? 0, "focus"));
    // The focus that a pointer brings is not a choice; the click is. A finger's focus comes after it was lifted.
    this.element.addEventListener("pointerdown", () => (this.byPointer = true));
    for (const end of ["pointercancel", "keydown", "blur"]) this.element.addEventListener(end, () => (this.byPointer = false));
    this.element.addEventListener("pointerover", (event) => event.pointerType === "mouse" && !event.buttons && this.point(event, "hover"));
    this.element.addEventListener("click", (event) => {
      this.byPointer = false;
      this.point(event, "click");
    });
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.begin();
  }

  begin() {
    this.entries = [];
    this.waiting = [];
    this.decode = decoder();
    this.active = null;
    this.chosen = null;
    this.element.replaceChildren();
    this.element.removeAttribute("aria-activedescendant");
  }

  show(entries, paint) {
    this.begin();
    this.add(entries, paint);
    this.flush();
  }

  // Tokens that stream in are put on the screen together, once a frame.
  add(entries, paint = (entry) => surprise(entry.logProbability)) {
    for (const entry of entries) {
      const shown = entry.chip ? { text: "", chip: entry.chip } : this.decode(entry.name);
      const element = tokenElement(shown, entry, this.entries.length, this.prefix);
      tint(element, paint(entry, this.entries.length));
      this.entries.push(entry);
      if (!this.waiting.length) requestAnimationFrame(() => this.flush());
      this.waiting.push(element);
    }
  }

  flush() {
    this.element.append(...this.waiting);
    this.waiting = [];
  }

  // Makes a token the active one, as the keyboard or a click does.
  activate(index, how) {
    const token = this.element.children[index];
    if (!token) return;
    this.active?.classList.remove("active");
    this.active = token;
    token.classList.add("active");
    this.element.setAttribute("aria-activedescendant", token.id);
    if (how === "focus") token.scrollIntoView({ block: "nearest" });
    if (how) this.on.choose?.(Number(index), how);
  }

  point(event, how) {
    const token = event.target.closest(".token");
    if (!token) return;
    if (how === "hover") return this.on.choose?.(Number(token.dataset.index), how);
    if (document.getSelection().isCollapsed) this.activate(token.dataset.index, how); // else text was selected
  }

  select(index) {
    this.chosen?.setAttribute("aria-selected", "false");
    this.chosen = this.element.children[index] ?? null;
    this.chosen?.setAttribute("aria-selected", "true");
  }

  focus(index) {
    this.flush();
    this.activate(Math.min(index, this.element.children.length - 1));
    this.element.focus();
  }

  paint(share) {
    [...this.element.children].forEach((token, index) => tint(token, share(index)));
  }

  move(event) {
    if (!this.active || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(this.active.dataset.index);
    const target = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: this.element.children.length - 1 }[event.key];
    if (target === undefined) return this.on.key?.(event, index);
    event.preventDefault();
    this.activate(target, "focus");
  }
}
