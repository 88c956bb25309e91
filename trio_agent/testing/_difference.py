"""Where two JSON values differ first, as a line for a person.  Knows nothing of what they stand for."""

from __future__ import annotations

import json
from typing import Any, Final, cast

__all__ = ["first_difference"]

SHOWN: Final = 120
"""Characters of a value that are shown."""

BEFORE: Final = 30
"""Characters in front of the place where two texts part that are shown."""


def first_difference(expected: object, got: object, path: str = "") -> str | None:
    """``path: expected ..., got ...`` of the first place where the values differ; ``None`` if they are equal.

    Objects are compared key by key in the order of ``expected``, whatever the order of ``got``.

    Args:
      path: where the two stand, for the text.
    """
    one, other = expected, got
    if isinstance(expected, dict) and isinstance(got, dict):
        return _of_objects(cast("dict[str, Any]", expected), cast("dict[str, Any]", got), path)
    if isinstance(expected, list) and isinstance(got, list):
        return _of_lists(cast("list[object]", expected), cast("list[object]", got), path)
    if _is_equal(one, other):
        return None
    if isinstance(expected, str) and isinstance(got, str):
        return f"{path or 'the text'}: {_texts(expected, got)}"
    return f"{path or 'the value'}: expected {_shown(one)}, got {_shown(other)}"


def _of_objects(expected: dict[str, Any], got: dict[str, Any], path: str) -> str | None:  # Any: JSON
    for key, value in expected.items():
        place = f"{path}.{key}" if path else key
        if key not in got:
            return f"{place}: expected {_shown(value)}, got nothing"
        found = first_difference(value, got[key], place)
        if found is not None:
            return found
    for key, value in got.items():
        if key not in expected:
            return f"{path}.{key}: expected nothing, got {_shown(value)}".lstrip(".")
    return None


def _is_equal(one: object, other: object) -> bool:
    """Whether two values that are no containers are the same; ``True`` is not 1."""
    return type(one) is type(other) and one == other


def _of_lists(expected: list[Any], got: list[Any], path: str) -> str | None:  # Any: JSON
    for index, (value, other) in enumerate(zip(expected, got, strict=False)):
        found = first_difference(value, other, f"{path}[{index}]")
        if found is not None:
            return found
    both = min(len(expected), len(got))
    if len(expected) > both:
        return f"{path}[{both}]: expected {_shown(expected[both])}, got nothing"
    if len(got) > both:
        return f"{path}[{both}]: expected nothing, got {_shown(got[both])}"
    return None


def _texts(expected: str, got: str) -> str:
    """Two texts from a little before the place where they part."""
    pairs = enumerate(zip(expected, got, strict=False))
    common = next((place for place, (one, other) in pairs if one != other), min(len(expected), len(got)))
    start = max(0, common - BEFORE)
    if start == 0:
        return f"expected {_shown(expected)}, got {_shown(got)}"
    return f"from character {start:,} on expected {_shown(expected[start:])}, got {_shown(got[start:])}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
