mkdir packages
(cd packages && apt-get download python3.11-doc python-django-doc postgresql-doc-15 sqlite3-doc apache2-doc)
python tools/gather.py recipes/texts/english.toml --data data --packages packages --out text
