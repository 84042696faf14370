"""The papers run again: one file an experiment, one recipe a scale, one page a result."""

from headwater.reproduce.reproduction import reproduce

__all__ = ["reproduce"]
