# needs the package headwater-papers: pip install ./papers
from headwater_papers.paper_tables import TABLES

for name, table in TABLES.items():
    if "SST-2" in " ".join(table.columns):
        print(f"{name}:", "; ".join(table.rows))
