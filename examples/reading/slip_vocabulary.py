from headwater.model import preset

print(256 + 50_000 + 1, "=", preset("gpt2-small").vocabulary)
