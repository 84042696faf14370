// From logits to the next token, as the server does it: temperature, top-k, top-p, one random number.

export function decodeFloats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

// The token ids, the likeliest first; of equal logits the lower id first.
export function ranked(logits) {
  return Array.from(logits.keys()).sort((one, two) => logits[two] - logits[one] || one - two);
}

function normalised(weights) {
  let total = 0;
  for (const weight of weights) total += weight;
  return weights.map((weight) => weight / total);
}

// {raw, tempered, filtered}: the distribution after each step, by token id.
export function distributions(logits, order, { temperature, topK, topP }) {
  const largest = logits[order[0]];
  const at = (heat) => normalised(Float64Array.from(logits, (logit) => Math.exp((logit - largest) / heat)));
  const raw = at(1);
  const greedy = () => Float64Array.from(logits, (_, id) => (id === order[0] ? 1 : 0));
  const tempered = temperature > 0 ? at(temperature) : greedy();
  let kept = tempered;
  if (topK > 0 && topK < logits.length && temperature > 0) {
    const least = logits[order[topK - 1]]; // tokens that tie with the k-th stay
    kept = normalised(kept.map((p, id) => (logits[id] >= least ? p : 0)));
  }
  if (topP < 1 && temperature > 0) {
    let sum = 0;
    let least = 0;
    for (const id of order) {
      sum += kept[id];
      least = kept[id];
      if (sum >= topP) break;
    }
    kept = normalised(kept.map((p) => (p >= least ? p : 0)));
  }
  return { raw, tempered, filtered: kept };
}

// The token in whose part of [0, 1) the random number falls; the parts lie in the order of the ids.
export function draw(probabilities, uniform) {
  let before = 0;
  let last = 0;
  for (let id = 0; id < probabilities.length; id++) {
    if (!probabilities[id]) continue;
    last = id;
    if (before + probabilities[id] > uniform) return id;
    before += probabilities[id];
  }
  return last;
}
