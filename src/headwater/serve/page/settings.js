// How a text is written: the fields of one set of settings, each with a line that explains it.

import { make } from "./dom.js";
import { t } from "./language.js";

const FIELDS = {
  tokens: { min: 1, max: 100000, step: 1, value: 60 },
  temperature: { min: 0, max: 10, step: "any", value: 0.7 },
  top_k: { min: 0, max: 2147483647, step: 1, value: 40 },
  top_p: { min: 0.000001, max: 1, step: "any", value: 1 },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, value: 1 },
};

export class Settings {
  constructor(container, prefix) {
    this.inputs = {};
    for (const [name, { value, ...limits }] of Object.entries(FIELDS)) {
      const id = `${prefix}-${name.replace("_", "-")}`;
      const input = make("input", { id, type: "number", required: "", "aria-describedby": `${id}-hint`, ...limits, value });
      this.inputs[name] = input;
      container.append(
        make("div", { class: "setting" },
          make("label", { for: id, "data-t": `setting.${name}` }, t(`setting.${name}`)),
          input,
          make("p", { class: "hint", id: `${id}-hint`, "data-t": `setting.${name}.hint` }, t(`setting.${name}.hint`))),
      );
    }
  }

  get values() {
    return Object.fromEntries(Object.entries(this.inputs).map(([name, input]) => [name, Number(input.value)]));
  }

  set values(given) {
    for (const [name, input] of Object.entries(this.inputs)) if (given[name] !== undefined && given[name] !== null) input.value = given[name];
  }
}
