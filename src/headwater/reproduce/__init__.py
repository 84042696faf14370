"""Run the papers' experiments again: one module an experiment, one TOML file a scale, one page of results each."""

from headwater.reproduce.reproduction import reproduce

__all__ = ["reproduce"]
