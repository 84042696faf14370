# needs the package headwater-papers: pip install ./papers
from headwater_papers.paper_tables import TABLES

table = TABLES["gpt2-table-6"]
for name in table.columns:
    own, webtext = table.value("its own training part", name), table.value("WebText", name)
    print(f"{name:12} own {own:5.2f} %, WebText {webtext:5.2f} %", "more" if webtext > own else "")
