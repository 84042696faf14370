import headwater as hw

base = hw.load("quickstart/run/model")
things = ["river", "road", "house", "stone", "tree", "boat", "field", "bell", "wall", "bridge"]

# Two texts to a class: premise and hypothesis.
pairs = [(f"The {thing} is old.", f"The {thing} is {age}.") for thing in things for age in ("not new", "new")]
entailment = hw.Entailment(base=base, epochs=1).fit(pairs, ["entailment", "contradiction"] * 10)
print(entailment.predict(pairs[:2]))

# Two texts in no order to a score.
similarity = hw.Similarity(base=base, epochs=1).fit(pairs, [4.5, 0.5] * 10)
print(similarity.predict(pairs[:2]))

# A context, a question and answers to the number of the right one.
choices = [(f"The {thing} is old.", "It is", [" old.", " new."]) for thing in things]
choice = hw.MultipleChoice(base=base, epochs=1).fit(choices, [0] * 10)
print(choice.predict(choices[:2]))
