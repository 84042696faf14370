"""Say in one sentence whether a model is better than its yardsticks, and which command to run next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from headwater.intervals import Z95
from headwater.report.content import Content


def verdict(content: Content) -> str:
    """Return the sentence about the model with the fewest bits per byte of its text; "" without yardsticks.

    A yardstick counts the same text exactly: the difference has the interval of the model's score over documents.
    """
    rows = [bar for bar in content.bars if bar.is_model]
    models = [bar for bar in rows if not bar.ships] or rows
    if not models:
        return ""
    model = min(models, key=lambda bar: bar.value)
    yardsticks = [bar for bar in content.bars if not bar.is_model and bar.text == model.text]
    if not yardsticks:
        return ""
    other = min(yardsticks, key=lambda bar: bar.value)
    reach, gain = Z95 * (model.stderr or 0.0), other.value - model.value
    if model.stderr is None:
        judged = "better, without a measure of chance" if gain > 0 else "not better"
    elif abs(gain) <= reach:
        judged = "not apart from it with 95 % confidence"
    else:
        judged = f"{'better' if gain > 0 else 'worse'} with 95 % confidence"
    reached = f" ± {reach:.3f}" if model.stderr is not None else ""
    return (
        f"{model.name} needs {model.value:.3f} bits for a byte of held-out text, the best yardstick, "
        f"{other.name}, {other.value:.3f}: {judged} (difference {abs(gain):.3f}{reached})."
    )


def next_command(content: Content) -> str:
    """Return the command that helps next: more updates for a run behind its yardsticks, else text from the model.

    Empty without a run.
    """
    names = [run.name.partition(" from ")[0] for run in content.runs[:1]]
    step = next((step for step in content.steps if step["name"] in names), None)
    if step is None:
        return ""
    updates = int(content.runs[0].facts.get("updates", "0").replace(",", ""))
    is_better = ": better" in verdict(content) or not any(bar.is_model for bar in content.bars)
    last = str(step["commands"][-1]) if step["commands"] else ""
    if not content.runs[0].complete:
        return last
    if not is_better and updates and last.startswith("headwater pretrain "):
        command = re.sub(r" --set steps=\d+", "", last)
        return f"{command} --set steps={2 * updates}"
    return f"headwater generate --model {shlex.quote(str(Path(step['place'])))}"
