HEADWATER_FAULTS_KILLS=300 pytest -q tests/faults/test_kills.py
HEADWATER_FAULTS_FLIPS=12 pytest -q tests/faults/test_mutations.py   # flipped bits in each file
pytest -q tests/faults/test_disturbed.py tests/faults/test_hostile_input.py tests/faults/test_power_cut.py
python tests/fuzz/fuzz.py html --seconds 600   # needs atheris; tests/fuzz/seeds has a folder for each parser
HEADWATER_SOAK_SECONDS=300 pytest -s tests/faults/test_soak.py tests/faults/test_upgrades.py
