"""How the documentation is built: ``tox -e docs``, where a reference that leads nowhere is an error."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

project = "trio_agent"
author = "the trio_agent authors"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "_facades"]
exclude_patterns = ["_build", "newsfragments"]
nitpicky = True

html_theme = "furo"
html_title = "trio_agent"
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
