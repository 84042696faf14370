from headwater.corpus import LinksConfig

print("a link is kept for a score of at least", LinksConfig().minimum_score)
