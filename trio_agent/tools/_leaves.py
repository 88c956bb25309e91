"""The types that travel as a string: how each is written in JSON, and read back.

One table decides both, so that what the schema promises is what the structuring accepts.  Knows
nothing of tools.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import pathlib
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

__all__ = ["FORMATS", "LEAVES", "Leaf", "leaf_text"]

# Texts, which ``re`` compiles at their first use and keeps: most programs that import this use none of them.
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
_DATE_TIME: Final = rf"({_DATE})[T ]({_TIME})"
_DURATION: Final = (
    r"(?P<sign>-)?P(?=[0-9T])(?:(?P<weeks>[0-9]{1,9})W)?(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?(?:(?P<seconds>[0-9]{1,9}(\.[0-9]{1,6})?)S)?)?"
)
_UUID: Final = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DECIMAL: Final = r"[+-]?[0-9]{1,1000}(\.[0-9]{1,1000})?(e[+-]?[0-9]{1,6})?"


@attrs.frozen
class Leaf:
    """A type that is a string in JSON."""

    schema: Mapping[str, str]
    read: Callable[[str], object]
    """The value of a string; :exc:`ValueError` if it is none."""
    show: Callable[[Any], str]  # Any: a value of the leaf's type
    """The string of a value; ``read`` undoes it."""


def _matched(pattern: str, text: str, expected: str) -> str:
    # The readers of the standard library take more than the formats' names promise ("20260101" is a
    # date to them, "{...}" a UUID), and differently from release to release.
    if re.fullmatch(pattern, text, re.IGNORECASE) is None:
        raise ValueError(f"expected {expected}")
    return text.upper()


def _read_date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(_matched(_DATE, text, "a date such as 2026-01-31"))


def _read_time(text: str) -> datetime.time:
    return datetime.time.fromisoformat(_matched(_TIME, text, "a time of day such as 18:30:00"))


def _read_date_time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(
        _matched(_DATE_TIME, text, "a date and time such as 2026-01-31T18:30:00+01:00")
    )


def _read_duration(text: str) -> datetime.timedelta:
    found = re.fullmatch(_DURATION, text)
    if found is None:
        raise ValueError("expected an ISO 8601 duration of weeks, days, hours, minutes and seconds, such as P1DT2H30M")
    parts = {unit: float(found[unit] or 0) for unit in ("weeks", "days", "hours", "minutes", "seconds")}
    try:
        value = datetime.timedelta(**parts)
    except OverflowError:
        raise ValueError("expected a shorter duration") from None
    return -value if found["sign"] else value


def _show_duration(value: datetime.timedelta) -> str:
    sign, value = ("-", -value) if value < datetime.timedelta() else ("", value)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    return f"{sign}P{value.days}DT{value.seconds}{fraction}S"


def _read_uuid(text: str) -> uuid.UUID:
    return uuid.UUID(_matched(_UUID, text, "a UUID such as 123e4567-e89b-12d3-a456-426614174000"))


def _read_decimal(text: str) -> decimal.Decimal:
    return decimal.Decimal(_matched(_DECIMAL, text, "a decimal number such as 12.50"))


def _read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("expected base64") from None


def _show_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _iso(value: datetime.date | datetime.time) -> str:
    return value.isoformat()


_TEXT: Final[Mapping[str, str]] = {"type": "string"}

LEAVES: Final[Mapping[type, Leaf]] = {
    datetime.datetime: Leaf({"type": "string", "format": "date-time"}, _read_date_time, _iso),
    datetime.date: Leaf({"type": "string", "format": "date"}, _read_date, _iso),
    datetime.time: Leaf({"type": "string", "format": "time"}, _read_time, _iso),
    datetime.timedelta: Leaf({"type": "string", "format": "duration"}, _read_duration, _show_duration),
    uuid.UUID: Leaf({"type": "string", "format": "uuid"}, _read_uuid, str),
    decimal.Decimal: Leaf({"type": "string", "format": "decimal"}, _read_decimal, str),
    pathlib.Path: Leaf(_TEXT, pathlib.Path, str),
    pathlib.PurePath: Leaf(_TEXT, pathlib.PurePath, str),
    pathlib.PurePosixPath: Leaf(_TEXT, pathlib.PurePosixPath, str),
    pathlib.PureWindowsPath: Leaf(_TEXT, pathlib.PureWindowsPath, str),
    bytes: Leaf({"type": "string", "format": "byte", "contentEncoding": "base64"}, _read_bytes, _show_bytes),
}

FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    leaf.schema["format"]: leaf.read for leaf in LEAVES.values() if "format" in leaf.schema
}
"""Formats that our own schemas use, and their readers.  In foreign schemas a format is a remark."""


def leaf_text(value: object) -> str | None:
    """The string of a value of one of these types or of a subclass; ``None`` for any other value."""
    for cls in type(value).__mro__:
        leaf = LEAVES.get(cls)
        if leaf is not None:
            return leaf.show(value)
    return None
