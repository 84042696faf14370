from .reproduction import reproduce

__all__ = ["reproduce"]
