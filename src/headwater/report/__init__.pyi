from .html import report, template
from .plots import Draw, Series, line_chart, require_matplotlib, save_plot, thin
from .scores import EXPONENT_FROM
from .training_runs import measured_lines

__all__ = [
    "EXPONENT_FROM",
    "Draw",
    "Series",
    "line_chart",
    "measured_lines",
    "report",
    "require_matplotlib",
    "save_plot",
    "template",
    "thin",
]
