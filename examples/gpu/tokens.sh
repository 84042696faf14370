headwater corpus build fineweb-edu/ --recipe plain --out corpus --workers 16
headwater pack corpus --tokenizer gpt2 --out tokens --validation 0.01
