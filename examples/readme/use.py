import headwater as hw

lm = hw.load("run/model")  # or gpt2-mini, or a Hugging Face folder of a GPT-2 or GPT-1
print(lm.generate("The river", max_tokens=40, seed=1))
print(lm.score([("The capital of France is", " Paris")]))  # [(log-probability, is_greedy)]
texts = [f"A {word} film, number {number}." for number in range(8) for word in ("fine", "dull")]
clf = hw.Classifier(base="run/model").fit(texts, ["good", "bad"] * 8)  # scikit-learn's conventions
print(clf.predict(["A fine film."]))
