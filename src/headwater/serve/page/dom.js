// Elements: found by id, made, and filled; the line that reports a problem; the line that a screen reader hears.

export const byId = (id) => document.getElementById(id);

// make("p", {class: "x", onclick: f, "--share": 0.5}, "text", child) -> element
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function say(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

export function announce(text) {
  byId("announced").textContent = text;
}

export const percent = (p) => {
  if (p < 0.00001) return "< 0.001 %"; // also what the server rounded to 0
  return (p >= 0.0995 ? (100 * p).toFixed(0) : (100 * p).toPrecision(2)) + " %";
};

// One bar of a chart: its length is the number, which is next to it.
export const bar = (share, text = percent(share)) =>
  make("span", { class: "bar" }, make("span", { class: "fill", "--share": Math.min(1, share).toFixed(4) }), make("span", { class: "number" }, text));

// names: [value, shown] pairs, or {group, names} of such.
export function fillSelect(select, names) {
  const before = select.value;
  const option = ([value, shown]) => make("option", { value }, shown);
  select.replaceChildren(
    ...names.map((one) => (one.group ? make("optgroup", { label: one.group }, ...one.names.map(option)) : option(one))),
  );
  if ([...select.options].some((one) => one.value === before)) select.value = before;
}

// Runs the action of a form or a key; the page shows what it throws.
export async function attempt(action) {
  say("");
  try {
    return await action();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}

export function onSubmit(form, action) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(action);
  });
}

const unstored = new Map(); // what the browser did not store, until the page is closed

// What is stored for this page in `area`, "localStorage" or "sessionStorage", else null.
export function stored(area, key) {
  if (unstored.has(key)) return unstored.get(key);
  try {
    return window[area].getItem(key);
  } catch {
    return null;
  }
}

export function store(area, key, value) {
  try {
    window[area].setItem(key, value);
  } catch {
    unstored.set(key, value); // the storage is disabled or full
  }
}

// Calls `action` when nothing happened for a while.
export function later(action, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

// The pixels of a canvas are as fine as the screen's.
export function context2d(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
