"""p(output | input, task): the same input, three tasks in words, and the probabilities of three outputs."""

import math

import headwater as hw

lm = hw.load("gpt2-mini")
text = "The old captain lived in a small house by the sea. He had a white horse."
tasks = ("Who lived in the house? The", "What animal did he have? A", "Where was the house? By the")
outputs = (" captain", " horse", " sea")

print("per 10,000".rjust(41), *(output.rjust(9) for output in outputs))
for task in tasks:
    for name, prompt in (("with the input", f"{text} {task}"), ("the task alone", task)):
        scores = lm.score([(prompt, output) for output in outputs])
        print(f"{task:28}{name}", *(f"{1e4 * math.exp(score):9.1f}" for score, _ in scores))
