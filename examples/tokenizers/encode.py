import headwater as hw

text = "The river bends; it's wide here.\n" * 50
tokenizer = hw.Tokenizer.train([text], vocab_size=300)

ids = tokenizer.encode("The river is wide.")
assert tokenizer.decode(ids) == "The river is wide."

# Much text at once: one array of ids, and where each text begins in it.
array, offsets = tokenizer.encode_array(["The river", "it's wide here."])
assert array[offsets[1] : offsets[2]].tolist() == tokenizer.encode("it's wide here.")

# A special token in somebody's text stays text, unless you allow it.
assert tokenizer.end_of_text not in tokenizer.encode("<|endoftext|>")
assert tokenizer.encode("<|endoftext|>", allow_special=True) == [tokenizer.end_of_text]

# What fine-tuning adds: three rows after the vocabulary.
tuned, size = tokenizer.with_task_tokens(), tokenizer.vocabulary_size
assert (tuned.start, tuned.delimiter, tuned.extract) == (size, size + 1, size + 2)
