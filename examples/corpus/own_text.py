import json
from pathlib import Path

from headwater.corpus import build_corpus, load_recipe, read_documents, read_funnel

rows = ["The river ran over the stones.", "The river ran over the stones.", "강물이 흐른다."]
Path("rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))

build_corpus(["rows.jsonl"], Path("corpus"), load_recipe("plain", {"minimum_characters": 5}))

# The order is kept, the first copy stays, and every removed document is counted.
assert [document.text for document in read_documents(Path("corpus"))] == [rows[0], rows[2]]
assert read_funnel(Path("corpus"))["duplicates"] == {"exact": 1}
