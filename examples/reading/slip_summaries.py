# needs the package headwater-papers: pip install ./papers
from headwater_papers.paper_tables import TABLES

for system in ("Lede-3", "GPT-2 TL;DR:", "Random-3"):
    print(f"{system:13} mean of ROUGE-1, -2 and -L: {TABLES['gpt2-table-4'].value(system, 'average'):.2f}")
