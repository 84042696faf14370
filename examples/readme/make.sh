make quickstart   # a GPT-2 trained on this machine, its samples, scores and a report, in minutes
make test         # the tests
