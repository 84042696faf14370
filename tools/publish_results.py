"""Put the results of `headwater reproduce` where the documentation shows them: pages, figures, numbers, no models.

python tools/publish_results.py reproduction docs/results
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

PUBLISHED = {".json", ".md", ".png", ".svg"}


def main() -> int:
    """Replace the experiments in the second folder by those in the first; others that lie there stay."""
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    source, target = map(Path, sys.argv[1:])
    found = sorted(path.parent for path in source.glob("*/results.json"))
    if not found:
        print(f"{source} holds no results")
        return 1
    for folder in found:
        shutil.rmtree(target / folder.name, ignore_errors=True)
        (target / folder.name).mkdir(parents=True)
        for path in folder.iterdir():
            if path.suffix in PUBLISHED:
                shutil.copyfile(path, target / folder.name / path.name)
    from headwater.reproduce.page import write_index

    write_index(target)
    print(f"{len(found)} experiments in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
