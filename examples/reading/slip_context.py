ids = list(range(512))  # a sequence of 512 tokens
seen = [ids[:place] for place in range(1, len(ids))]  # what the prediction of each later token sees
print(len(seen), "predictions; the last one sees", len(seen[-1]), "tokens")
