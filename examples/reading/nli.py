"""Entailment, contradiction, neutral: learn them from 60 pairs, then ask for pairs that were not among them."""

import headwater as hw

pairs, labels = [], []
for who in ("man", "woman", "boy", "girl", "child"):
    for verb in ("sleeping", "running", "eating", "reading"):
        for ending in ("is in the house", "is not in the house", "is a friend of mine"):
            pairs.append((f"A {who} is {verb} in the house.", f"The {who} {ending}."))
        labels += ["entailment", "contradiction", "neutral"]
model = hw.Entailment(base="gpt1-mini", recipe="gpt1", epochs=3, batch_size=8, seed=1).fit(pairs, labels)

premise = "An old dog is sleeping in the garden."
for hypothesis in (
    "The dog is in the garden.",
    "The dog is not in the garden.",
    "The dog is a friend of mine.",
    "Nobody is in the garden.",
):
    shares = model.predict_proba([(premise, hypothesis)])[0]
    print(f"{hypothesis:30}", *(f"{name} {share:.1f}" for name, share in zip(model.classes_, shares, strict=True)))
