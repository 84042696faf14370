// The form of a fine-tuned model: its task's fields, the answer, and the words that moved it.

import { call } from "./api.js";
import { attempt, byId, fillSelect, make, percent } from "./dom.js";

const FIELDS = {
  classify: ["Text"],
  entail: ["Premise", "Hypothesis"],
  similarity: ["First text", "Second text"],
  choice: ["Context", "Question", "Answers, one a line"],
};
let models = [];

export function setUpClassify(fineTuned) {
  models = fineTuned;
  fillSelect(byId("classify-model"), models.map((model) => model.id));
  byId("classify-model").addEventListener("change", showFields);
  byId("classify-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(classify);
  });
  showFields();
}

const chosen = () => models.find((model) => model.id === byId("classify-model").value);

function showFields() {
  byId("classify-fields").replaceChildren(
    ...FIELDS[chosen().task].map((name) => make("label", { class: "wide" }, name, make("textarea", { rows: "3" }))),
  );
  byId("classified").replaceChildren();
}

async function classify() {
  const { id, task } = chosen();
  const values = [...byId("classify-fields").querySelectorAll("textarea")].map((area) => area.value);
  const parts = task === "choice" ? [...values.slice(0, 2), ...values[2].split("\n").filter((line) => line.trim())] : values;
  const answer = await call("classify", { model: id, input: [parts], explain: true });
  const { label, probabilities, words } = answer.data[0];
  const sorted = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
  const bars = sorted.map(([name, p]) =>
    make("div", { class: "bar", "--share": p.toFixed(4) }, make("code", {}, name), make("span", { class: "number" }, percent(p))),
  );
  const texts = [];
  for (const word of words) {
    const kind = word.share >= 0 ? "word for" : "word against";
    const title = `${word.share >= 0 ? "for" : "against"} it: ${Math.abs(word.share).toFixed(2)}`;
    (texts[word.segment] ??= []).push(make("span", { class: kind, title, "--share": Math.abs(word.share).toFixed(3) }, word.text));
  }
  byId("classified").replaceChildren(
    make("p", { class: "label" }, String(label)),
    ...bars,
    make("h2", {}, "Which words mattered"),
    make("p", { class: "hint" }, "Shaded blue: speaks for it. Orange and underlined: against it. Each was left out in turn."),
    ...texts.filter(Boolean).map((spans) => make("p", { class: "text" }, ...spans)),
  );
}
