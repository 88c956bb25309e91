"""Where a line of a test stands, as an explorer names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any


def line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the one line of ``function`` that has ``text`` in it."""
    lines, first = inspect.getsourcelines(function)
    found = [first + number for number, line in enumerate(lines) if text in line]
    assert len(found) == 1, f"{text!r} stands in {len(found)} lines of {function.__qualname__}"
    return found[0]


def place_of(function: Callable[..., Any], text: str) -> str:
    """How an explorer names the place of that line."""
    path = Path(inspect.getsourcefile(function) or "")
    return f"{function.__qualname__} ({path.parent.name}/{path.name}:{line_of(function, text)})"
