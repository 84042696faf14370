"""From runs and results to one page that needs nothing else: tables, plots, HTML."""

from headwater.report.html import report

__all__ = ["report"]
