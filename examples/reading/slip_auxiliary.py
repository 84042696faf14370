# needs the package headwater-papers: pip install ./papers
from headwater.finetuning import FinetuneConfig
from headwater_papers.paper_tables import TABLES

print("λ =", FinetuneConfig().lambda_lm, "in L3 = L2 + λ · L1; --set lambda_lm=0 sets λ = 0, and L3 = L2")
for row in ("full", "no-auxiliary"):
    print(f"{row:13} average {TABLES['gpt1-table-5'].value(row, 'average')}")
