// The whole path of the step as a picture, from the tokens read to the next one. Each part leads to its panel.

import { byId, makeSvg, percent } from "./dom.js";
import { t } from "./language.js";
import { readable } from "./tokens.js";

const [WIDTH, STREAM, LEFT, ROW, GAP] = [304, 12, 26, 30, 6]; // the residual stream is the line at STREAM
const COLUMNS = { attention: [44, 76], mlp: [126, 50], lens: [182, 120] }; // left edge and width, in a block's row

const wide = (c) => (c.codePointAt(0) > 0x10ff ? 2 : 1);

// The beginning of a name that fits into so many narrow letters.
function cut(name, room) {
  let used = 0;
  const kept = [...name].filter((c) => (used += wide(c)) <= room).join("");
  return kept === name ? name : kept.slice(0, -1) + "…";
}

// go(step, layer): layer is null for a part that belongs to none.
export function showOverview({ found, entries, index, head }, go) {
  const nodes = [];
  let y = 2;
  const node = (step, layer, x, width, text, label, options = {}) => {
    const key = `${step} ${layer ?? ""}`;
    const element = makeSvg("a", { href: `#${step}`, class: options.class ?? "node", tabindex: "-1", "aria-label": label, "data-part": key, "aria-current": layer !== null && layer === head.layer && step !== "step-lens" ? "true" : null, "--share": options.share },
      makeSvg("title", {}, label),
      makeSvg("rect", { x, y, width, height: ROW, rx: 5 }),
      makeSvg("text", { x: x + width / 2, y: y + ROW / 2 }, text));
    element.addEventListener("click", (event) => {
      event.preventDefault(); // the address is a link to this view
      go(step, layer);
    });
    nodes.push({ element, layer });
    return element;
  };
  const whole = (step, text, label = text, options = {}) => {
    const element = node(step, null, LEFT, WIDTH - LEFT - 2, text, label, options);
    y += ROW + GAP;
    return element;
  };
  const likeliest = (candidates) => candidates[0];
  const read = cut(entries.slice(Math.max(0, index - 4), index).map((entry) => readable(entry.name)).join(" "), 22);
  whole("step-pieces", `${t("overview.tokens", index)}: ${read}`);
  whole("step-embeddings", t("overview.embeddings", found.embeddings.token.length));
  const top = y - GAP;
  const names = [];
  found.writes.forEach((_, layer) => {
    const best = likeliest(found.layers[layer + 1]);
    names.push(makeSvg("text", { class: "number", x: LEFT + 8, y: y + ROW / 2 }, String(layer + 1)));
    node("step-heads", layer, ...COLUMNS.attention, t("overview.attention"), t("overview.attention.of", layer + 1));
    node("step-mlp", layer, ...COLUMNS.mlp, t("overview.mlp"), t("overview.mlp.of", layer + 1));
    node("step-lens", layer, ...COLUMNS.lens, cut(readable(best.text), 13), t("overview.lens.of", layer + 1, readable(best.text), percent(best.probability)), { class: "node lens", share: best.probability.toFixed(3) });
    y += ROW + GAP;
  });
  const bottom = y - GAP;
  whole("step-lens", t("overview.logits", atob(found.logits).length / 4));
  const came = entries[index] ?? null;
  const best = likeliest(found.layers.at(-1));
  whole("step-choice", `${t("overview.next")}: ${cut(readable(came?.name ?? best.text), 16)}`);
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${y}`, class: "overview" },
    makeSvg("path", { class: "stream", d: `M ${LEFT} ${top - ROW / 2} H ${STREAM} V ${bottom + GAP + ROW / 2} H ${LEFT}` }),
    ...found.writes.map((_, layer) => makeSvg("circle", { class: "stream", cx: STREAM, cy: top + GAP + layer * (ROW + GAP) + ROW / 2, r: 4 })),
    ...names, ...nodes.map((one) => one.element));
  const nav = byId("overview");
  const focused = nav.contains(document.activeElement) ? document.activeElement.dataset.part : null;
  nav.replaceChildren(svg);
  const all = nodes.map((one) => one.element);
  const first = all.find((one) => one.dataset.part === focused) ?? all.find((one) => one.hasAttribute("aria-current")) ?? all[0];
  first.setAttribute("tabindex", "0");
  if (focused) first.focus();
  nav.onkeydown = (event) => moveAmong(event, nodes);
}

// One tab stop for the whole picture. Left and right move in a row, up and down to the row above and below.
function moveAmong(event, nodes) {
  const all = nodes.map((one) => one.element);
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const row = (place) => all[place].querySelector("rect").getAttribute("y");
  const across = (step) => {
    let place = at + step;
    while (all[place] && row(place) === row(at)) place += step;
    if (!all[place]) return at;
    const left = (one) => Number(all[one].querySelector("rect").getAttribute("x"));
    const same = all.map((_, one) => one).filter((one) => row(one) === row(place));
    return same.reduce((best, one) => (Math.abs(left(one) - left(at)) < Math.abs(left(best) - left(at)) ? one : best));
  };
  const target = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, ArrowUp: () => across(-1), ArrowDown: () => across(1), Home: () => 0, End: () => all.length - 1 }[event.key];
  const next = target && all[target()];
  if (!next) return;
  event.preventDefault();
  for (const one of all) one.setAttribute("tabindex", one === next ? "0" : "-1");
  next.focus();
}
