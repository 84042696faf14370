import headwater as hw
from headwater.evaluation import DETOKENIZERS

tokenizer, text = hw.load("gpt2-mini").tokenizer, "I do n't know , said the miller ."
print("BPE and back is the same text:", tokenizer.decode(tokenizer.encode(text)) == text)
print("de-tokenized:", DETOKENIZERS["cbt"].detokenize(text))
