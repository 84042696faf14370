. .venv/bin/activate
headwater --version
