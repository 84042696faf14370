"""Print the lowest declared version of each dependency as `name==version`, for an audit of known advisories."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def floors() -> list[str]:
    """Return a line for each dependency of a user: those of every extra but `dev` and `docs`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = project["dependencies"] + [
        line for name in extras.keys() - {"dev", "docs"} for line in extras[name]
    ]
    found = {m[1]: m[2] for line in declared if (m := re.match(r"([\w.-]+)>=([\w.]+)", line))}
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    print("\n".join(floors()))
