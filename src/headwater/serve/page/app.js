// The page: its views, the form that writes, and what the address may ask for.

import { call } from "./api.js";
import { hideCard } from "./card.js";
import { setUpClassify } from "./classify.js";
import { attempt, byId, fillSelect } from "./dom.js";
import { setUpInside, show } from "./inside.js";
import { Pane } from "./pane.js";

let models = [];
let panes = [];
const number = (id, otherwise) => (byId(id).value === "" ? otherwise : Number(byId(id).value));

function openView(name) {
  hideCard(true);
  for (const tab of byId("tabs").children) {
    const mine = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", mine);
    tab.tabIndex = mine ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !mine;
  }
}

function look(model, ids, position) {
  openView("inside");
  byId("tab-inside").focus();
  attempt(() => show(model, ids, position));
}

function state() {
  byId("stop").disabled = !panes.some((pane) => pane.running);
}

async function write() {
  for (const pane of panes) pane.stop();
  const names = [byId("model-a").value, byId("model-b").value].filter(Boolean);
  const find = (name) => models.find((model) => model.id === name);
  panes = names.map((name) => new Pane(find(name), look, state));
  byId("panes").replaceChildren(...panes.map((pane) => pane.element));
  const options = {
    max_tokens: number("max-tokens", 80),
    temperature: number("temperature", 1),
    top_k: number("top-k", 0),
    top_p: number("top-p", 1),
    seed: number("seed", 0),
  };
  const prompt = byId("prompt").value;
  const outcomes = await Promise.allSettled(panes.map((pane) => pane.write(prompt, options)));
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed) throw failed.reason;
}

const stopAll = () => panes.forEach((pane) => pane.stop());

function setUpKeys() {
  const tabs = byId("tabs");
  tabs.addEventListener("click", (event) => event.target.id && openView(event.target.id.slice(4)));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = [...tabs.children].filter((tab) => !tab.hidden);
    const next = shown[(shown.indexOf(document.activeElement) + step + shown.length) % shown.length];
    next.focus();
    next.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hideCard(true);
      stopAll();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.target.closest("form")?.requestSubmit();
    }
  });
  byId("write-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(write);
  });
  byId("stop").addEventListener("click", stopAll);
}

// #prompt=…&seed=…&a=…&b=… fills the form: a text with its settings can be passed on.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const fields = { prompt: "prompt", seed: "seed", tokens: "max-tokens", temperature: "temperature", a: "model-a", b: "model-b" };
  for (const [name, id] of Object.entries(fields)) if (given.has(name)) byId(id).value = given.get(name);
}

setUpKeys();
attempt(async () => {
  models = (await call("v1/models")).data;
  const names = models.map((model) => model.id);
  fillSelect(byId("model-a"), names);
  fillSelect(byId("model-b"), names, "nothing");
  setUpInside(models);
  const fineTuned = models.filter((model) => model.task);
  byId("tab-classify").hidden = fineTuned.length === 0;
  if (fineTuned.length) setUpClassify(fineTuned);
  readAddress();
  document.body.dataset.ready = "true";
});
