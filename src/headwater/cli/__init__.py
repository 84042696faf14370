"""The command line: one file a command group, heavy imports inside the command that needs them."""
