"""`python -m headwater` is the `headwater` command."""

import sys

from headwater.cli.main import main

sys.exit(main())
