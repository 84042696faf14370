"""The papers' numbers, by protocol, metric and model: Radford et al. 2019 (GPT-2) and 2018 (GPT-1).

Only what is printed in a table or in the text stands here; points read off a figure do not. A value stands with
the protocol that fits the paper's description of how it was measured. GPT-1's zero-shot scores
(figure 2) are printed only as a curve on a rescaled axis, so there are none to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping

SIZES = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")


def _sizes(*values: float) -> dict[str, float]:
    return dict(zip(SIZES, values, strict=True))


def _xl(value: float) -> dict[str, float]:
    return {"gpt2-xl": value}


def _rouge(one: float, two: float, longest: float, average: float, model: str) -> dict[str, Mapping[str, float]]:
    values = {"rouge-1": one, "rouge-2": two, "rouge-l": longest, "rouge average": average}
    return {metric: {model: round(value / 100, 4)} for metric, value in values.items()}


PUBLISHED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    # GPT-2, table 3. Its accuracies are those with the stop-word filter (section 3.3).
    "lambada.openai.whole-word": {
        "perplexity": _sizes(35.13, 15.60, 10.87, 8.63),
        "accuracy": _xl(0.5266),
    },
    "lambada.openai.whole-word.stop-words": {"accuracy": _sizes(0.4599, 0.5548, 0.6012, 0.6324)},
    "cbt.common-nouns.detokenized": {"accuracy": _sizes(0.8765, 0.9235, 0.9345, 0.9330)},
    "cbt.named-entities.detokenized": {"accuracy": _sizes(0.834, 0.871, 0.880, 0.8905)},
    "wikitext-2.detokenized": {"perplexity": _sizes(29.41, 22.76, 19.93, 18.34)},
    "ptb.detokenized": {"perplexity": _sizes(65.85, 47.33, 40.31, 35.76)},
    "enwik8.bytes": {"bits per byte": _sizes(1.16, 1.01, 0.97, 0.93)},
    "text8.characters": {"bits per character": _sizes(1.17, 1.06, 1.02, 0.98)},
    "wikitext-103.detokenized": {"perplexity": _sizes(37.50, 26.37, 22.05, 17.48)},
    "1bw.detokenized": {"perplexity": _sizes(75.20, 55.72, 44.575, 42.16)},
    # Section 3.4, figure 3: partial scoring.
    "wsc273.partial": {"accuracy": _xl(0.7070)},
    # Section 3.5.
    "coqa.greedy": {"f1": _xl(0.55)},
    # Table 4.
    "cnndm.tldr": _rouge(29.34, 8.27, 26.58, 21.40, "gpt2-xl"),
    "cnndm.no-hint": _rouge(21.58, 4.03, 19.47, 15.03, "gpt2-xl"),
    "cnndm.lead-3": _rouge(40.38, 17.66, 36.62, 31.55, "paper"),
    "cnndm.random-3": _rouge(28.78, 8.63, 25.52, 20.98, "paper"),
    # Section 3.7.
    "wmt14.en-fr": {"bleu": _xl(5.0)},
    "wmt14.fr-en": {"bleu": _xl(11.5)},
    # Section 3.8.
    "natural-questions.exact-match": {"exact match": _xl(0.041), "exact match, most confident 1 %": _xl(0.631)},
}


def published(protocol: str, metric: str) -> Mapping[str, float]:
    """Published values by model; empty where none fits this protocol and metric."""
    return PUBLISHED.get(protocol, {}).get(metric, {})
