patch -p1 < examples/extending/preset.patch
cp examples/extending/gpt2-atto.toml src/headwater/recipes/
