# needs the package headwater-papers: pip install ./papers
from headwater_papers.paper_tables import TABLES

for column in ("CBT-CN", "CBT-NE"):
    print(column, TABLES["gpt2-table-3"].value("1542M", column))
