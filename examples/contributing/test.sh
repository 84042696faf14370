cp examples/contributing/test_shouting.py tests/corpus/
! python -m pytest -q tests/corpus/test_shouting.py   # fails: there is no such step yet
