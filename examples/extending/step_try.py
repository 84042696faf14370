from pathlib import Path

from headwater_shouting import Shouting

from headwater.corpus import build_corpus, load_recipe, make_steps, read_documents

config = load_recipe("plain")
build_corpus(["texts/"], Path("calmer"), config, steps=[Shouting(0.3), *make_steps(config)])
assert [document.source for document in read_documents(Path("calmer"))] == ["texts/calm.txt"]
