from .html import report, template
from .plots import Series, line_chart, thin
from .scores import EXPONENT_FROM
from .training_runs import measured_lines

__all__ = [
    "EXPONENT_FROM",
    "Series",
    "line_chart",
    "measured_lines",
    "report",
    "template",
    "thin",
]
