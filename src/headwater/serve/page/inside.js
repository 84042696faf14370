// Inside the model: which tokens one position attends to, in any layer and head, and what each layer would say next.

import { call } from "./api.js";
import { attempt, byId, fillSelect, make, percent } from "./dom.js";
import { decoder, readable, roving, tint, tokenElement } from "./tokens.js";

const tokens = byId("inside-tokens");
let asked = null; // {model, prompt}: what the tokens shown are of
let found = null;

export function setUpInside(models) {
  fillSelect(byId("inside-model"), models.map((model) => model.id));
  byId("inside-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => show(byId("inside-model").value, byId("inside-text").value));
  });
  for (const id of ["layer", "head"]) byId(id).addEventListener("change", paint);
  roving(tokens);
  const choose = (event) => {
    const token = event.target.closest(".token");
    if (token && Number(token.dataset.index) !== found?.position) attempt(() => move(Number(token.dataset.index)));
  };
  tokens.addEventListener("focusin", choose);
  tokens.addEventListener("click", (event) => event.target.closest(".token")?.focus());
}

// prompt: a text or token ids.
export async function show(model, prompt, position = null) {
  byId("inside-model").value = model;
  const mine = (asked = { model, prompt });
  const answer = await call("inspect", { ...asked, ...(position === null ? {} : { position }) });
  if (mine !== asked) return; // another text was asked for meanwhile
  found = answer;
  const decode = decoder();
  const texts = found.tokens.map(decode);
  if (Array.isArray(prompt)) byId("inside-text").value = texts.join("");
  tokens.replaceChildren(...texts.map((text, index) => tokenElement(text, index)));
  const layers = found.attention.length;
  const heads = found.attention[0].length;
  keep(byId("layer"), layers, "All layers", layers);
  keep(byId("head"), heads, "All heads", "");
  byId("inside-shown").hidden = false;
  paint();
}

function keep(select, count, empty, first) {
  const before = select.options.length === count + 1 ? select.value : String(first);
  fillSelect(select, Array.from({ length: count }, (_, place) => String(place + 1)), empty);
  select.value = before;
}

async function move(position) {
  const mine = asked;
  const next = await call("inspect", { ...asked, position });
  if (mine !== asked) return;
  found = next;
  paint();
}

function paint() {
  const chosen = (list, value) => (value ? [list[Number(value) - 1]] : list);
  const rows = chosen(found.attention, byId("layer").value).flatMap((layer) => chosen(layer, byId("head").value));
  for (const token of tokens.children) {
    const index = Number(token.dataset.index);
    const weight = index > found.position ? 0 : rows.reduce((sum, row) => sum + row[index], 0) / rows.length;
    tint(token, Math.sqrt(weight));
    token.style.setProperty("--tint", "var(--cold)");
    token.style.opacity = index > found.position ? 0.45 : 1;
    token.title = index > found.position ? "" : `attention ${percent(weight)}`;
    token.classList.toggle("chosen", index === found.position);
    token.setAttribute("tabindex", index === found.position ? "0" : "-1");
  }
  const name = (place) => (place === 0 ? "Embeddings" : `Layer ${place}`);
  byId("layers").replaceChildren(
    ...found.layers.map((candidates, place) =>
      make("tr", {}, make("th", { scope: "row" }, name(place)), ...candidates.map((one) =>
        make("td", { "--share": one.probability.toFixed(4) },
          make("code", {}, readable(one.text)), make("span", { class: "number" }, percent(one.probability))),
      )),
    ).reverse(),
  );
}
