"""Why merges stop where the kind of character changes: `dog.`, `dog!` and `dog?` would take a token each."""

import re
from collections import Counter

from merges import learn

text = " Your dog. My dog! Which dog? The cat. Our dog. A dog! This dog? A cat. One dog. No dog! Is it a dog?"
for rule, pattern in (("split at spaces only", r" \S+"), ("split at categories too", r" \w+|[^\w\s]+")):
    words = Counter(re.findall(pattern, text))
    tokens = [token for token, _, _ in learn(words, merges=6)]
    print(f"{rule:24}", tokens)
