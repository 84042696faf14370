"""The command line: one file a command group, heavy imports inside the command that needs them.

The public names are for commands of other distributions, as `plugins` finds them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
