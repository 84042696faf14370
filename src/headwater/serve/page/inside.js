// One token's story on one page: the tokens before it, embeddings, attention, every layer's prediction, the choice.
// All panels are about the same step: the model has read the tokens before the chosen one, and predicts it.

import { call, read } from "./api.js";
import { showAttention } from "./attention.js";
import { hideCard } from "./card.js";
import { setUpChoice, showChoice } from "./choice.js";
import { announce, attempt, byId, fillSelect, onSubmit } from "./dom.js";
import { showEmbeddings } from "./embeddings.js";
import { showLens } from "./lens.js";
import { t } from "./language.js";
import { showPieces } from "./pieces.js";
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
  setUpChoice();
  document.addEventListener("language", () => {
    passage.element.setAttribute("aria-label", t("inside.tokens"));
    if (story?.found) paint();
  });
}

export const hasStory = () => Boolean(story);

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
      target: mine.follow ?? entries[index]?.id ?? null, continuation: off.length ? CONTINUED : 0, ...(drawn ? { seed: drawn.seed, step: drawn.step } : {}),
    };
    try {
      const [found, whole] = await Promise.all([call("inspect", { ...asked, heads_off: off }), off.length ? call("inspect", asked) : null]);
      if (mine !== story) return; // another token was chosen meanwhile
      Object.assign(story, { found, whole });
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
  showAttention(story, {
    head: (head) => { story.head = head; paintHead(); },
    off: (off) => change({ off }),
  });
  paintHead();
  showLens(story, (token) => change({ follow: token }));
  showChoice(story);
}

// The text, shaded by the attention of the chosen head.
function paintHead() {
  const { layer, head } = story.head;
  const weights = story.found.attention[layer][head];
  passage.paint((place) => weights[place] ?? 0);
}
