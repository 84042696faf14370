headwater tokenizer train corpus --vocab-size 4096 --out tokenizer
headwater tokenizer encode --tokenizer tokenizer --show "The river bends here, slowly."
