"""`python -m headwater_papers.verification` runs `verify`."""

import sys

from headwater_papers.verification.verify import main

sys.exit(main())
