"""Write a GPT into a spreadsheet: width 4, one head, one block, eight words.

    python examples/pencil.py pencil.xlsx

Words, settings and weights are typed. Everything else is a formula: embeddings, attention, MLP, loss, gradients,
one step of Adam with decoupled decay, and the loss after it. Change a cell, and all of it follows.
"""

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from openpyxl import Workbook
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter

WORDS = ["the", "river", "runs", "to", "sea", "a", "boat", "."]
SENTENCE = ["the", "river", "runs", "to", "the", "sea"]
SETTINGS = {"learning rate": 0.05, "decay": 0.1, "beta 1": 0.9, "beta 2": 0.999, "epsilon": 1e-8}
TIME, WIDTH = len(SENTENCE) - 1, 4
# Rows and columns of each parameter. A matrix W of y = x W + b has a row for each number of x. The third LayerNorm
# is the one after the last block.
SHAPES = {
    "tokens": (len(WORDS), WIDTH),
    "positions": (TIME, WIDTH),
    **{f"norm_{n} {part}": (1, WIDTH) for n in (1, 2, 3) for part in ("gain", "bias")},
    "query weight": (WIDTH, WIDTH),
    "key weight": (WIDTH, WIDTH),
    "value weight": (WIDTH, WIDTH),
    "projection weight": (WIDTH, WIDTH),
    "expand weight": (WIDTH, 4 * WIDTH),
    "contract weight": (4 * WIDTH, WIDTH),
    **{f"{name} bias": (1, WIDTH) for name in ("query", "key", "value", "projection", "contract")},
    "expand bias": (1, 4 * WIDTH),
}
Formula = Callable[[int, int], str]


@dataclass(frozen=True)
class Block:
    """A matrix on a sheet: `x[i, j]` is the address of one cell, `row` and `column` are ranges."""

    sheet: str
    top: int
    rows: int
    columns: int

    def __getitem__(self, place: tuple[int, int]) -> str:
        return f"'{self.sheet}'!{get_column_letter(place[1] + 2)}{self.top + place[0]}"

    def row(self, i: int) -> str:
        return f"{self[i, 0]}:{self[i, self.columns - 1].rpartition('!')[2]}"

    def column(self, j: int) -> str:
        return f"{self[0, j]}:{self[self.rows - 1, j].rpartition('!')[2]}"


class Sheet:
    """A sheet that is written from the top down."""

    def __init__(self, book: Workbook, name: str) -> None:
        self.page, self.next = book.create_sheet(name), 1
        self.page.column_dimensions["A"].width = 22

    def put(
        self,
        name: str,
        rows: int,
        columns: int,
        cell: Callable[[int, int], object],
        labels: Iterable[str] = (),
    ) -> Block:
        """Write a matrix under its name; a text that `cell` returns is a formula."""
        self.page.cell(self.next, 1, name).font = Font(bold=True)
        for i in range(rows):
            for j in range(columns):
                value = cell(i, j)
                written = f"={value}" if isinstance(value, str) else value
                self.page.cell(self.next + 1 + i, j + 2, written).number_format = "0.0000"
        for i, label in enumerate(labels):
            self.page.cell(self.next + 1 + i, 1, label)
        block = Block(self.page.title, self.next + 1, rows, columns)
        self.next += rows + 2
        return block

    def parameters(self, cell: Callable[[str, int, int], object]) -> dict[str, Block]:
        """Write a matrix of each parameter's shape, at the same place on every sheet."""
        return {name: self.put(name, *shape, partial(cell, name)) for name, shape in SHAPES.items()}


def linear(x: Block, w: dict[str, Block], name: str) -> Formula:
    """y = x W + b."""
    weight, bias = w[f"{name} weight"], w[f"{name} bias"]
    return lambda i, j: f"MMULT({x.row(i)},{weight.column(j)})+{bias[0, j]}"


def norm(sheet: Sheet, name: str, x: Block, w: dict[str, Block], f: dict[str, Block]) -> Block:
    """LayerNorm; its deviations and what it has before gain and bias are needed by the gradient."""
    deviation = f[f"{name} deviation"] = sheet.put(
        f"{name}: √(variance + ε)", TIME, 1, lambda i, j: f"SQRT(VARP({x.row(i)})+0.00001)"
    )
    normal = f[f"{name} normal"] = sheet.put(
        f"{name}: normal", TIME, WIDTH, lambda i, j: f"({x[i, j]}-AVERAGE({x.row(i)}))/{deviation[i, 0]}"
    )
    gain, bias = w[f"{name} gain"], w[f"{name} bias"]
    return sheet.put(name, TIME, WIDTH, lambda i, j: f"{normal[i, j]}*{gain[0, j]}+{bias[0, j]}")


