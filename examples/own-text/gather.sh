headwater corpus build my_texts/ --out corpus
headwater corpus stats corpus
