// One text, cut by two tokenizers: the shortest pieces at whose ends both have a token's end, and no character is cut.

import { bytesOf, surprise } from "./tokens.js";

// Whether a token begins inside a character.
const continues = (entry) => entry && (bytesOf(entry.name)[0] & 0xc0) === 0x80;

// -> [{first: [entries], second: [entries]}], each side having the same bytes.
export function align(first, second) {
  const pieces = [];
  let piece = { first: [], second: [] };
  let [a, b, lengthA, lengthB] = [0, 0, 0, 0];
  while (a < first.length || b < second.length) {
    if (lengthA <= lengthB && a < first.length) {
      lengthA += bytesOf(first[a].name).length;
      piece.first.push(first[a++]);
    } else if (b < second.length) {
      lengthB += bytesOf(second[b].name).length;
      piece.second.push(second[b++]);
    } else {
      piece.first.push(first[a++]);
    }
    if (lengthA === lengthB && piece.first.length && piece.second.length && !continues(first[a])) {
      pieces.push(piece);
      piece = { first: [], second: [] };
    }
  }
  if (piece.first.length || piece.second.length) pieces.push(piece);
  return pieces;
}

export const total = (entries) => entries.reduce((sum, entry) => sum + (entry.logProbability ?? 0), 0);

// Positive where the first model finds the piece likelier; 1 at a thousand times as likely.
export function difference(piece) {
  const known = [...piece.first, ...piece.second].every((entry) => entry.logProbability !== null);
  if (!known) return 0;
  const gap = total(piece.first) - total(piece.second);
  return Math.sign(gap) * surprise(-Math.abs(gap));
}
