# From a dump of Reddit submissions to tokens. Fetching uses the network; everything else does not.
headwater corpus links RS_2017-*.zst --out links
headwater corpus fetch links --out pages --set contact=you@example.com
headwater corpus build pages --recipe webtext --workers 8 --out corpus
headwater corpus stats corpus
headwater tokenizer train corpus --vocab-size 50257 --out tokenizer
headwater pack corpus --tokenizer tokenizer --out tokens
