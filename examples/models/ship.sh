python tools/ship.py last gpt2-mini --texts tools/texts/english.toml --data data --work work
