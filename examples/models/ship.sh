python tools/ship.py last gpt2-mini --texts recipes/texts/english.toml --data data --work work
