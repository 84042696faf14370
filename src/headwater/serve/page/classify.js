// A fine-tuned model: the fields of its task, its answer, and by how much each word changes it.

import { call } from "./api.js";
import { bar, byId, fillSelect, make, onSubmit, percent } from "./dom.js";
import { t } from "./language.js";

const FIELDS = { classify: ["text"], entail: ["premise", "hypothesis"], similarity: ["first", "second"], choice: ["context", "question", "answers"] };
let models = [];
let answer = null;

export function setUpClassify(fineTuned) {
  models = fineTuned;
  fillSelect(byId("classify-model"), models.map((model) => [model.id, `${model.id} · ${model.task}`]));
  byId("classify-model").addEventListener("change", showFields);
  onSubmit(byId("classify-form"), classify);
  showFields();
  document.addEventListener("language", () => {
    for (const label of byId("classify-fields").children) label.firstChild.textContent = t(`field.${label.dataset.field}`);
    if (answer) showAnswer();
  });
}

const chosen = () => models.find((model) => model.id === byId("classify-model").value);

function showFields() {
  answer = null;
  byId("classify-fields").replaceChildren(...FIELDS[chosen().task].map((name) =>
    make("label", { class: "wide", "data-field": name }, t(`field.${name}`), make("textarea", { rows: name === "text" ? "4" : "3" }))));
  byId("classified").hidden = true;
}

async function classify() {
  const { id, task } = chosen();
  const values = [...byId("classify-fields").querySelectorAll("textarea")].map((area) => area.value);
  const parts = task === "choice" ? [...values.slice(0, 2), ...values[2].split("\n").filter((line) => line.trim())] : values;
  answer = { task, parts, ...(await call("classify", { model: id, input: [parts], explain: true })).data[0] };
  showAnswer();
}

// The answers follow context and question; their numbers begin where the model's training data began.
const answerOf = (parts, label, probabilities) => parts[2 + Number(label) - Math.min(...Object.keys(probabilities).map(Number))];

function showAnswer() {
  const { label, probabilities, task, parts, saturated } = answer;
  const words = answer.words ?? []; // an empty text has no label
  byId("classified").hidden = false;
  byId("classified-label").textContent = label === null ? "–" : task === "choice" ? answerOf(parts, label, probabilities) : Array.isArray(label) ? label.join(", ") || "–" : String(label);
  const sorted = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
  byId("classified-bars").replaceChildren(...sorted.map(([name, p]) => make("li", {}, make("code", {}, name), bar(p))));
  // A score changes by parts of its scale, a probability by percentage points.
  const isScore = task !== "choice" && typeof label === "number";
  const levels = Object.keys(probabilities).map(Number);
  const changeOf = (word) => (saturated ? word.log_odds : word.change); // log-odds tell words apart where no probability changes
  const scale = saturated ? Math.max(...words.map((word) => Math.abs(changeOf(word)))) : isScore ? Math.max(...levels) - Math.min(...levels) : 1;
  const shown = (change) => (change < 0 ? "−" : "+") + (isScore || saturated ? Math.abs(change).toFixed(2) : t("word.points", (100 * Math.abs(change)).toFixed(1)));
  const texts = [];
  for (const word of words) {
    const said = `${word.text.trim()}: ${shown(changeOf(word))}`;
    (texts[word.segment] ??= []).push(make("span", { class: changeOf(word) >= 0 ? "piece for" : "piece against", role: "listitem", title: said, "aria-label": said, "--share": Math.min(1, Math.abs(changeOf(word)) / scale || 0).toFixed(3) }, word.text));
  }
  byId("classified-words").replaceChildren(...texts.filter(Boolean).map((spans) => make("div", { class: "text", role: "list" }, ...spans)));
  const strongest = [...words].sort((a, b) => Math.abs(changeOf(b)) - Math.abs(changeOf(a))).slice(0, 5);
  byId("classified-strongest").replaceChildren(...strongest.map((word) => make("li", {}, make("code", {}, word.text.trim()), make("span", { class: "number" }, shown(changeOf(word))))));
  byId("classified-hint").textContent = hint();

  function hint() {
    if (label === null) return t("word.empty");
    if (isScore) return t("word.hint.score");
    return t(saturated ? "word.saturated" : "word.hint", percent(sorted[0]?.[1] ?? 0));
  }
}
