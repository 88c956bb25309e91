"""Events as lines of JSON: facts in the form that a log gives them, and observations in the same.

Pure.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_args

import attrs

from .._errors import describe
from .._events import Event
from .._facts import kind_of
from .._messages import Block

__all__ = ["event_line"]

_BLOCKS: Final = get_args(Block)
_MAX_DEPTH: Final = 100
_MAX_BITS: Final = 10_000


def event_line(event: Event) -> str:
    """One event as one line: ``kind``, ``seq``, ``time``, ``run``, ``turn``, then the event's own fields.

    ``path`` stands there for the run of a sub-agent.  Binary data is base64, what is no JSON is its ``repr``.
    """
    record: dict[str, Any] = {
        "kind": event.kind,
        "seq": event.seq,
        "time": event.time,
        "run": event.run_id,
        "turn": event.turn,
    }
    if event.path:
        record["path"] = event.path
    record.update(_fields(event, 0))
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def _fields(value: object, depth: int) -> dict[str, Any]:  # Any: JSON
    kind = cast("type[attrs.AttrsInstance]", type(value))
    return {field.name: _plain(getattr(value, field.name), depth + 1) for field in attrs.fields(kind)}


def _plain(value: object, depth: int) -> Any:  # Any: JSON
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        # Python refuses to write very long numbers in decimal.
        return int(value) if value.bit_length() < _MAX_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if depth < _MAX_DEPTH:
        return _composed(value, depth)
    return _shown(value)


def _composed(value: object, depth: int) -> Any:  # Any: JSON
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key if isinstance(key, str) else _shown(key): _plain(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [_item(item, depth + 1) for item in cast("Sequence[object]", value)]
    return _fields(value, depth) if attrs.has(type(value)) else _shown(value)


def _item(value: object, depth: int) -> Any:  # Any: JSON
    """Of a list, where blocks of several types stand; a field that holds a block says by its name which."""
    kind = type(value)
    if kind in _BLOCKS and depth < _MAX_DEPTH:
        return {"type": kind_of(kind), **_fields(value, depth)}
    return _plain(value, depth)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # a hostile __repr__ must not end the run
        return f"<{type(value).__name__} that cannot be shown: {describe(error)}>"
