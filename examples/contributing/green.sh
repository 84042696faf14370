python -m pytest -q tests/corpus/filters/test_shouting.py tests/test_architecture.py
make format
make check
