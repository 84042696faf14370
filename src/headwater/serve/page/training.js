// The view of a run: its losses, its newest samples, and the update whose model is served. It is read again while it is shown.

import { call } from "./api.js";
import { byId, fillSelect, make, makeSvg } from "./dom.js";
import { t } from "./language.js";

const EVERY = 5000; // milliseconds
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 260, 52, 12, 12, 34];
const isShown = () => document.body.dataset.view === "training" && !document.hidden;
const short = (count) => count.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
let state = null;

export function setUpTraining(runs) {
  fillSelect(byId("training-model"), runs.map((model) => [model.id, model.id]));
  byId("training-model").addEventListener("change", read);
  byId("tab-training").addEventListener("click", read);
  document.addEventListener("visibilitychange", () => isShown() && read());
  document.addEventListener("language", () => state && draw());
  setInterval(() => isShown() && state && !state.complete && read(), EVERY);
}

export const readTraining = () => read();

async function read() {
  const model = byId("training-model").value;
  try {
    state = await call(`run?model=${encodeURIComponent(model)}`);
  } catch (error) {
    byId("training-said").textContent = error.message;
    return;
  }
  if (state.model === byId("training-model").value) draw();
}

function draw() {
  const { update, updates, complete, served_update: served, tokens_per_second: speed } = state;
  const said = [t(complete ? "training.complete" : "training.update", update, updates)];
  if (served !== null) said.push(t("training.served", served));
  if (speed && !complete) said.push(t("training.speed", Math.round(speed)));
  byId("training-said").textContent = said.join(" ");
  byId("training-bar").style.setProperty("--share", updates ? Math.min(1, update / updates).toFixed(4) : "0");
  byId("training-chart").replaceChildren(...(state.training.length ? [chart(state.training, state.held_out)] : []));
  byId("training-samples").replaceChildren(...state.samples.map((sample) => make("li", {}, make("p", { class: "hint" }, t("training.sample", sample.step)),
    make("p", { class: "text paper" }, make("span", { class: "own-words" }, sample.prompt), sample.text))));
  byId("training-none").hidden = state.samples.length > 0;
}

function chart(training, heldOut) {
  const points = [...training, ...heldOut];
  const [low, high] = [Math.min(...points.map(([, loss]) => loss)), Math.max(...points.map(([, loss]) => loss))];
  const last = Math.max(1, ...points.map(([tokens]) => tokens));
  const x = (tokens) => LEFT + ((WIDTH - LEFT - RIGHT) * tokens) / last;
  const y = (loss) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (loss - low)) / (high - low || 1);
  const line = (some) => some.map(([tokens, loss]) => `${x(tokens).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  const [first, end] = [training[0][1], training.at(-1)[1]];
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("training.chart", first.toFixed(3), end.toFixed(3)), class: "losses" });
  for (let tick = 0; tick <= 4; tick++) {
    const loss = low + ((high - low) * tick) / 4;
    svg.append(makeSvg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(loss), y2: y(loss) }), makeSvg("text", { x: LEFT - 8, y: y(loss) + 4, "text-anchor": "end" }, loss.toFixed(2)));
    svg.append(makeSvg("text", { x: x((last * tick) / 4), y: HEIGHT - 12, "text-anchor": tick === 4 ? "end" : "middle" }, short((last * tick) / 4)));
  }
  svg.append(makeSvg("polyline", { class: "training", points: line(training) }), makeSvg("polyline", { class: "held-out", points: line(heldOut) }));
  for (const [tokens, loss] of heldOut) {
    const point = makeSvg("circle", { class: "held-out", cx: x(tokens), cy: y(loss), r: 3 });
    point.append(makeSvg("title", {}, `${short(tokens)}: ${loss.toFixed(3)}`));
    svg.append(point);
  }
  return svg;
}
