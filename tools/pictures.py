"""Draw the pictures of docs/reading from the models' own configurations and inputs.

    python tools/pictures.py --write    write docs/reading/NAME.svg and NAME.ko.svg
    python tools/pictures.py --check    fail if one of them would change

The blocks and the residual stream are drawn from presets of `ModelConfig`, the inputs and the losses from the
sequences that `headwater finetune --set recipe=gpt1` reads. Each picture is 400 units wide, so that a phone
shows it without scrolling, and has its own background, for light and dark pages. Its text alternative is on the
page.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import headwater as hw
from headwater.finetuning import FinetuneConfig, show_examples
from headwater.model import ModelConfig, preset

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reading"
WIDTH = 400
INK, STREAM, LOSS = "#22303c", "#1f6fb2", "#b4501e"  # lines: most, the residual stream and L1, L2
PAPER, BOX, NORM, SPECIAL = "#fcfbf7", "#e8eef4", "#fdebc8", "#dcebd9"
KOREAN = {
    "attention, {heads} heads": "어텐션, 헤드 {heads}개",
    "× {layers} blocks": "× 블록 {layers}개",
    "tokens and positions": "토큰 + 위치",
    "output: {matrix}, softmax": "출력: {matrix}, 소프트맥스",
    "post-norm": "덧셈 뒤에 LayerNorm(post-norm)",
    "pre-norm": "앞에 LayerNorm(pre-norm)",
    "embedding": "임베딩",
    "output": "출력",
    "block {number}": "블록 {number}",
    "LayerNorm, attention": "LayerNorm, 어텐션",
    "LayerNorm, MLP": "LayerNorm, MLP",
    "{count} additions: 2 in each of {layers} blocks": "덧셈 {count}번: 블록 {layers}개에 두 번씩",
    "first weights: 1/√{count} = {factor:.3f} as large": "더하는 층의 첫 가중치: 1/√{count} = {factor:.3f}배",
    "classification": "분류",
    "entailment": "함의",
    "similarity: both orders, outputs added": "유사도: 두 순서, 출력을 더함",
    "choice: softmax over the answers": "선다형: 답들에 대해 소프트맥스",
    "T: the Transformer, the same weights for all": "T: 트랜스포머. 가중치는 모두 같음",
    "W_y: the linear layer": "W_y: 선형 층",
    "pre-training: L1 at every token": "사전 학습: 모든 토큰에서 L1",
    "fine-tuning: L1 before the last token, L2 at the last": "미세 조정: 마지막 토큰 앞에서 L1, 마지막에서 L2",
    "reads": "읽음",
    "predicts": "예측",
    "label": "라벨",
}
# One row for each of the four inputs.
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "classify": ("classification", {"text": "A fine film."}),
    "entail": ("entailment", {"premise": "A dog runs.", "hypothesis": "It moves."}),
    "similarity": (
        "similarity: both orders, outputs added",
        {"first": "A dog runs.", "second": "The dog ran."},
    ),
    "choice": (
        "choice: softmax over the answers",
        {"context": "It rains.", "question": "What is wet?", "answers": ["The road.", "The sun."]},
    ),
}
TEXT = "The river runs to the sea, and the sea"
Words = Callable[..., str]


class Picture:
    """Shapes and texts of an SVG; y grows downwards."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.parts = [f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{PAPER}"/>']

    def box(self, x: float, y: float, width: float, height: float, fill: str = BOX) -> None:
        """Draw a rectangle with round corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
            f'stroke="{INK}"/>'
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 12, anchor: str = "middle", fill: str = INK
    ) -> None:
        """Write a line around, after or before x."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">'
            f"{escape(words)}</text>"
        )

    def labelled(self, x: float, y: float, width: float, words: str, fill: str = BOX, size: int = 12) -> None:
        """Draw a box of one line around x, with its words."""
        self.box(x - width / 2, y, width, 24, fill)
        self.text(x, y + 16, words, size=size)

    def line(
        self, *points: tuple[float, float], arrow: bool = True, colour: str = INK, width: float = 1.3
    ) -> None:
        """Draw a line through points, with an arrow at its end."""
        path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
        end = f' marker-end="url(#{"a" if colour == INK else "b" if colour == STREAM else "c"})"' if arrow else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{end}/>')

    def plus(self, x: float, y: float) -> None:
        """Draw a sign of addition."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{PAPER}" stroke="{STREAM}" stroke-width="1.5"/>'
        )
        self.text(x, y + 4, "+", size=13, fill=STREAM)

    def svg(self) -> str:
        """Return the file."""
        arrows = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            f'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
            for name, colour in (("a", INK), ("b", STREAM), ("c", LOSS))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}" '
            "font-family=\"system-ui, 'Noto Sans KR', 'Noto Sans CJK KR', sans-serif\">\n"
            f"<defs>{arrows}</defs>\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


def block(words: Words) -> str:
    """Draw the blocks of GPT-1 and GPT-2 side by side, from the embeddings at the bottom to the output."""
    picture = Picture(452)
    for x, title, config in ((104, "GPT-1", preset("gpt1")), (300, "GPT-2 small", preset("gpt2-small"))):
        _column(picture, x, config, words)
        picture.text(x, 22, title, size=14)
        picture.text(x, 40, words("pre-norm" if config.norm == "pre" else "post-norm"), size=11)
    return picture.svg()


def _column(picture: Picture, x: float, config: ModelConfig, words: Words) -> None:
    attention = words("attention, {heads} heads", heads=config.heads)
    mlp = f"MLP, {config.width:,} → {config.mlp_width:,} → {config.width:,}"
    steps = []
    for part in (attention, mlp):
        normed = ("norm", part) if config.norm == "pre" else (part,)
        steps += ["split", *normed, "add"] + (["norm"] if config.norm == "post" else [])
    y = 418.0
    picture.labelled(x, y, 156, f"{words('tokens and positions')}: {config.width:,}", size=11)
    bottom = y - 12
    split = 0.0
    for step in steps:
        if step == "split":
            split = y - 18
            picture.line((x, y), (x, split), arrow=False, colour=STREAM)
            y = split
        elif step == "add":
            picture.line((x, y), (x, y - 18))
            picture.line((x, split), (x - 86, split), (x - 86, y - 26), (x - 9, y - 26), colour=STREAM)
            picture.plus(x, y - 26)
            y -= 34
        else:
            picture.line((x, y), (x, y - 14), colour=STREAM if y > split else INK)
            name, fill = ("LayerNorm", NORM) if step == "norm" else (step, BOX)
            picture.labelled(x, y - 38, 144, name, fill, size=11)
            y -= 38
    top = y - 22
    picture.parts.insert(
        1,
        f'<rect x="{x - 94:g}" y="{top:g}" width="176" height="{bottom - top:g}" rx="8" fill="none" '
        f'stroke="{INK}" stroke-dasharray="4 3"/>',
    )
    picture.text(x + 78, top + 13, words("× {layers} blocks", layers=config.layers), size=10, anchor="end")
    if config.final_norm:
        picture.line((x, y), (x, y - 34), colour=STREAM)
        picture.labelled(x, y - 58, 144, "LayerNorm", NORM, size=11)
        y -= 58
    picture.line((x, y), (x, 80), colour=STREAM)
    picture.labelled(x, 54, 156, words("output: {matrix}, softmax", matrix="W_eᵀ"), size=11)


def residual(words: Words) -> str:
    """Draw the residual stream of GPT-2 small: the additions of its first and of its last block."""
    picture, config = Picture(200), preset("gpt2-small")
    count = 2 * config.layers
    y = 128
    picture.line((66, y), (336, y), colour=STREAM, width=3)
    picture.labelled(35, y - 12, 62, words("embedding"), size=10)
    picture.labelled(366, y - 12, 60, words("output"), size=10)
    for x, number in ((76, 1), (222, config.layers)):
        picture.text(x + 56, 24, words("block {number}", number=number), size=11)
        for shift, part in ((0, "LayerNorm, attention"), (58, "LayerNorm, MLP")):
            left, right = x + shift, x + shift + 44
            picture.line((left, y), (left, 84))
            picture.box(left - 6, 36, 54, 46)
            for line, name in enumerate(words(part).split(", ")):
                picture.text(left + 21, 56 + 15 * line, name, size=9)
            picture.line((right, 84), (right, y - 9))
            picture.plus(right, y)
    picture.text(203, 70, "…", size=18)
    picture.text(
        200,
        164,
        words("{count} additions: 2 in each of {layers} blocks", count=count, layers=config.layers),
        size=11,
    )
    scaled = words("first weights: 1/√{count} = {factor:.3f} as large", count=count, factor=1 / math.sqrt(count))
    picture.text(200, 184, scaled if config.residual_scaling else "", size=11)
    return picture.svg()


def inputs(words: Words) -> str:
    """Draw the four inputs of figure 1, with the tokens that gpt1-mini reads."""
    picture, y = Picture(352), 12.0
    for task, (title, _) in ROWS.items():
        sequences = _sequences(task)
        picture.text(10, y + 12, words(title), size=12, anchor="start")
        y += 20
        middle = y + (len(sequences) * 28 - 6) / 2
        for index, sequence in enumerate(sequences):
            _chips(picture, y, sequence)
            picture.line((308, y + 11), (320, y + 11))
            picture.box(321, y, 20, 22)
            picture.text(331, y + 15, "T", size=11)
            if task != "similarity":
                picture.line((341, y + 11), (356, y + 11))
                picture.box(357, y, 34, 22)
                picture.text(374, y + 15, "W_y", size=11)
            elif index == 0:
                picture.line((341, y + 11), (350, y + 11), (350, middle - 9), arrow=True, colour=INK)
            else:
                picture.line((341, y + 11), (350, y + 11), (350, middle + 9), arrow=True, colour=INK)
            y += 28
        if task == "similarity":
            picture.plus(350, middle)
            picture.line((359, middle), (363, middle), arrow=False)
            picture.box(364, middle - 11, 30, 22)
            picture.text(379, middle + 4, "W_y", size=11)
        y += 8
    picture.text(10, y + 12, words("T: the Transformer, the same weights for all"), size=11, anchor="start")
    picture.text(10, y + 28, words("W_y: the linear layer"), size=11, anchor="start")
    return picture.svg()


def loss(words: Words) -> str:
    """Draw which tokens have a loss: in a window of pre-training, and in an input of fine-tuning."""
    picture = Picture(252)
    tokenizer = hw.load("gpt1-mini").tokenizer
    ids = tokenizer.encode(TEXT)
    read = [tokenizer.decode([token]).strip() for token in ids]
    picture.text(10, 22, words("pre-training: L1 at every token"), anchor="start")
    _losses(picture, 34, read[:-1], [*read[1:]], words)
    sequence = _sequences("entail")[0]
    picture.text(10, 142, words("fine-tuning: L1 before the last token, L2 at the last"), size=11, anchor="start")
    _losses(picture, 154, sequence, sequence[1:], words)
    return picture.svg()


def _losses(picture: Picture, y: float, read: Sequence[str], targets: Sequence[str], words: Words) -> None:
    """Draw a row of tokens and above each what it predicts; a token without a target has the label."""
    picture.text(10, y + 16, words("predicts"), size=9, anchor="start")
    picture.text(10, y + 72, words("reads"), size=9, anchor="start")
    step = (WIDTH - 48 - 6) / len(read)
    for place, token in enumerate(read):
        x = 48 + step * (place + 0.5)
        final = place >= len(targets)
        colour = LOSS if final else STREAM
        picture.box(x - step / 2 + 1, y + 58, step - 2, 22, SPECIAL if token in _SIGNS else BOX)
        picture.text(x, y + 73, _SIGNS.get(token, token), size=9)
        picture.line((x, y + 57), (x, y + 24), colour=colour)
        target = words("label") if final else targets[place]
        picture.text(x, y + 16, _SIGNS.get(target, target), size=9, fill=colour)
        picture.text(x + 2, y + 44, "L2" if final else "L1", size=8, anchor="start", fill=colour)


_SIGNS = {"_start_": "⟨s⟩", "_delimiter_": "$", "_classify_": "⟨e⟩"}


def _chips(picture: Picture, y: float, sequence: Sequence[str]) -> None:
    """Draw a sequence from its start token to its extract token: special tokens, and between them text."""
    runs: list[list[str]] = []
    for token in sequence:
        if token in _SIGNS or not runs or runs[-1][0] in _SIGNS:
            runs.append([])
        runs[-1].append(token)
    narrow = 24.0
    x = 10.0
    for run in runs:
        special = run[0] in _SIGNS
        width = narrow if special else 5.1 * (len(" ".join(run)) + 2)
        picture.box(x, y, width, 22, SPECIAL if special else BOX)
        picture.text(x + width / 2, y + 15, _SIGNS[run[0]] if special else " ".join(run), size=10)
        x += width + 2
    picture.line((x, y + 11), (308, y + 11), arrow=False)


def _sequences(task: str) -> list[list[str]]:
    """Return the sequences of a row as `headwater finetune --set recipe=gpt1` reads it, as tokens."""
    tokenizer = hw.load("gpt1-mini").tokenizer.with_task_tokens()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, f"{task}.jsonl")
        table.write_text(json.dumps(ROWS[task][1]), encoding="utf-8")
        config = FinetuneConfig(task=task, recipe="gpt1")
        shown = show_examples(config, model=Path("gpt1-mini"), train=table, count=1)
    return [[tokenizer.decode([token]).strip() for token in sequence.ids] for sequence in shown[0].sequences]


def pictures() -> dict[Path, str]:
    """Return every picture by its file, in both languages."""

    def english(words: str, **values: object) -> str:
        return words.format(**values)

    def korean(words: str, **values: object) -> str:
        return KOREAN[words].format(**values)

    drawn = {}
    for draw in (block, residual, inputs, loss):
        drawn[FOLDER / f"{draw.__name__}.svg"] = draw(english)
        drawn[FOLDER / f"{draw.__name__}.ko.svg"] = draw(korean)
    return drawn


def main() -> int:
    """Check or write every picture. Return the exit status."""
    status = 0
    for path, svg in pictures().items():
        if sys.argv[1:] == ["--write"]:
            path.write_text(svg, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != svg:
            print(f"{path.name}: python tools/pictures.py --write")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
