from headwater.model import preset

gpt1, gpt2 = preset("gpt1").parameter_count, preset("gpt2-small").parameter_count
print(f"{gpt2:,} - {gpt1:,} = {gpt2 - gpt1:,}")
rows = (50_257 - 40_478) + (1_024 - 512) + 2  # tokens, positions, gain and bias of the last LayerNorm
print(f"{rows:,} rows of 768: {rows * 768:,}")
