"""Sphinx: the documentation as a static site, built without a network, every warning an error (`make docs`)."""

import inspect
import re
import typing
from typing import Any

project = "Headwater"
author = "Headwater"
copyright = "MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
root_doc = "index"
language = "en"
smartquotes = False  # options begin with two dashes

html_theme = "furo"
html_title = "Headwater"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 3
pygments_style = "friendly"
pygments_dark_style = "native"

autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
default_role = "code"  # docstrings are plain text with `code`


def setup(app: Any) -> None:
    """Adapt autodoc to the docstrings."""
    app.connect("autodoc-process-docstring", list_parameters)
    app.connect("autodoc-skip-member", skip_scikit_learn)


def list_parameters(_app: Any, _what: str, _name: str, described: Any, _options: Any, lines: list[str]) -> None:
    """Make a list of each paragraph whose every line begins with `parameter: ` or continues such a line."""
    overloaded = inspect.isfunction(described) and typing.get_overloads(described)
    defaults = inspect.signature(described).parameters if overloaded else {}  # overloads do not show them

    def field(match: re.Match[str]) -> str:
        default = f"(default `{defaults[match[1]].default!r}`) " if match[1] in defaults else ""
        return f":param {match[1]}: {default}"

    paragraphs = [part.splitlines() for part in "\n".join(lines).split("\n\n")]
    for paragraph in paragraphs:
        if paragraph and all(re.match(r"[a-z_]+: | ", line) for line in paragraph) and paragraph[0][0] != " ":
            paragraph[:] = [re.sub(r"^([a-z_]+): ", field, line) for line in paragraph]
    lines[:] = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs).split("\n")


def skip_scikit_learn(_app: Any, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Leave out what scikit-learn adds to the estimators: its own documentation describes it."""
    return skip or (getattr(member, "__module__", None) or "").startswith("sklearn.")
