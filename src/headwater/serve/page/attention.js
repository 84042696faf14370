// All heads of all layers as thumbnails, one of them large, and heads switched off.

import { announce, bar, byId, colour, make, percent } from "./dom.js";
import { t } from "./language.js";
import { drawMatrix } from "./head.js";
import { readable } from "./tokens.js";

const ATTENDED = 6;

// The bytes of all heads' weights among the recent tokens.
function unpack(recent) {
  const bytes = Uint8Array.from(atob(recent.data), (c) => c.charCodeAt(0));
  return { ...recent, bytes };
}

export function showAttention(story, on) {
  const { found, off } = story;
  const layers = found.attention.length;
  const heads = found.attention[0].length;
  const recent = unpack(found.recent);
  const isOff = (layer, head) => off.some(([l, h]) => l === layer && h === head);
  const grid = byId("heads");
  grid.style.setProperty("--heads", heads);
  const focused = grid.contains(document.activeElement);
  const rgb = pixels(colour("--water"));
  grid.replaceChildren(...Array.from({ length: layers }, (_, layer) => make("div", { class: "layer", role: "group", "aria-label": t("layer", layer + 1) },
    make("span", { class: "hint" }, t("layer", layer + 1)),
    ...Array.from({ length: heads }, (_, head) => thumbnail(story, recent, layer, head, isOff(layer, head), rgb, choose)))));
  if (focused) current()?.focus();
  grid.onkeydown = (event) => moveInGrid(event, layers, heads);
  showWrites(found);
  showOff(story, on);
  showHead();

  function current() {
    return grid.querySelector(`[data-head="${story.head.layer} ${story.head.head}"]`);
  }

  function choose(layer, head) {
    const before = current();
    before.setAttribute("aria-pressed", "false");
    before.tabIndex = -1;
    on.head({ layer, head });
    current().setAttribute("aria-pressed", "true");
    current().tabIndex = 0;
    showHead();
  }

  function showHead() {
    const { layer, head } = story.head;
    const names = found.tokens.slice(recent.start, recent.start + recent.size).map(readable);
    const begin = (layer * heads + head) * recent.size ** 2;
    const at = (row, column) => recent.bytes[begin + row * recent.size + column] / 255;
    const silent = isOff(layer, head);
    byId("head-name").textContent = t("head.name", layer + 1, head + 1) + (silent ? ` · ${t("head.off")}` : "");
    byId("head-switch").textContent = silent ? t("head.switch.on") : t("head.switch.off");
    byId("head-switch").setAttribute("aria-pressed", String(silent));
    byId("head-switch").onclick = () => on.off(silent ? off.filter(([l, h]) => l !== layer || h !== head) : [...off, [layer, head]]);
    const weights = found.attention[layer][head];
    const earlier = weights.slice(0, recent.start).reduce((sum, weight) => sum + weight, 0);
    byId("head-window").textContent = recent.start ? t("head.window", recent.size, percent(earlier)) : "";
    const label = t("head.drawn", layer + 1, head + 1);
    byId("head-drawn").replaceChildren(drawMatrix(names, at, label, (text) => (byId("head-cell").textContent = text)));
    byId("head-cell").textContent = "";
    const top = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, ATTENDED);
    byId("head-attended").replaceChildren(...top.map((place) =>
      make("li", {}, make("code", {}, readable(found.tokens[place])), make("span", { class: "hint" }, t("head.place", place + 1)), bar(weights[place]))));
  }
}

