// One token's story on one page: the tokens before it, embeddings, attention, every layer's prediction, the choice.
// All panels are about the same step: the model has read the tokens before the chosen one, and predicts it.

import { call, read } from "./api.js";
import { informative, showAttention } from "./attention.js";
import { hideCard } from "./card.js";
import { setUpChoice, showChoice } from "./choice.js";
import { announce, attempt, byId, fillSelect, onSubmit } from "./dom.js";
import { showEmbeddings } from "./embeddings.js";
import { showLens } from "./lens.js";
import { t } from "./language.js";
import { showPieces } from "./pieces.js";
import { showHeadSteps, showMlp } from "./steps.js";
import { Passage, readable, textOf } from "./tokens.js";

const WINDOW = 32;
const CANDIDATES = 30;
const CONTINUED = 16;
const NEXT = { name: "", chip: "?", origin: "next", id: null, logProbability: null, alternatives: [] };
let passage = null;
let contexts = new Map(); // by model
let story = null; // {model, entries, index, settings, off, head, follow, found, whole}

export function setUpInside(models) {
  contexts = new Map(models.map((one) => [one.id, one.context]));
  fillSelect(byId("inside-model"), models.map((one) => [one.id, one.id]));
  onSubmit(byId("inside-form"), () => openText(byId("inside-model").value, byId("inside-text").value));
  passage = new Passage(t("inside.tokens"), { choose: (index, how) => how !== "hover" && attempt(() => move(index)) });
  byId("inside-tokens").append(passage.element);
  for (const [id, step] of [["before", -1], ["after", 1]]) {
    byId(`story-${id}`).addEventListener("click", () => attempt(() => move(Math.max(0, Math.min(story.last, story.index + step)))));
  }
  byId("overview").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault(); // the address is a link to this view
    const title = byId(link.hash.slice(1));
    title.focus({ preventScroll: true });
    title.scrollIntoView({ block: "start" });
  });
  setUpChoice();
  document.addEventListener("language", () => {
    passage.element.setAttribute("aria-label", t("inside.tokens"));
    if (story?.found) paint();
  });
}

// Whether the text that was opened last is this one, whichever of its tokens is shown now.
export const isOpen = (model, entries) => story?.model === model && textOf(story.entries) === textOf(entries);

export const insideState = () => ({ prompt: byId("inside-text").value, a: byId("inside-model").value, token: story?.index });

// A text: the story of what comes after it, or of the token `index`.
export async function openText(model, text, index = null) {
  const entries = await read(model, text);
  await openStory(model, entries, index ?? entries.length, null);
}

// The story of the token `index`; after the last token, that of the next one.
export async function openStory(model, entries, index, settings) {
  hideCard();
  byId("inside-model").value = model;
  byId("inside-text").value = textOf(entries);
  // The model reads as many tokens as its context holds, so the step after a longer text cannot be shown.
  const last = Math.min(entries.length, contexts.get(model));
  story = { model, entries, last, index: Math.min(index, last), settings, off: [], head: story?.model === model ? story.head : null, follow: null };
  passage.show(story.last === entries.length ? [...entries, NEXT] : entries, () => 0);
  await look();
}

async function move(index) {
  if (!story || index === story.index) return;
  story = { ...story, index, follow: null, found: null, whole: null };
  await look();
  announce(byId("story-title").textContent);
}

// Asks for everything about the step. With heads switched off, also for what it is with all of them.
async function look() {
  const mine = story;
  byId("inside-shown").hidden = false;
  byId("inside-shown").setAttribute("aria-busy", "true");
  title();
  if (story.index > 0) {
    const { model, entries, index, off } = mine;
    const drawn = entries[index]?.draw;
    const asked = {
      model, prompt: entries.slice(0, index).map((entry) => entry.id), window: WINDOW, details: true, top: CANDIDATES,
      target: mine.follow ?? entries[index]?.id ?? null, head: mine.head && [mine.head.layer, mine.head.head], continuation: off.length ? CONTINUED : 0, ...(drawn ? { seed: drawn.seed, step: drawn.step } : {}),
    };
    try {
      const [found, whole] = await Promise.all([call("inspect", { ...asked, heads_off: off }), off.length ? call("inspect", asked) : null]);
      if (mine !== story) return; // another token was chosen meanwhile
      Object.assign(story, { found, whole });
      await readHead();
      if (mine !== story) return;
    } catch (error) {
      if (mine !== story) return;
      byId("story-panels").hidden = true; // they are about another step
      byId("inside-shown").setAttribute("aria-busy", "false");
      throw error;
    }
  }
  byId("inside-shown").setAttribute("aria-busy", "false");
  paint();
}

// The steps of the chosen head and of the MLP in its layer, unless they are known.
async function readHead() {
  const mine = story;
  const { model, entries, index, off, found } = mine;
  const { layer, head } = (mine.head ??= informative(found));
  if (found.head?.layer === layer && found.head.head === head) return;
  const asked = { model, prompt: entries.slice(0, index).map((entry) => entry.id), target: found.target.token, heads_off: off, head: [layer, head] };
  const answer = await call("inspect", asked);
  const same = mine === story && story.found === found && story.head.layer === layer && story.head.head === head;
  if (same) Object.assign(found, { head: answer.head, mlp: answer.mlp });
}

async function chooseHead(head) {
  const mine = story;
  if (!mine?.found) return; // another token loads, whose heads are not here yet
  const before = mine.head;
  const isCurrent = () => mine === story && mine.head === head;
  mine.head = head;
  paintHead();
  byId("steps").setAttribute("aria-busy", "true");
  try {
    await readHead();
    if (isCurrent()) paintSteps();
  } catch (error) {
    if (isCurrent()) mine.head = before;
    if (mine === story && mine.head === before) {
      paintAttention();
      paintHead();
      byId("steps").setAttribute("aria-busy", "false");
    }
    throw error;
  }
}

const change = (values) => attempt(() => {
  story = { ...story, ...values };
  return look();
});

function title() {
  const { entries, index } = story;
  byId("story-title").textContent = entries[index] ? t("story.title", readable(entries[index].name)) : t("story.next");
  byId("story-where").textContent = index ? t("story.where", index) : t("story.first");
}

function paint() {
  const { entries, index, found } = story;
  title();
  passage.select(index);
  passage.activate(index);
  [...passage.element.children].forEach((token, place) => token.classList.toggle("future", place > index));
  byId("story-before").disabled = index === 0;
  byId("story-after").disabled = index === story.last;
  showPieces(entries, index);
  byId("story-panels").hidden = index === 0;
  if (!index) return passage.paint(() => 0);
  showEmbeddings(found, entries[index - 1]);
  paintAttention();
  paintHead();
  paintSteps();
  showLens(story, (token) => change({ follow: token }));
  showChoice(story);
}

function paintAttention() {
  showAttention(story, { head: (head) => attempt(() => chooseHead(head)), off: (off) => change({ off }) });
}

function paintSteps() {
  showHeadSteps(story.found);
  showMlp(story.found);
  byId("steps").setAttribute("aria-busy", "false");
}

// The text, shaded by the attention of the chosen head.
function paintHead() {
  const { layer, head } = story.head;
  const weights = story.found.attention[layer][head];
  passage.paint((place) => weights[place] ?? 0);
}
