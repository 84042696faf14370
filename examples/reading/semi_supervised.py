"""Semi-supervised: much text without labels, then few rows with labels, for a model of this package."""

import json

from headwater.shipped import find

about = json.loads((find("gpt1-mini") / "about.json").read_text("utf-8"))
results = json.loads((find("gpt1-mini") / "results.json").read_text("utf-8"))
print(f"pre-training, no labels: {about['curve'][-1]['tokens']:,} tokens")
for table in results["fine_tuned"]:
    print(f"fine-tuning on {table['name']}: {table['rows']:,} labelled rows")
