cp examples/contributing/test_shouting.py tests/corpus/filters/
! python -m pytest -q tests/corpus/filters/test_shouting.py   # fails: there is no such step yet
