from pathlib import Path

from verbs import Verbs

import headwater as hw
from headwater.evaluation import run_task

outcome = run_task(Verbs(), {"pairs": Path("verbs.jsonl")}, hw.load("quickstart/run/model"))
print(outcome.results[0].value, outcome.records)
