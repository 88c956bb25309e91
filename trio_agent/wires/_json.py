"""Looking at JSON from a server, of which nothing is certain: what has the wrong shape counts as absent."""

from __future__ import annotations

import json
from typing import Any, TypeAlias, cast

__all__ = ["JSONObject", "as_count", "as_list", "as_object", "as_text", "dump", "shorten"]

JSONObject: TypeAlias = dict[str, Any]  # Any: JSON


def as_object(value: object) -> JSONObject:
    """``value`` if it is an object, else an empty one."""
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """``value`` if it is an array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """``value`` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """``value`` if it is a whole number that can be a count, else ``None``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def dump(value: object) -> bytes:
    """JSON in as few bytes as it takes.

    Raises:
      ValueError, TypeError, RecursionError: ``value`` is not JSON.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a surrogate pair cannot be sent as UTF-8, and servers refuse it as an escape: it becomes "?".
    return text.encode("utf-8", "replace")


def shorten(text: str, limit: int) -> str:
    """``text``, or its beginning and an ellipsis if it has more than ``limit`` characters."""
    return text if len(text) <= limit else text[:limit] + "…"
