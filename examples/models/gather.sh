mkdir packages
(cd packages && apt-get download python3.11-doc python-django-doc postgresql-doc-15 sqlite3-doc apache2-doc)
for name in $(sed -n 's/^repository = "\(.*\)"/\1/p' recipes/texts/english.toml | sort -u); do
    git clone --bare "https://github.com/$name" "repositories/$name"
done
python tools/gather.py recipes/texts/english.toml --data data --packages packages --out text
