import csv
from pathlib import Path

import headwater as hw

with Path("ChatbotData.csv").open(encoding="utf-8") as 파일:
    줄들 = list(csv.DictReader(파일))
이름 = {"0": "일상", "1": "이별", "2": "사랑"}
글, 주제 = [줄["Q"] for 줄 in 줄들], [이름[줄["label"].strip()] for 줄 in 줄들]

분류기 = hw.Classifier(base="gpt2-mini-ko").fit(글, 주제)
print(분류기.predict(["오늘 점심 뭐 먹지?", "그 사람이 자꾸 생각나", "헤어진 지 한 달 됐어"]))
분류기.save("주제_분류기")
