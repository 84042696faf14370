// The two vectors that are added up at the bottom of the model, as strips of colour.

import { byId, colour, make } from "./dom.js";
import { t } from "./language.js";
import { readable } from "./tokens.js";

export function showEmbeddings(found, entry) {
  const { token, position } = found.embeddings;
  const sum = token.map((value, place) => value + position[place]);
  const largest = Math.max(...[token, position, sum].map((row) => Math.max(...row.map(Math.abs)))) || 1;
  const rows = [
    [t("embeddings.token", readable(entry.name)), token],
    [t("embeddings.position", found.position + 1), position],
    [t("embeddings.sum"), sum],
  ];
  byId("embeddings").replaceChildren(...rows.map(([name, values]) =>
    make("div", { class: "strip" }, make("span", { class: "hint" }, name), strip(values, largest, name))));
  byId("embeddings-size").textContent = t("embeddings.size", token.length, largest.toFixed(2));
}

export function strip(values, largest, name) {
  const canvas = make("canvas", { width: values.length, height: 1, role: "img", "aria-label": name });
  const context = canvas.getContext("2d");
  const [above, below] = [colour("--water"), colour("--clay")];
  values.forEach((value, place) => {
    context.globalAlpha = Math.abs(value) / largest;
    context.fillStyle = value >= 0 ? above : below;
    context.fillRect(place, 0, 1, 1);
  });
  return canvas;
}
