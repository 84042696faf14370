import re
from pathlib import Path

import headwater as hw

좋음, 나쁨 = "최고|감동|강추", "최악|쓰레기|노잼"
평 = [줄 for 줄 in Path("nsmc_reviews.txt").read_text(encoding="utf-8").splitlines() if len(줄) > 12]
표 = {re.sub(f"{좋음}|{나쁨}", "", 줄): bool(re.search(좋음, 줄)) for 줄 in 평 if re.search(f"{좋음}|{나쁨}", 줄)}
글 = sorted(표, key=표.get)
글 = 글[:1000] + 글[1000:][-1000:]
감정_분류기 = hw.Classifier(base="내_모델/run/model").fit(글, [표[줄] for 줄 in 글])
print(감정_분류기.predict(["시간 가는 줄 몰랐다. 꼭 보세요", "돈 주고 본 게 후회된다"]))
