// The texts that were written from one prompt, as a tree: nothing is lost when one branches.

export class Tree {
  constructor() {
    this.branches = [];
    this.current = null;
    this.compared = null; // shown next to the current one
  }

  // Makes a branch the current one; if it was the compared one, the two change places.
  show(branch) {
    if (branch === this.compared) this.compared = this.current;
    this.current = branch;
  }

  // A branch shares the first `at` tokens of its parent; `own` are those that follow.
  add(parent, at, own, name, seed) {
    const branch = { id: this.branches.length, parent, at, own, name, seed, note: "" };
    this.branches.push(branch);
    this.current = branch;
    return branch;
  }

  // All tokens of a branch from the beginning of the text.
  entries(branch = this.current) {
    if (!branch) return [];
    return branch.parent ? [...this.entries(branch.parent).slice(0, branch.at), ...branch.own] : branch.own;
  }

  children(parent) {
    return this.branches.filter((branch) => branch.parent === parent);
  }
}

// The mean log-probability of the tokens that the model wrote or that were chosen, or null for none.
export function meanLogProbability(entries) {
  const written = entries.filter((entry) => entry.origin !== "prompt" && entry.logProbability !== null);
  return written.length ? written.reduce((sum, entry) => sum + entry.logProbability, 0) / written.length : null;
}
