pip install -q --no-deps --no-build-isolation examples/extending/command
headwater count "The river"
