headwater corpus build text/documentation --recipe webtext --out documentation \
    --set wikipedia=false --set near_duplicates=true
headwater corpus build text/books --recipe books --out books
headwater corpus build text/prose --out prose \
    --set language=true --set near_duplicates=true
headwater corpus build documentation books prose --out corpus
headwater tokenizer train corpus --kind gpt2 --vocab-size 4096 --out tokenizer
headwater pack corpus --tokenizer tokenizer --out tokens --validation 0.01
