// The chosen head in numbers: query, keys, dot products, softmax, values. The largest units of its layer's MLP.

import { bar, byId, make, percent } from "./dom.js";
import { strip } from "./embeddings.js";
import { t } from "./language.js";
import { readable } from "./tokens.js";

const largestOf = (...rows) => Math.max(...rows.flat().map(Math.abs)) || 1;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const shown = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
const heading = (text) => make("th", { scope: "col" }, text);
const number = (text) => make("td", { class: "number" }, text);

export function showHeadSteps({ tokens, head }) {
  const { layer, attended, query, output, others } = head;
  byId("qkv-head").textContent = t("head.name", layer + 1, head.head + 1);
  const asking = largestOf(query, ...attended.map((one) => one.key));
  const passed = largestOf(output, ...attended.map((one) => one.value));
  const last = attended.at(-1);
  const name = (one) => readable(tokens[one.position]);
  const line = (id, text, values, largest) => byId(id).replaceChildren(make("span", { class: "hint" }, text), strip(values, largest, text));
  line("qkv-query", t("qkv.query", name(last)), query, asking);
  line("qkv-output", t("qkv.output"), output, passed);
  byId("qkv").replaceChildren(
    make("thead", {}, make("tr", {}, ...["token", "key", "product"].map((key) => heading(t(`qkv.${key}`))), heading(t("qkv.scaled", query.length)), ...["weight", "value"].map((key) => heading(t(`qkv.${key}`))))),
    make("tbody", {}, ...attended.map((one) => make("tr", {},
      make("th", { scope: "row" }, make("code", {}, name(one)), " ", make("span", { class: "hint" }, t("head.place", one.position + 1))),
      make("td", {}, strip(one.key, asking, t("qkv.key.of", name(one)))), number(shown(one.product)), number(shown(one.scaled)),
      make("td", {}, bar(one.weight)), make("td", {}, strip(one.value, passed, t("qkv.value.of", name(one)))))),
    tokens.length && last.position + 1 > attended.length ? make("tr", {}, make("th", { scope: "row" }, t("qkv.others", last.position + 1 - attended.length)), make("td"), make("td"), make("td"), make("td", {}, bar(others)), make("td")) : null),
  );
  const most = attended.reduce((best, one) => (one.weight > best.weight ? one : best));
  byId("qkv-said").textContent = t("qkv.said", name(most), shown(most.product), query.length, shown(most.scaled), percent(most.weight));
}

export function showMlp({ mlp, target }) {
  byId("mlp-layer").textContent = t("mlp.layer", mlp.layer + 1, mlp.hidden);
  byId("mlp-norm").textContent = t(mlp.pre_norm ? "mlp.norm.before" : "mlp.norm.after");
  const list = (tokens) => make("td", { class: "shares" }, ...tokens.filter((one) => one.logit).slice(0, 3).flatMap((one) => [make("span", {}, make("code", {}, readable(one.text)), make("span", { class: "number" }, signed(one.logit))), " "]));
  byId("mlp").replaceChildren(
    make("thead", {}, make("tr", {}, ...["unit", "input", "activation", "length", "raised", "lowered"].map((key) => heading(t(`mlp.${key}`))), heading(t("mlp.target", readable(target.text))))),
    make("tbody", {}, ...mlp.units.map((one) => make("tr", {}, make("th", { scope: "row" }, String(one.unit + 1)),
      ...[one.input, one.activation].map((value) => number(shown(value))), number(one.length.toFixed(2)), list(one.raised), list(one.lowered), number(signed(one.target))))),
  );
}
