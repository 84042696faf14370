"""Sphinx: the documentation as a static site, built without a network, every warning an error (`make docs`)."""

project = "Headwater"
author = "Headwater"
copyright = "MIT licence"

extensions = ["myst_parser"]
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
