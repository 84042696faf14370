headwater tokenizer train corpus --vocab-size 4096 --out tokenizer
headwater tokenizer encode --tokenizer tokenizer --json "The river bends here, slowly."
