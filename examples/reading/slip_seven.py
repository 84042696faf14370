# needs the package headwater-papers: pip install ./papers
from headwater_papers.paper_tables import TABLES

print(*TABLES["gpt2-table-3"].columns, sep=", ")
