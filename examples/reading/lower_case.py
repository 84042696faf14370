"""A model of lower-cased text cannot write some texts: what comes back from the tokens of GPT-1 and GPT-2."""

import headwater as hw

text = "Polish the US map - it was printed in Reading."
for name in ("gpt1-mini", "gpt2-mini"):
    tokenizer = hw.load(name).tokenizer
    print(f"{name}: {tokenizer.decode(tokenizer.encode(text))!r}")
same = hw.load("gpt1-mini").tokenizer
print("to GPT-1, polish is Polish:", same.encode("polish the us map") == same.encode("Polish the US map"))
