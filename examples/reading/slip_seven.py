from headwater_papers.paper_tables import TABLES

print(*TABLES["gpt2-table-3"].columns, sep=", ")
