// Writing: the form, the text as it streams in, and the branches.

import { continueText, countTokens, read } from "./api.js";
import { showBranches } from "./branches.js";
import { cardKey, forgetChosen, hideCard, hideUnpinned, showCard } from "./card.js";
import { announce, attempt, byId, later, make, onSubmit } from "./dom.js";
import { remember } from "./history.js";
import { t } from "./language.js";
import { Settings } from "./settings.js";
import { setUpShare } from "./share.js";
import { Passage, readable, textOf } from "./tokens.js";
import { Tree } from "./tree.js";

// By the language of the model's text.
const EXAMPLES = {
  en: ["The river", "Once upon a time", "The city was founded in"],
  ko: ["이 영화는", "옛날 옛적에", "우리 동네에는"],
};
let models = [];
let tree = new Tree();
let running = null; // an AbortController
let counted = 0; // calls of showContext
let passage = null;
let settings = null;

const model = () => models.find((one) => one.id === byId("write-model").value);

export function setUpWrite(all) {
  models = all;
  settings = new Settings(byId("write-settings"), "write");
  passage = new Passage(t("write.text"), { choose: openCard, key: cardKey });
  byId("write-text").append(passage.element);
  byId("write-text").addEventListener("pointerleave", hideUnpinned);
  showExamples();
  onSubmit(byId("write-form"), write);
  byId("stop").addEventListener("click", () => {
    stop();
    byId("go").focus(); // a disabled button would lose the focus
  });
  byId("more").addEventListener("click", () => attempt(more));
  const count = later(() => showContext(), 300);
  byId("prompt").addEventListener("input", count);
  byId("write-model").addEventListener("change", () => {
    showExamples();
    count();
  });
  setUpShare(state, () => textOf(tree.entries()));
  document.addEventListener("language", () => {
    passage.element.setAttribute("aria-label", t("write.text"));
    hideCard();
    render();
  });
}

export const state = () => ({ prompt: byId("prompt").value, model: model()?.id, settings: settings.values });

export function restore({ prompt, model: name, settings: values }) {
  if (prompt !== undefined) byId("prompt").value = prompt;
  if (name) byId("write-model").value = name;
  showExamples();
  if (values) settings.values = values;
}

function writeExample(text) {
  byId("prompt").value = text;
  return attempt(write);
}

const examples = () => EXAMPLES[model()?.language] ?? EXAMPLES.en;

function showExamples() {
  byId("examples").replaceChildren(...examples().map((text) =>
    make("button", { type: "button", class: "example", lang: model()?.language ?? "en", onclick: () => writeExample(text) }, text)));
}

export const writeFirst = () => writeExample(examples()[0]);

// The text and the token that are chosen here, for the view inside; null if there is no text.
export function chosenToken() {
  if (!tree.model || !tree.entries().length) return null;
  const place = [...passage.element.children].findIndex((token) => token.getAttribute("aria-selected") === "true");
  const first = tree.entries().findIndex((entry) => entry.origin === "model");
  return [tree.model.id, tree.entries(), Math.max(0, place >= 0 ? place : first), tree.settings];
}

export async function write() {
  const asked = state(); // the form may be changed while text streams
  const chosenModel = model();
  await run(async (signal) => {
    const entries = await read(asked.model, asked.prompt, signal);
    tree = new Tree();
    tree.model = chosenModel;
    tree.settings = asked.settings;
    tree.add(null, 0, entries, t("branch.first"), tree.settings.seed);
    hideCard();
    forgetChosen();
    render();
    await generate(signal);
    remember({ ...asked, text: textOf(tree.entries()) });
  });
}

async function more() {
  if (!tree.current) return;
  tree.settings = settings.values;
  tree.current.seed = tree.settings.seed + tree.entries().length;
  await run(generate);
}

async function branchAt(index, own, name, seed) {
  tree.add(tree.current, index, own, name, seed);
  render();
  passage.focus(index);
  await run(generate);
}

async function run(action) {
  stop();
  const mine = (running = new AbortController());
  showRunning();
  try {
    await action(mine.signal);
  } finally {
    passage.flush();
    if (running === mine) running = null;
    showRunning();
    showContext();
  }
}

// Continues the current branch.
async function generate(signal) {
  const branch = tree.current;
  const began = performance.now();
  const on = (entries, written) => {
    branch.own.push(...entries);
    if (branch === tree.current) passage.add(entries);
    const speed = (1000 * written) / (performance.now() - began);
    note(branch, t("write.speed", written, speed.toFixed(0)));
  };
  try {
    note(branch, await continueText(tree.model, tree.entries(), tree.settings, branch.seed, signal, on));
  } catch (error) {
    if (error.name === "AbortError") note(branch, t("write.stopped"));
    throw error;
  } finally {
    render();
  }
  announce(branch.note);
}

export function stop() {
  running?.abort();
}

export const isRunning = () => Boolean(running);

function note(branch, text) {
  branch.note = text;
  if (branch === tree.current) byId("write-status").textContent = text;
}

function showRunning() {
  byId("stop").disabled = !running;
  byId("more").disabled = Boolean(running) || !tree.current;
  document.body.dataset.running = Boolean(running);
}

// How much of the context is used: by the text where there is one for this prompt, else by the prompt.
async function showContext() {
  const mine = ++counted;
  const { prompt, model: name } = state();
  const entries = tree.entries();
  const same = tree.model?.id === name && textOf(entries).startsWith(prompt);
  const used = same && entries.length ? entries.length : await countTokens(name, prompt).catch(() => null);
  if (used === null || mine !== counted || state().prompt !== prompt || state().model !== name) return; // another was chosen meanwhile
  byId("context-used").textContent = used === Infinity ? t("write.context.over", model().context) : t("write.context", used, model().context);
  byId("context-bar").style.setProperty("--share", Math.min(1, used / model().context).toFixed(4));
  byId("context-bar").classList.toggle("over", used > model().context);
}

// Shows the current branch from its beginning, and the list of all.
function render() {
  const entries = tree.entries();
  if (passage.entries.length !== entries.length || passage.branch !== tree.current) passage.show(entries);
  passage.branch = tree.current;
  byId("write-status").textContent = tree.current?.note ?? "";
  byId("write-shown").hidden = !tree.current;
  showBranches(tree, {
    show: (branch) => {
      stop();
      tree.show(branch);
      hideCard();
      render();
      showContext();
    },
    compare: (branch) => {
      tree.compared = branch === tree.compared ? null : branch;
      render();
    },
    story: (entries, index) => [tree.model.id, entries, index, tree.settings],
  });
}

function openCard(index, how) {
  const entry = passage.entries[index];
  const again = () => attempt(() => branchAt(index + 1, [], t("branch.again", readable(entry.name)), tree.settings.seed + tree.branches.length));
  const branch = (other) => attempt(() => branchAt(index, [chosen(entry, other)], t("branch.chosen", readable(other.name)), tree.settings.seed));
  const story = () => [tree.model.id, tree.entries(), index, tree.settings];
  showCard(passage, index, { branch, again, story }, how !== "hover");
}

const chosen = (entry, other) => ({ ...other, alternatives: entry.alternatives, origin: "you" });
