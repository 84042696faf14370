"""Write runs and results to one self-contained HTML page with tables and plots."""

from headwater.report.html import report

__all__ = ["report"]
