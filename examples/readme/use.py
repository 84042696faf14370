import headwater as hw

lm = hw.load("run/model")  # or any GPT-2 or GPT-1 folder in Hugging Face's layout
print(lm.generate("The river", max_tokens=40, seed=1))
print(lm.score([("The capital of France is", " Paris")]))  # [(log-probability, is_greedy)]

films = ["first", "second", "third", "last", "longest", "shortest", "newest", "oldest"]
texts = [f"The {film} film is {what}." for film in films for what in ("fine", "dull")]
clf = hw.Classifier(base="run/model").fit(texts, ["good", "bad"] * 8)  # scikit-learn's conventions
print(clf.predict(["A fine film."]))
