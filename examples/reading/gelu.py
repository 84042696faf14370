"""GELU: x times the probability that a standard normal value is at most x; and GPT's approximation."""

import math


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


print("    x    ReLU    GELU    tanh form")
for half in range(-6, 7):
    x = half / 2
    print(f"{x:5.1f} {max(x, 0.0):7.3f} {gelu(x):7.3f} {gelu_tanh(x):9.5f}", " " * round(10 * gelu(x) + 4), "●")
