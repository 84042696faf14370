import headwater as hw

lm = hw.load("run/model")  # or any GPT-2 or GPT-1 folder in Hugging Face's layout
print(lm.generate("The river", max_tokens=40, seed=1))
print(lm.score([("The capital of France is", " Paris")]))  # [(log-probability, is_greedy)]

texts, labels = ["A fine film.", "A dull film."] * 10, ["good", "bad"] * 10
clf = hw.Classifier(base="run/model").fit(texts, labels)  # scikit-learn's conventions
print(clf.predict(["A fine day."]))
