import headwater as hw

base = hw.load("quickstart/run/model")
things = ["river", "road", "house", "stone", "tree", "boat", "field", "bell", "wall", "bridge"]

# From two texts to a class: premise and hypothesis.
pairs = [(f"The {thing} is old.", f"The {thing} is {age}.") for thing in things for age in ("not new", "new")]
entailment = hw.Entailment(base=base, epochs=1).fit(pairs, ["entailment", "contradiction"] * 10)
print(entailment.predict(pairs[:2]))

# From two texts, in either order, to a score.
similarity = hw.Similarity(base=base, epochs=1).fit(pairs, [4.5, 0.5] * 10)
print(similarity.predict(pairs[:2]))

# From a context, a question and answers to the number of the right answer.
choices = [(f"The {thing} is old.", "It is", [" old.", " new."]) for thing in things]
choice = hw.MultipleChoice(base=base, epochs=1).fit(choices, [0] * 10)
print(choice.predict(choices[:2]))
