import json
from pathlib import Path

pairs = [
    ("The stones lie in the river.", "The stones lies in the river."),
    ("The river near the houses bends.", "The river near the houses bend."),
]
lines = [json.dumps({"right": right, "wrong": wrong}) for right, wrong in pairs]
Path("verbs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
Path("capitals.csv").write_text("country,a,b,right\nFrance,Paris,Nice,A\nItaly,Milan,Rome,B\n", encoding="utf-8")
