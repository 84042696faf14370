import headwater as hw

text = "The river bends; it's wide here.\n" * 50
tokenizer = hw.Tokenizer.train([text], vocab_size=300)

ids = tokenizer.encode("The river is wide.")
assert tokenizer.decode(ids) == "The river is wide."

# Many texts at once: one array of ids, and the start of each text in it.
array, offsets = tokenizer.encode_array(["The river", "it's wide here."])
assert array[offsets[1] : offsets[2]].tolist() == tokenizer.encode("it's wide here.")

# The name of a special token is plain text, unless you allow special tokens.
assert tokenizer.end_of_text not in tokenizer.encode("<|endoftext|>")
assert tokenizer.encode("<|endoftext|>", allow_special=True) == [tokenizer.end_of_text]

# Fine-tuning adds three tokens after the vocabulary.
tuned, size = tokenizer.with_task_tokens(), tokenizer.vocabulary_size
assert tuned.task_tokens == (size, size + 1, size + 2)  # start, delimiter, extract
