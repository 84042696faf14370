// The page: its views, its keys, the models of the server, and what the address asks for.

import { call } from "./api.js";
import { cardIsOpen, hideCard, setUpCard, takeChosen } from "./card.js";
import { setUpClassify } from "./classify.js";
import { compareState, restoreCompare, setUpCompare, writeBoth } from "./compare.js";
import { attempt, byId, fillSelect, say } from "./dom.js";
import { setUpFill } from "./fill.js";
import { setUpHistory } from "./history.js";
import { insideState, isOpen, openStory, openText, setUpInside } from "./inside.js";
import { setUpLanguage, t } from "./language.js";
import { copy, link, readLink } from "./share.js";
import { chosenToken, isRunning, restore, setUpWrite, state, stop, write, writeFirst } from "./write.js";

const tabs = byId("tabs");

function openView(name) {
  hideCard();
  document.body.dataset.view = name;
  for (const tab of tabs.children) {
    const mine = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", mine);
    tab.tabIndex = mine ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !mine;
  }
}

function setUpKeys() {
  tabs.addEventListener("click", (event) => {
    if (!event.target.id.startsWith("tab-")) return;
    const name = event.target.id.slice(4);
    openView(name);
    if (name !== "inside" || isRunning()) return;
    // The view inside begins with the text and the token that were chosen elsewhere.
    const [chosen, written] = [takeChosen(), chosenToken()];
    if (chosen) attempt(() => openStory(...chosen));
    else if (written && !isOpen(...written)) attempt(() => openStory(...written));
  });
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
      if (isRunning()) stop();
      else if (cardIsOpen()) hideCard(true);
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.target.closest("form")?.requestSubmit();
    }
  });
}

// Opens the story of a token in its own view.
function look(model, entries, index, how) {
  openView("inside");
  const opened = attempt(() => openStory(model, entries, index, how));
  byId("story-title").focus();
  return opened;
}

// Fine-tuned models can write too, and are listed separately; masked models do not write.
function fillModels(models) {
  const pair = (model) => [model.id, model.id];
  const plain = models.filter((model) => !model.task && !model.masked);
  const tuned = models.filter((model) => model.task && !model.masked);
  const names = [...plain.map(pair), ...(tuned.length ? [{ group: t("models.tuned"), names: tuned.map(pair) }] : [])];
  for (const id of ["write-model", "compare-model-a", "compare-model-b"]) fillSelect(byId(id), names);
  return [...plain, ...tuned];
}

// #view=…&prompt=…&a=MODEL&b=MODEL&temperature=… opens a view, fills its form and carries it out.
async function openLink(given, writers) {
  const view = given.view ?? (given.b ? "compare" : "write");
  const sides = ["write", "compare", "inside"].includes(view) ? ["a", "b"] : [];
  const unknown = sides.filter((side) => given[side] && !writers.some((model) => model.id === given[side]));
  if (!byId(`tab-${view}`) || byId(`tab-${view}`).hidden) throw new Error(t("link.view", view));
  openView(view);
  const known = Object.fromEntries(Object.entries(given).filter(([key]) => !unknown.includes(key)));
  const about = { prompt: known.prompt, model: known.a, settings: known };
  let done = null;
  if (view === "write") {
    restore(about);
    if (!unknown.length && known.prompt !== undefined) done = write();
  } else if (view === "compare") {
    restoreCompare(known);
    if (!unknown.length && known.prompt !== undefined) done = writeBoth();
  } else if (view === "inside" && known.prompt && !unknown.length) {
    done = openText(known.a ?? writers[0].id, known.prompt, known.token === undefined ? null : Number(known.token));
  }
  if (unknown.length) say(t("link.model", unknown.map((side) => given[side]).join(", "), writers.map((model) => model.id).join(", ")));
  await done;
}

async function start() {
  const models = (await call("v1/models")).data;
  const writers = fillModels(models);
  setUpCard(look);
  setUpWrite(models);
  setUpCompare(models);
  setUpInside(writers);
  if (writers.length > 1) byId("compare-model-b").selectedIndex = 1;
  for (const name of ["write", "compare", "inside"]) byId(`tab-${name}`).hidden = !writers.length;
  const tuned = models.filter((model) => model.task);
  byId("tab-classify").hidden = !tuned.length;
  if (tuned.length) setUpClassify(tuned);
  const masked = models.filter((model) => model.masked && !model.task);
  byId("tab-fill").hidden = !masked.length;
  if (masked.length) setUpFill(masked);
  setUpHistory(({ prompt, model, settings }) => {
    attempt(() => openLink({ view: "write", prompt, a: model, ...settings }, writers));
    byId("prompt").focus();
  });
  document.addEventListener("language", () => fillModels(models));
  document.body.dataset.ready = "true";
  const given = readLink();
  if (Object.keys(given).length) return openLink(given, writers);
  if (!models.some((model) => !model.task && !model.masked)) return openView(tuned.length ? "classify" : "fill");
  await writeFirst();
}

const writeState = ({ prompt, model, settings } = state()) => ({ prompt, a: model, ...settings });
const LINKS = { write: writeState, compare: compareState, inside: insideState };

setUpLanguage();
setUpKeys();
openView("write");
addEventListener("hashchange", () => location.reload());
byId("copy-link").addEventListener("click", () => {
  const view = document.body.dataset.view;
  copy(link({ view, ...LINKS[view]?.() }));
});
attempt(start);
