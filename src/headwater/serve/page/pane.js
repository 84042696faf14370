// One model's text: its prompt and what it writes, token by token, each tinted and open to another choice.

import { call, stream } from "./api.js";
import { attempt, make } from "./dom.js";
import { cardKey, hideCard, hideSoon, showCard, stay } from "./card.js";
import { decoder, roving, surprise, tint, tokenElement } from "./tokens.js";

const ALTERNATIVES = 8;

export class Pane {
  // model: a card of /v1/models; look(model, ids, position) opens the view inside.
  constructor(model, look, onState) {
    this.model = model;
    this.look = look;
    this.onState = onState;
    this.entries = [];
    this.earlier = []; // texts before a branch
    this.text = make("div", { class: "text", role: "group", "aria-label": `Text of ${model.id}` });
    this.status = make("span", { class: "status", "aria-live": "polite" });
    this.back = make("button", { type: "button", hidden: "", onclick: () => this.goBack() }, "Back");
    const head = make("header", {}, make("strong", {}, model.id), this.status, this.back);
    this.element = make("article", { class: "pane" }, head, this.text);
    roving(this.text, (event) => cardKey(event));
    this.text.addEventListener("focusin", (event) => this.open(event.target, true));
    this.text.addEventListener("focusout", () => hideCard(true));
    this.text.addEventListener("pointerover", (event) => {
      if (event.pointerType === "mouse") this.open(event.target, false);
    });
    this.text.addEventListener("pointerout", () => hideSoon());
    this.text.addEventListener("click", (event) => this.open(event.target, true));
  }

  get running() {
    return Boolean(this.abort);
  }

  stop() {
    this.abort?.abort();
  }

  // From a text or token ids: first the prompt as the model reads it, then its continuation.
  async write(prompt, options) {
    this.stop();
    const abort = (this.abort = new AbortController());
    this.options = options;
    this.onState();
    this.begin();
    try {
      const base = { model: this.model.id, logprobs: ALTERNATIVES, return_token_ids: true };
      const read = await call("v1/completions", { ...base, prompt, echo: true, max_tokens: 0 }, abort.signal);
      this.take(read.choices[0], true);
      const ids = this.entries.map((entry) => entry.id);
      const room = this.model.context + 1 - ids.length;
      if (room < 1) throw new Error(`The text fills the context of ${this.model.id}.`);
      const wanted = { ...base, ...options, prompt: ids, max_tokens: Math.min(options.max_tokens, room) };
      const began = performance.now();
      let reason = "length";
      for await (const chunk of stream(wanted, abort.signal)) {
        const choice = chunk.choices[0];
        this.take(choice, false);
        reason = choice.finish_reason ?? reason;
        const written = this.entries.length - ids.length;
        const speed = (1000 * written) / (performance.now() - began);
        this.status.textContent = `${written} ${written === 1 ? "token" : "tokens"}, ${speed.toFixed(0)}/s`;
      }
      this.status.textContent += reason === "stop" ? ", ended by itself" : "";
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      if (this.abort === abort) this.status.textContent += " stopped"; // else another text is here by now
    } finally {
      if (this.abort === abort) this.abort = null;
      this.onState();
    }
  }

  begin() {
    hideCard(true);
    this.entries = [];
    this.decode = decoder();
    this.text.replaceChildren();
    this.status.textContent = "";
  }

  take(choice, given) {
    const found = choice.logprobs;
    if (!found) return;
    found.tokens.forEach((name, place) => {
      const top = found.top_logprobs[place];
      const ids = found.top_token_ids[place];
      const alternatives = Object.entries(top ?? {})
        .map(([other, value]) => ({ id: ids[other], name: other, logProbability: value }))
        .sort((one, two) => two.logProbability - one.logProbability);
      const logProbability = found.token_logprobs[place];
      this.add({ id: choice.token_ids[place], name, given, logProbability, alternatives });
    });
  }

  add(entry) {
    const element = tokenElement(this.decode(entry.name), this.entries.length);
    if (entry.given) element.classList.add("given");
    if (!this.entries.length) element.setAttribute("tabindex", "0");
    tint(element, surprise(entry.logProbability));
    this.entries.push(entry);
    this.text.append(element);
  }

  open(target, pin) {
    const token = target.closest(".token");
    if (!token) return;
    stay();
    const index = Number(token.dataset.index);
    const before = () => this.entries.slice(0, index).map((entry) => entry.id);
    const choose = (other) => attempt(() => this.branch([...before(), other.id]));
    const look = () => this.look(this.model.id, this.entries.map((entry) => entry.id), index);
    showCard(token, this.entries[index], { choose, look }, pin);
  }

  async branch(ids) {
    this.stop();
    this.earlier.push(this.entries);
    this.back.hidden = false;
    await this.write(ids, this.options);
  }

  goBack() {
    this.stop();
    this.abort = null;
    const entries = this.earlier.pop();
    this.back.hidden = this.earlier.length === 0;
    this.begin();
    for (const entry of entries) this.add(entry);
  }
}
