// One attention head, large, as a matrix. Shades are linear in the weight.

import { colour, context2d, make, percent } from "./dom.js";
import { t } from "./language.js";

const MARGIN = 96;
const LABEL = 48; // a label at a slant needs room on its right
const NUMBERS_FROM = 26; // pixels of a cell in which a number can be read
const cut = (name) => (name.length > 11 ? name.slice(0, 10) + "…" : name);

// names: (size,); at(row, column) is the weight; hear(text) says what is under the pointer.
export function drawMatrix(names, at, label, hear) {
  const size = names.length;
  const cell = Math.max(14, Math.min(44, Math.floor(480 / size)));
  const whole = MARGIN + size * cell + LABEL;
  const canvas = make("canvas", { role: "img", "aria-label": label });
  const context = context2d(canvas, whole, whole);
  const [ink, soft, water, line] = ["--ink", "--soft", "--water", "--line"].map(colour);
  context.font = `${Math.min(13, cell - 1)}px ui-monospace, monospace`;
  context.textBaseline = "middle";
  names.forEach((name, place) => {
    const middle = MARGIN + (place + 0.5) * cell;
    context.fillStyle = place === size - 1 ? ink : soft;
    context.textAlign = "right";
    context.fillText(cut(name), MARGIN - 6, middle);
    context.save();
    context.translate(middle, MARGIN - 6);
    context.rotate(-Math.PI / 3);
    context.textAlign = "left";
    context.fillText(cut(name), 0, 0);
    context.restore();
  });
  context.textAlign = "center";
  for (let row = 0; row < size; row++) {
    for (let column = 0; column <= row; column++) {
      const weight = at(row, column);
      const [x, y] = [MARGIN + column * cell, MARGIN + row * cell];
      context.globalAlpha = weight;
      context.fillStyle = water;
      context.fillRect(x, y, cell, cell);
      context.globalAlpha = 1;
      context.strokeStyle = line;
      context.lineWidth = 0.5;
      context.strokeRect(x, y, cell, cell);
      if (cell >= NUMBERS_FROM && weight >= 0.005) {
        context.fillStyle = weight > 0.55 ? colour("--on-water") : ink;
        context.fillText(Math.round(weight * 100), x + cell / 2, y + cell / 2);
      }
    }
  }
  context.lineWidth = 2;
  context.strokeStyle = ink;
  context.strokeRect(MARGIN, MARGIN + (size - 1) * cell, size * cell, cell);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (value) => Math.floor(((value * whole) / box.width - MARGIN) / cell);
    const [column, row] = [place(event.clientX - box.left), place(event.clientY - box.top)];
    if (row >= 0 && row < size && column >= 0 && column <= row) hear(t("head.cell", names[row], names[column], percent(at(row, column))));
  });
  return canvas;
}
