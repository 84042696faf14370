import csv
import json
from pathlib import Path

with Path("data/train-text/korean/ChatbotData.csv").open(encoding="utf-8") as file:
    for row in csv.DictReader(file):
        for column in ("Q", "A"):
            print(json.dumps({"text": row[column]}))
