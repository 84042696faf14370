"""256 bytes spell every text; the code points of Unicode would need a row of the embedding each."""

import unicodedata

import headwater as hw

for character in ("a", "é", "강", "🌊"):
    print(character, f"code point {ord(character):,}", "bytes", list(character.encode()))
points = sum(unicodedata.category(chr(point)) not in {"Cn", "Co", "Cs"} for point in range(0x110000))
print("assigned code points: more than 130,000:", points > 130_000)

for name in ("gpt2-mini", "gpt2-mini-ko"):
    tokenizer = hw.load(name).tokenizer
    ids = tokenizer.encode("강물이 흐른다 🌊")
    print(name, len(ids), "tokens:", [tokenizer.token_bytes(token) for token in ids][:4], "…")
    print("decoded again:", tokenizer.decode(ids))
