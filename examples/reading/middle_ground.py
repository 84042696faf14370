"""Characters, words, and BPE between them: how long a text becomes, and what is unknown."""

import re

import headwater as hw

training = "The river runs to the sea. The sea is never full. The miller lives by the river and sees the sea."
text = "The miller overlooks the seaside."
tokenizer = hw.load("gpt2-mini").tokenizer
words = set(re.findall(r"\w+|\S", training))
of_words = [word if word in words else "<UNK>" for word in re.findall(r"\w+|\S", text)]
print(f"characters: {len(text)} tokens, of a vocabulary of tens")
print(f"BPE:        {len(tokenizer.encode(text))} tokens", [tokenizer.decode([t]) for t in tokenizer.encode(text)])
print(f"words:      {len(of_words)} tokens", of_words)
