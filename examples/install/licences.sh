pip-licenses --from=mixed --order=license
