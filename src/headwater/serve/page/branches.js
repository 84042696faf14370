// The tree of branches as a nested list: each can be shown, named, and compared with the others.

import { byId, make } from "./dom.js";
import { t } from "./language.js";
import { textOf } from "./tokens.js";
import { meanLogProbability } from "./tree.js";

export function showBranches(tree, choose) {
  const place = byId("branches");
  place.hidden = tree.branches.length < 2;
  const focused = document.activeElement?.dataset?.branch;
  byId("branch-tree").replaceChildren(...tree.children(null).map((branch) => item(tree, branch, choose)));
  if (focused !== undefined) byId("branch-tree").querySelector(`button[data-branch="${focused}"]`)?.focus();
}

function item(tree, branch, choose) {
  const current = branch === tree.current;
  const mean = meanLogProbability(branch.own);
  const name = make("input", { class: "name", value: branch.name, "aria-label": t("branch.name"), maxlength: "60", oninput: (event) => (branch.name = event.target.value) });
  const show = make("button", { type: "button", "data-branch": branch.id, "aria-pressed": String(current), onclick: () => choose(branch) }, current ? t("branch.shown") : t("branch.show"));
  const counted = t("branch.counted", branch.own.filter((entry) => entry.origin !== "prompt").length, mean === null ? "–" : mean.toFixed(2));
  const below = tree.children(branch);
  return make("li", { class: current ? "current" : null },
    make("div", { class: "row" }, name, show, make("span", { class: "hint" }, counted)),
    make("p", { class: "own" }, textOf(branch.own.filter((entry) => entry.origin !== "prompt")) || "…"),
    below.length ? make("ul", {}, ...below.map((one) => item(tree, one, choose))) : null,
  );
}