// The head that tells most, of one layer or of all: it looks at an earlier token for what that token is. Heads that
// look at their own token, the one before or the first look there whatever the text says, and tell little.
export function informative({ attention, recent }, layer = null) {
  const { start, size, bytes } = unpack(recent);
  const heads = attention[0].length;
  const least = size > 4 ? 2 : 1; // tokens that are left out at the end of a row; of a short text fewer
  const most = (place, row) => {
    let best = 0;
    for (let column = start || size < 4 ? 0 : 1; column <= row - least; column++) best = Math.max(best, bytes[(place * size + row) * size + column]);
    return best;
  };
  let found = { layer: layer ?? 0, head: 0, score: -1 };
  attention.forEach((row, at) => row.forEach((_, head) => {
    if (layer !== null && at !== layer) return;
    const rows = Array.from({ length: size }, (_, place) => most(at * heads + head, place));
    const score = rows.at(-1) + rows.reduce((sum, value) => sum + value, 0) / size;
    if (score > found.score) found = { layer: at, head, score };
  }));
  return { layer: found.layer, head: found.head };
}

function thumbnail(story, recent, layer, head, off, rgb, choose) {
  const { size } = recent;
  const canvas = make("canvas", { width: size, height: size, "aria-hidden": "true" });
  const image = new ImageData(size, size);
  const begin = (layer * story.found.attention[0].length + head) * size ** 2;
  for (let place = 0; place < size ** 2; place++) {
    image.data.set(rgb, place * 4);
    image.data[place * 4 + 3] = recent.bytes[begin + place];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const weights = story.found.attention[layer][head];
  const most = weights.indexOf(Math.max(...weights));
  const mine = story.head.layer === layer && story.head.head === head;
  const label = t("head.label", layer + 1, head + 1, readable(story.found.tokens[most]), percent(weights[most])) + (off ? `, ${t("head.off")}` : "");
  return make("button", {
    type: "button", class: off ? "head off" : "head", title: label, "aria-label": label, "aria-pressed": String(mine), tabindex: mine ? "0" : "-1",
    "data-head": `${layer} ${head}`, onclick: () => choose(layer, head),
  }, canvas);
}

// One tab stop for the whole grid; the arrow keys move and choose.
function moveInGrid(event, layers, heads) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const button = event.target.closest(".head");
  if (!step || !button) return;
  event.preventDefault();
  const [layer, head] = button.dataset.head.split(" ").map(Number);
  const next = `${(layer + step[0] + layers) % layers} ${(head + step[1] + heads) % heads}`;
  const target = byId("heads").querySelector(`[data-head="${next}"]`);
  target.focus();
  target.click();
}

function pixels(name) {
  const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = name;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

// How much attention and MLP of each layer add, against the length of the state they add to.
function showWrites(found) {
  const largest = Math.max(...found.writes.flat(), ...found.norms);
  const cells = (values) => values.map((value) => make("td", {}, bar(value / largest, value.toFixed(1))));
  byId("writes").replaceChildren(
    make("tr", {}, make("td"), ...["writes.attention", "writes.mlp", "writes.state"].map((key) => make("th", { scope: "col" }, t(key)))),
    ...found.writes.map((pair, layer) => make("tr", {}, make("th", { scope: "row" }, t("layer", layer + 1)), ...cells([...pair, found.norms[layer + 1]]))),
  );
}

// What the prediction and the likeliest text become without the heads that are off.
function showOff({ found, whole, off }, on) {
  byId("off").hidden = !off.length;
  if (!off.length || !whole) return;
  byId("all-on").onclick = () => {
    on.off([]);
    byId("head-switch").focus();
  };
  byId("off-names").textContent = off.map(([layer, head]) => t("head.name", layer + 1, head + 1)).join(", ");
  const column = (answer) => make("ol", {}, ...answer.layers.at(-1).slice(0, 5).map((one) => make("li", {}, make("code", {}, readable(one.text)), bar(one.probability))));
  byId("off-effect").replaceChildren(...[["off.with", whole], ["off.without", found]].map(([key, answer]) =>
    make("div", {}, make("h4", {}, t(key)), column(answer), make("p", { class: "own" }, `… ${answer.continuation.text}`))));
  announce(t("off.heard", readable(whole.layers.at(-1)[0].text), readable(found.layers.at(-1)[0].text)));
}
