python3 -m venv .venv
. .venv/bin/activate
pip install "$(ls headwater-*.whl)[serve]"
headwater doctor
