// Elements by id, elements made, and the line that says what went wrong.

export const byId = (id) => document.getElementById(id);

// make("p", {class: "x", onclick: f}, "text", child) -> element
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export function say(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

export const percent = (p) => (p >= 0.0995 ? (100 * p).toFixed(0) : (100 * p).toPrecision(2)) + " %";

export function fillSelect(select, names, empty) {
  select.replaceChildren(
    ...(empty ? [make("option", { value: "" }, empty)] : []),
    ...names.map((name) => make("option", { value: name }, name)),
  );
}

// Runs the action of a form or a key; what it throws is shown, not lost.
export async function attempt(action) {
  say("");
  try {
    await action();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}
