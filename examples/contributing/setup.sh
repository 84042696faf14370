make check      # format, lint, types, and everything that is generated
make test       # the quick tests, in minutes
make test-all   # every test: faults, fuzzing seeds, wheels, peers
make docs       # the documentation as a site; warnings are errors
make format     # format the code, and write everything that is generated