def forward(sheet: Sheet, w: dict[str, Block], read: Block, target: Block) -> dict[str, Block]:
    """Write the forward pass: from the ids of the words to the loss of each prediction."""
    f: dict[str, Block] = {}
    put, tokens, inside = sheet.put, w["tokens"], (TIME, 4 * WIDTH)
    h0 = put(
        "token + position",
        TIME,
        WIDTH,
        lambda i, j: f"INDEX({tokens.column(j)},{read[i, 0]})+{w['positions'][i, j]}",
    )
    x = f["norm_1"] = norm(sheet, "norm_1", h0, w, f)
    query, key, value = (put(name, TIME, WIDTH, linear(x, w, name)) for name in ("query", "key", "value"))
    e = put(
        "exp(query · key / √4)",
        TIME,
        TIME,
        lambda i, j: f"EXP(SUMPRODUCT({query.row(i)},{key.row(j)})/2)" if j <= i else 0,  # later words: 0
    )
    attention = put("attention", TIME, TIME, lambda i, j: f"{e[i, j]}/SUM({e.row(i)})")
    attended = put("attended", TIME, WIDTH, lambda i, j: f"MMULT({attention.row(i)},{value.column(j)})")
    projected = put("projection", TIME, WIDTH, linear(attended, w, "projection"))
    h1 = put("h1 = h0 + projection", TIME, WIDTH, lambda i, j: f"{h0[i, j]}+{projected[i, j]}")
    x = f["norm_2"] = norm(sheet, "norm_2", h1, w, f)
    expanded = put("expand", *inside, linear(x, w, "expand"))
    tanh = put(
        "tanh(√(2/π)(x + 0.044715x³))",
        *inside,
        lambda i, j: f"TANH(SQRT(2/PI())*({expanded[i, j]}+0.044715*{expanded[i, j]}^3))",
    )
    gelu = put("gelu", *inside, lambda i, j: f"0.5*{expanded[i, j]}*(1+{tanh[i, j]})")
    contracted = put("contract", TIME, WIDTH, linear(gelu, w, "contract"))
    h2 = put("h2 = h1 + contract", TIME, WIDTH, lambda i, j: f"{h1[i, j]}+{contracted[i, j]}")
    x = f["norm_3"] = norm(sheet, "norm_3", h2, w, f)
    size = (TIME, len(WORDS))
    logits = put("logits", *size, lambda i, j: f"SUMPRODUCT({x.row(i)},{tokens.row(j)})")
    e_logits = put("exp(logits)", *size, lambda i, j: f"EXP({logits[i, j]})")
    p = put("P of each word", *size, lambda i, j: f"{e_logits[i, j]}/SUM({e_logits.row(i)})")
    loss = put("loss: -ln P(next word)", TIME, 1, lambda i, j: f"-LN(INDEX({p.row(i)},{target[i, 0]}))")
    named = {"query": query, "key": key, "value": value, "attention": attention, "attended": attended}
    return f | named | {"expand": expanded, "tanh": tanh, "gelu": gelu, "P": p, "loss": loss}


def backward(
    sheet: Sheet, w: dict[str, Block], f: dict[str, Block], read: Block, target: Block
) -> dict[str, Formula]:
    """Write the gradients of the forward pass's matrices, last first; return a formula for each parameter's."""
    g: dict[str, Formula] = {}
    put, tokens = sheet.put, w["tokens"]

    def linear_back(name: str, x: Block, dy: Block) -> Block:
        weight = w[f"{name} weight"]
        g[f"{name} weight"] = lambda i, j: f"SUMPRODUCT({x.column(i)},{dy.column(j)})"
        g[f"{name} bias"] = lambda i, j: f"SUM({dy.column(j)})"
        return put(f"d {name}'s input", TIME, weight.rows, lambda i, j: f"SUMPRODUCT({dy.row(i)},{weight.row(j)})")

    def norm_back(name: str, dy: Block) -> Block:
        normal, deviation, gain = f[f"{name} normal"], f[f"{name} deviation"], w[f"{name} gain"]
        g[f"{name} gain"] = lambda i, j: f"SUMPRODUCT({dy.column(j)},{normal.column(j)})"
        g[f"{name} bias"] = lambda i, j: f"SUM({dy.column(j)})"
        dn = put(f"d {name} normal", TIME, WIDTH, lambda i, j: f"{dy[i, j]}*{gain[0, j]}")
        return put(
            f"d {name}'s input",
            TIME,
            WIDTH,
            lambda i, j: (
                f"({dn[i, j]}-AVERAGE({dn.row(i)})-{normal[i, j]}*SUMPRODUCT({dn.row(i)},{normal.row(i)})/{WIDTH})"
                f"/{deviation[i, 0]}"
            ),
        )

    d_logits = put(
        "d logits = (P - 1 if next word) / 5",
        TIME,
        len(WORDS),
        lambda i, j: f"({f['P'][i, j]}-IF({target[i, 0]}={j + 1},1,0))/{TIME}",
    )
    dx = put("d norm_3", TIME, WIDTH, lambda i, j: f"MMULT({d_logits.row(i)},{tokens.column(j)})")
    d2 = norm_back("norm_3", dx)
    d_gelu = linear_back("contract", f["gelu"], d2)
    x, tanh = f["expand"], f["tanh"]
    slope = "SQRT(2/PI())*(1+3*0.044715*{0}^2)"
    d_expand = put(
        "d expand",
        TIME,
        4 * WIDTH,
        lambda i, j: (
            f"{d_gelu[i, j]}*(0.5*(1+{tanh[i, j]})+0.5*{x[i, j]}*(1-{tanh[i, j]}^2)*{slope.format(x[i, j])})"
        ),
    )
    through = norm_back("norm_2", linear_back("expand", f["norm_2"], d_expand))
    d1 = put("d h1", TIME, WIDTH, lambda i, j: f"{d2[i, j]}+{through[i, j]}")
    d_attended = linear_back("projection", f["attended"], d1)
    attention, value = f["attention"], f["value"]
    da = put("d attention", TIME, TIME, lambda i, j: f"SUMPRODUCT({d_attended.row(i)},{value.row(j)})")
    ds = put(
        "d (query · key)",
        TIME,
        TIME,
        lambda i, j: f"{attention[i, j]}*({da[i, j]}-SUMPRODUCT({attention.row(i)},{da.row(i)}))/2",
    )
    parts = {
        "query": lambda i, j: f"MMULT({ds.row(i)},{f['key'].column(j)})",
        "key": lambda i, j: f"SUMPRODUCT({ds.column(i)},{f['query'].column(j)})",
        "value": lambda i, j: f"SUMPRODUCT({attention.column(i)},{d_attended.column(j)})",
    }
    inputs = [linear_back(n, f["norm_1"], put(f"d {n}", TIME, WIDTH, cell)) for n, cell in parts.items()]
    dx = put("d norm_1", TIME, WIDTH, lambda i, j: "+".join(part[i, j] for part in inputs))
    through = norm_back("norm_1", dx)
    d0 = put("d h0", TIME, WIDTH, lambda i, j: f"{d1[i, j]}+{through[i, j]}")
    g["positions"] = lambda i, j: d0[i, j]
    # A word's row is read where the word is, and is the output's row of the word everywhere.
    g["tokens"] = lambda i, j: (
        f"SUMIF({read.column(0)},{i + 1},{d0.column(j)})+SUMPRODUCT({d_logits.column(i)},{f['norm_3'].column(j)})"
    )
    return g


