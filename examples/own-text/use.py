import headwater as hw

lm = hw.load("run/model")
print(lm.generate("The river", max_tokens=40, seed=1))

for piece in lm.stream("In the morning", max_tokens=40, seed=2):
    print(piece, end="", flush=True)
print()

# Which ending is more probable after the text?
for ending in (" water", " the of"):
    ((log_probability, is_greedy),) = lm.score([("The river is full of", ending)])
    print(f"{ending!r}: {log_probability:.2f}", "(the most probable)" if is_greedy else "")
