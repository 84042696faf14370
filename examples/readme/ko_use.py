import headwater as hw

lm = hw.load("run/model")  # 또는 gpt2-mini-ko, 또는 Hugging Face의 GPT-2나 GPT-1 폴더
print(lm.generate("강물은", max_tokens=40, seed=1))
print(lm.score([("우리나라의 수도는", " 서울")]))  # [(로그 확률, 탐욕 생성과 같은지)]
texts = [f"{number}번째 영화는 {word}." for number in range(8) for word in ("훌륭하다", "지루하다")]
clf = hw.Classifier(base="run/model").fit(texts, ["좋음", "나쁨"] * 8)  # scikit-learn의 규약을 따릅니다
print(clf.predict(["훌륭한 영화였다."]))
