# needs the package headwater-papers: pip install ./papers
import headwater as hw
from headwater_papers.paper_tables import TABLES

tokenizer = hw.load("gpt2-mini").tokenizer
print("special tokens:", list(tokenizer.special_tokens))
print("<UNK> is plain text:", [tokenizer.decode([token]) for token in tokenizer.encode("<UNK>")])
webtext = TABLES["webtext"]
times = webtext.value("occurrences of the string `<UNK>`", "amount")
print(f"in WebText: {times:.0f} times in {webtext.value('bytes of text', 'amount'):,.0f} bytes")
