# As root, once, in a folder with the wheel of Headwater and constraints.txt.
set -eu
useradd --system --home-dir /srv/headwater --create-home headwater
cd /srv/headwater
python3 -m venv 1.0
1.0/bin/pip install -c "$OLDPWD/constraints.txt" "$(ls "$OLDPWD"/headwater-*.whl)[serve]"
mkdir models releases
