import csv
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import headwater as hw

with Path("reviews.csv").open(encoding="utf-8") as file:
    rows = [row for row in csv.DictReader(file) if row["review"].strip() and row["stars"].strip()]
texts, labels = [row["review"] for row in rows], [row["stars"] for row in rows]

folds = StratifiedGroupKFold(3, shuffle=True, random_state=1)  # equal texts are in one fold
for name, model in (
    ("TF-IDF and logistic regression", make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))),
    ("gpt2-mini, fine-tuned", hw.Classifier(base="gpt2-mini")),
):
    scores = cross_val_score(model, texts, labels, groups=texts, cv=folds)
    print(f"{name}: {scores.mean():.3f}", scores.round(3))
