// The tree of branches as a nested list: each can be shown and named, and two can be compared side by side.

import { cardKey, showCard } from "./card.js";
import { byId, make } from "./dom.js";
import { t } from "./language.js";
import { Passage, surprise, textOf } from "./tokens.js";
import { meanLogProbability } from "./tree.js";

// on.show(branch), on.compare(branch), on.story(entries, index).
export function showBranches(tree, on) {
  byId("branches").hidden = tree.branches.length < 2;
  const focused = document.activeElement?.dataset?.branch;
  byId("branch-tree").replaceChildren(...tree.children(null).map((branch) => item(tree, branch, on)));
  if (focused) byId("branch-tree").querySelector(`button[data-branch="${focused}"]`)?.focus();
  showPair(tree, on);
}

const written = (branch) => branch.own.filter((entry) => entry.origin !== "prompt");

function counted(branch) {
  const mean = meanLogProbability(branch.own);
  return t("branch.counted", written(branch).length, mean === null ? "–" : mean.toFixed(2));
}

function item(tree, branch, on) {
  const current = branch === tree.current;
  const button = (name, key, pressed, action) =>
    make("button", { type: "button", "data-branch": `${name} ${branch.id}`, "aria-pressed": String(pressed), onclick: () => action(branch) }, t(key));
  const rename = (event) => {
    branch.name = event.target.value;
    showPair(tree, on);
  };
  const below = tree.children(branch);
  return make("li", { class: current ? "current" : null },
    make("div", { class: "row" },
      make("input", { class: "name", value: branch.name, "aria-label": t("branch.name"), maxlength: "60", oninput: rename }),
      button("show", current ? "branch.shown" : "branch.show", current, on.show),
      current ? null : button("compare", "branch.compare", branch === tree.compared, on.compare),
      make("span", { class: "hint" }, counted(branch))),
    make("p", { class: "own" }, textOf(written(branch)) || "…"),
    below.length ? make("ul", {}, ...below.map((one) => item(tree, one, on))) : null,
  );
}

// The current branch next to the compared one; what they share is grey.
function showPair(tree, on) {
  const pair = tree.compared ? [tree.current, tree.compared] : [];
  for (const id of ["branch-pair", "branch-shared"]) byId(id).hidden = !pair.length;
  const [one, other] = pair.map((branch) => tree.entries(branch));
  const fork = one?.findIndex((entry, place) => entry.id !== other[place]?.id) ?? 0;
  const shared = fork < 0 ? one.length : fork;
  byId("branch-shared").textContent = t("branch.shared", shared);
  byId("branch-pair").replaceChildren(...pair.map((branch) => {
    const passage = new Passage(t("branch.text", branch.name), {
      choose: (index, how) => showCard(passage, index, { story: () => on.story(passage.entries, index) }, how !== "hover"),
      key: cardKey,
    });
    passage.show(tree.entries(branch), (entry, place) => (place < shared ? 0 : surprise(entry.logProbability)));
    [...passage.element.children].slice(0, shared).forEach((token) => token.classList.add("future"));
    return make("section", {}, make("h3", {}, branch.name), make("p", { class: "hint" }, counted(branch)), make("div", { class: "paper" }, passage.element));
  }));
}
