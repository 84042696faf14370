pip install -c constraints.txt . ./papers
headwater reproduce --list
