// The logit lens: the next token as each layer predicts it, and the rank of one token over the layers.

import { byId, make, makeSvg, percent } from "./dom.js";
import { t } from "./language.js";
import { readable } from "./tokens.js";

const COLUMNS = 5;
const name = (place) => (place === 0 ? t("lens.embeddings") : t("layer", place));

// follow(token) draws the curve of another token.
export function showLens({ found, entries, index }, follow) {
  const came = entries[index]?.id ?? null;
  const focused = document.activeElement?.dataset?.cell;
  byId("lens").replaceChildren(
    make("thead", {}, make("tr", {}, make("td"), ...Array.from({ length: COLUMNS }, (_, place) => make("th", { scope: "col" }, t("lens.rank", place + 1))))),
    make("tbody", {}, ...found.layers.map((candidates, place) => make("tr", {}, make("th", { scope: "row" }, name(place)),
      ...candidates.slice(0, COLUMNS).map((one, column) => cell(one, `${place} ${column}`, came, found.target.token, follow))))),
  );
  if (focused) byId("lens").querySelector(`[data-cell="${focused}"]`)?.focus();
  byId("lens-token").textContent = t("lens.follows", readable(found.target.text), found.target.ranks.at(-1), percent(found.target.probabilities.at(-1)));
  byId("lens-curve").replaceChildren(curve(found.target));
}

function cell(one, place, came, followed, follow) {
  const itself = one.token === came;
  const label = `${readable(one.text)}, ${percent(one.probability)}${itself ? `, ${t("lens.came")}` : ""}`;
  return make("td", { "--share": one.probability.toFixed(4) },
    make("button", { type: "button", class: itself ? "came" : null, "data-cell": place, "aria-label": label, "aria-pressed": String(one.token === followed), onclick: () => follow(one.token) },
      make("code", {}, readable(one.text)), make("span", { class: "number" }, percent(one.probability))));
}

// Ranks on a logarithmic axis, the first at the top.
function curve({ ranks, probabilities, text }) {
  const step = Math.max(46, Math.min(90, 560 / ranks.length));
  const [left, top, height] = [88, 26, 120];
  const width = left + step * (ranks.length - 1) + 50;
  const deepest = Math.max(10, ...ranks);
  const x = (place) => left + place * step;
  const y = (rank) => top + (height * Math.log(rank)) / Math.log(deepest);
  const label = t("lens.curve", readable(text), ranks.map((rank, place) => `${name(place)}: ${rank}`).join(", "));
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${top + height + 34}`, width, height: top + height + 34, role: "img", "aria-label": label, class: "curve" });
  for (let rank = 1; rank <= deepest; rank *= 10) {
    svg.append(makeSvg("line", { class: "grid", x1: left - 8, x2: width - 10, y1: y(rank), y2: y(rank) }), makeSvg("text", { x: left - 32, y: y(rank), "text-anchor": "end" }, rank.toLocaleString("en")));
  }
  svg.append(makeSvg("polyline", { points: ranks.map((rank, place) => `${x(place)},${y(rank)}`).join(" ") }));
  ranks.forEach((rank, place) => {
    const point = makeSvg("circle", { cx: x(place), cy: y(rank), r: 4 });
    point.append(makeSvg("title", {}, `${name(place)}: ${rank}, ${percent(probabilities[place])}`));
    svg.append(point, makeSvg("text", { x: x(place), y: y(rank) - 11, "text-anchor": "middle", class: "value" }, rank.toLocaleString("en")));
    svg.append(makeSvg("text", { x: x(place), y: top + height + 22, "text-anchor": "middle" }, place === 0 ? t("lens.short") : String(place)));
  });
  return svg;
}
