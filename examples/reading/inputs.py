"""The four inputs of GPT-1, token by token: what `headwater finetune --set recipe=gpt1 --show` prints."""

import json
import tempfile
from pathlib import Path

import headwater as hw
from headwater.finetuning import FinetuneConfig, show_examples

rows = {
    "classify": {"text": "A fine film."},
    "entail": {"premise": "A dog runs.", "hypothesis": "It moves."},
    "similarity": {"first": "A dog runs.", "second": "The dog ran."},
    "choice": {"context": "It rains.", "question": "What is wet?", "answers": ["The road.", "The sun."]},
}
tokenizer = hw.load("gpt1-mini").tokenizer.with_task_tokens()
with tempfile.TemporaryDirectory() as folder:
    for task, row in rows.items():
        table = Path(folder, f"{task}.jsonl")
        table.write_text(json.dumps(row), encoding="utf-8")
        config = FinetuneConfig(task=task, recipe="gpt1")
        shown = show_examples(config, model=Path("gpt1-mini"), train=table, count=1)
        for sequence in shown[0].sequences:
            print(f"{task:10}", *(tokenizer.decode([token]).strip() for token in sequence.ids), sep=" | ")
