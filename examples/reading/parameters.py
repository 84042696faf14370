"""How many parameters the models have: counted, not taken from the papers' labels."""

from headwater.model import preset

for name in ("gpt1", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"):
    config = preset(name)
    print(f"{name:11} {config.layers:2} layers, width {config.width:5,}: {config.parameter_count:13,} parameters")
