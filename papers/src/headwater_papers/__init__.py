"""Run the papers' experiments again: a module and a page for each experiment, a TOML file for each scale."""

from headwater_papers.reproduction import reproduce

__all__ = ["reproduce"]
