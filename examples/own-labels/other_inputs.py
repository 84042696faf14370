import headwater as hw

base = hw.load("quickstart/run/model")

# Two texts to a class: premise and hypothesis.
pairs = [("A river runs.", "Water moves."), ("A river runs.", "Nothing moves.")] * 10
entailment = hw.Entailment(base=base, epochs=1).fit(pairs, ["yes", "no"] * 10)
print(entailment.predict(pairs[:2]))

# Two texts in no order to a score.
similarity = hw.Similarity(base=base, epochs=1).fit(pairs, [4.5, 0.5] * 10)
print(similarity.predict(pairs[:2]))

# A context, a question and answers to the number of the right one.
choices = [("The sun rose.", "It grew", [" light.", " dark."]), ("The sun set.", "It grew", [" light.", " dark."])]
choice = hw.MultipleChoice(base=base, epochs=1).fit(choices * 10, [0, 1] * 10)
print(choice.predict(choices))
