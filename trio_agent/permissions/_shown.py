"""What others wrote, shown to a person who decides: nothing of it moves the cursor, and nothing of it is hidden.

Pure.
"""

from __future__ import annotations

import json
import textwrap
import unicodedata

from .._messages import parse_object

__all__ = ["begun", "harmless", "indented", "one_line", "pretty"]


def harmless(text: str, kept: str = "\n") -> str:
    """The text with an escape for each character that is not drawn as itself.

    Such are control characters, those that turn the direction of writing, and those that cannot be seen.

    Args:
      kept: characters that stay, whatever they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept or unicodedata.category(c) == "Zs" else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    # As JSON writes it, except for DEL, which JSON leaves alone.
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def one_line(text: str, limit: int) -> str:
    """The text on one line of at most ``limit`` characters; blanks and line ends are one blank each."""
    # Cut before all else, so that a text of any length costs the same.
    head = text[: 8 * limit]
    short = harmless(" ".join(head.split()), "")
    return short if len(short) <= limit and head == text else short[: limit - 1] + "…"


def pretty(arguments: str) -> str:
    """JSON text laid out over several lines; what is no JSON object, on one line as it is."""
    try:
        value = parse_object(arguments)
    except ValueError:
        return harmless(arguments, "")
    return harmless(json.dumps(value, ensure_ascii=False, indent=2))


def begun(text: str, lines: int, characters: int) -> str:
    """The beginning of a text: so many whole lines and characters at most."""
    return "\n".join(text[:characters].split("\n")[:lines])


def indented(text: str) -> str:
    """The text with two blanks before each line, so that no line of it looks like one of ours."""
    return textwrap.indent(text, "  ", lambda line: True)
