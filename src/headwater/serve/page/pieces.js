// What the model reads: the numbers of tokens. A token is a few bytes of the text.

import { byId, make } from "./dom.js";
import { t } from "./language.js";
import { bytesOf, hex, readable } from "./tokens.js";

const SHOWN = 6;

export function showPieces(entries, index) {
  const start = Math.max(0, index - SHOWN);
  const cells = entries.slice(start, index + 1);
  const row = (name, value) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((entry, place) =>
    make("td", { class: start + place === index ? "came" : null }, make("code", {}, value(entry, start + place)))));
  byId("pieces").replaceChildren(
    row(t("pieces.place"), (_, place) => String(place + 1)),
    row(t("pieces.text"), (entry) => readable(entry.name)),
    row(t("pieces.id"), (entry) => String(entry.id)),
    row(t("pieces.bytes"), (entry) => hex(bytesOf(entry.name))),
  );
  byId("pieces").parentElement.scrollLeft = 0;
  byId("pieces-left").textContent = start ? t("pieces.left", start) : "";
}