def pencil() -> Workbook:
    """Return the workbook."""
    book, draw = Workbook(), random.Random(1)
    book.remove(book.active)
    text = Sheet(book, "Text")
    losses = text.put("loss", 2, 1, lambda i, j: 0, ("before the step", "after the step"))
    words = text.put("words", len(WORDS), 1, lambda i, j: 0, (f"id {i + 1}" for i in range(len(WORDS))))
    sentence = text.put("sentence: its last word is only predicted", len(SENTENCE), 1, lambda i, j: 0)
    for block, typed in ((words, WORDS), (sentence, SENTENCE)):
        for i, word in enumerate(typed):
            text.page.cell(block.top + i, 2, word)
    settings = text.put("settings", len(SETTINGS), 1, lambda i, j: [*SETTINGS.values()][i], SETTINGS)
    rate, decay, beta_1, beta_2, epsilon = (settings[i, 0] for i in range(5))
    read = text.put("id of the word read", TIME, 1, lambda i, j: f"MATCH({sentence[i, 0]},{words.column(0)},0)")
    target = text.put("id of the next", TIME, 1, lambda i, j: f"MATCH({sentence[i + 1, 0]},{words.column(0)},0)")

    def drawn(name: str, i: int, j: int) -> float:
        return round(draw.gauss(0, 0.5), 2) if SHAPES[name][0] > 1 else float(name.endswith("gain"))

    weights = Sheet(book, "Weights").parameters(drawn)
    f = forward(Sheet(book, "Forward"), weights, read, target)
    g = backward(Sheet(book, "Backward"), weights, f, read, target)
    gradients = Sheet(book, "Gradients").parameters(lambda name, i, j: g[name](i, j))
    m = Sheet(book, "Adam m").parameters(lambda name, i, j: f"(1-{beta_1})*{gradients[name][i, j]}")
    v = Sheet(book, "Adam v").parameters(lambda name, i, j: f"(1-{beta_2})*{gradients[name][i, j]}^2")

    def stepped(name: str, i: int, j: int) -> str:
        w = weights[name][i, j]
        kept = f"{w}*(1-{rate}*{decay})" if SHAPES[name][0] > 1 else w  # no decay of gains and biases
        return f"{kept}-{rate}*({m[name][i, j]}/(1-{beta_1}))/(SQRT({v[name][i, j]}/(1-{beta_2}))+{epsilon})"

    new = Sheet(book, "New weights").parameters(stepped)
    after = forward(Sheet(book, "After"), new, read, target)
    for i, matrices in enumerate((f, after)):
        text.page.cell(losses.top + i, 2, f"=AVERAGE({matrices['loss'].column(0)})")
    return book


if __name__ == "__main__":
    pencil().save(sys.argv[1] if len(sys.argv) > 1 else "pencil.xlsx")
