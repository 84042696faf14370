import csv
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import headwater as hw

with Path("후기.csv").open(encoding="utf-8") as 파일:
    줄들 = [줄 for 줄 in csv.DictReader(파일) if 줄["글"].strip() and 줄["라벨"].strip()]
글, 라벨 = [줄["글"] for 줄 in 줄들], [줄["라벨"] for 줄 in 줄들]

나누기 = StratifiedGroupKFold(3, shuffle=True, random_state=1)  # 같은 글은 같은 쪽에 둡니다
글자 = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4))
for 이름, 모델 in (
    ("TF-IDF와 로지스틱 회귀", make_pipeline(글자, LogisticRegression(max_iter=1000))),
    ("미세 조정한 gpt2-mini-ko", hw.Classifier(base="gpt2-mini-ko")),
):
    점수 = cross_val_score(모델, 글, 라벨, groups=글, cv=나누기)
    print(f"{이름}: {점수.mean():.3f}", 점수.round(3))
