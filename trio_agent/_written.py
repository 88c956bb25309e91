"""The written form of facts: one line of JSON each, with a schema version.

The one place where facts become text and text becomes facts.  Knows nothing of files or databases.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from ._errors import SessionCorrupt, StoreFailed
from ._facts import Fact, Place, kind_of, stamp
from ._messages import Block, ResultBlock

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["SCHEMA_VERSION", "read_fact", "write_fact"]

SCHEMA_VERSION: Final = 2
"""What this version writes.  A new kind or field is a new version too: older readers could not read it."""

_UPCASTERS: Final[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    1: lambda record: record,  # version 2 has kinds and fields that 1 had not, and every field has a default
}
"""By version: what makes of a record one of the next version."""

_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode

_FACTS: Final[dict[str, type[Fact]]] = {kind_of(cls): cls for cls in get_args(Fact)}


@functools.cache
def _converter() -> Converter:
    # cattrs is imported at the first use: a run whose log is volatile never needs it.
    from cattrs import Converter
    from cattrs.strategies import configure_tagged_union

    converter = Converter(detailed_validation=False, forbid_extra_keys=True)
    converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode("ascii"))
    converter.register_structure_hook(bytes, lambda value, _: base64.b64decode(value, validate=True))
    converter.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else str(value))
    converter.register_structure_hook(float, lambda value, _: _as_float(value))
    for union in (ResultBlock, Block):  # the inner one first: cattrs keeps the hooks of what it has seen
        configure_tagged_union(union, converter, tag_name="type", tag_generator=kind_of)
    return converter


def _as_float(value: object) -> float:
    if isinstance(value, str):
        return float(value)  # what JSON has no number for
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return value


def write_fact(fact: Fact) -> str:
    """The fact as one line of JSON, its stamp included."""
    place = fact.place
    record: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "kind": fact.kind,
        "seq": fact.seq,
        "time": fact.time,
        "run": place.run_id,
        "turn": place.turn,
    }
    if place.path:
        record["path"] = place.path
    if place.journal:
        record["journal"] = place.journal
    record["data"] = _converter().unstructure(fact)
    return _ENCODE(record)


def read_fact(text: str) -> Fact:
    """The fact that a line says.

    Raises:
      SessionCorrupt: the line is not a fact; the message says why.
      StoreFailed: a newer version of this package has written it.
    """
    try:
        record = cast("dict[str, Any]", json.loads(text))
        record = _upcast(record)
        kind = record["kind"]
        if kind not in _FACTS:
            raise SessionCorrupt(f"a record has the unknown kind {kind!r}")
        fact: Fact = _converter().structure(record["data"], _FACTS[kind])
        place = Place(
            str(record["run"]), int(record["turn"]), tuple(record.get("path", ())), str(record.get("journal", ""))
        )
        stamp(fact, int(record["seq"]), float(record["time"]), place)
    except StoreFailed:  # a SessionCorrupt is one, too
        raise
    except Exception as error:  # cattrs raises whatever the value's own code raises
        raise SessionCorrupt(f"a record cannot be read: {type(error).__name__}: {error}") from error
    return fact


def _upcast(record: dict[str, Any]) -> dict[str, Any]:
    """The record as the present version would have written it."""
    version = record["v"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SessionCorrupt(f"a record has the schema version {version!r}; expected a whole number from 1 on")
    if version > SCHEMA_VERSION:
        raise StoreFailed(
            f"a record was written by a newer version: its schema is {version}, and this one reads up to {SCHEMA_VERSION}"
        )
    for older in range(version, SCHEMA_VERSION):
        record = _UPCASTERS[older](record)
    return record
