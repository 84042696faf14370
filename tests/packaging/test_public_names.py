"""The page of the public names describes each of them."""

from __future__ import annotations

import public_names


def test_every_public_name_is_described() -> None:
    names = {
        (folder.name, name): text
        for folder in public_names.packages()
        for name, text in public_names.public(folder).items()
    }
    assert [name for name, text in names.items() if not text] == []
