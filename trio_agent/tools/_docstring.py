"""What a docstring says of a function and of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Final

import attrs

__all__ = ["Documentation", "first_paragraph", "read_docstring"]

# A line such as "Args:", "Parameters" over dashes, ":param x: ..." or "@param x ...": only such a docstring has
# parts that need a parser, and only then the parser is imported.
_SECTION: Final = re.compile(r"^\s*(?:[A-Z][A-Za-z ]*:\s*$|-{3,}\s*$|[:@][a-z]+)", re.MULTILINE)


@attrs.frozen
class Documentation:
    """A docstring, taken apart."""

    description: str = ""
    parameters: Mapping[str, str] = attrs.field(factory=dict[str, str])


def read_docstring(text: str | None) -> Documentation:
    """Take a docstring apart: Google, NumPy, reStructuredText and Epydoc styles are told apart by themselves.

    The description is what stands before the sections.  What looks like a section and cannot be read
    as one is part of it.
    """
    if text is None or not text.strip():
        return Documentation()
    text = inspect.cleandoc(text)
    if _SECTION.search(text) is None:
        return Documentation(text)
    import docstring_parser

    # Of the styles the one that finds most wins; NumPy's reads anything, so this never fails.
    parsed = docstring_parser.parse(text)
    parameters = {
        param.arg_name.lstrip("*"): inspect.cleandoc(param.description) for param in parsed.params if param.description
    }
    return Documentation((parsed.description or "").strip(), parameters)


def first_paragraph(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(text).split("\n\n", 1)[0].split())
