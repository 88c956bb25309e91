"""``trio-agent sessions``: which sessions there are, and how each stands."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

import attrs

from .._errors import StoreFailed
from .._ports import SessionInfo
from ..permissions._shown import one_line
from ._codes import DONE, FAILED
from ._record import Record, age_text, tokens_text
from ._store import read_all, store_at
from ._talk import note

__all__ = ["list_sessions"]

HEADINGS: Final = ("SESSION", "STATE", "RUNS", "TURNS", "CALLS", "TOKENS", "LAST EVENT")
RIGHT: Final = ("RUNS", "TURNS", "CALLS")
NAME: Final = 60
"""Characters of a name that are shown."""


async def list_sessions(*, store: str | None = None, json: bool = False) -> int:
    """Print one line a session, the one written to last first.

    Args:
      store: where sessions are kept; see :func:`store_at`.
      json: each line is a JSON object.

    Returns:
      The exit code: 1 if one of them cannot be read; the others are printed all the same.

    Raises:
      ConfigError: there is no store.
      StoreFailed: it cannot be read.
    """
    rows: list[Sequence[str]] = []
    damaged = 0
    async with store_at(store, create=False) as opened:
        for info in await opened.list():
            record = Record(info.session)
            try:
                await read_all(opened, info.session, record.see)
            except StoreFailed as error:  # damaged, or of a newer version
                damaged += 1
                note(f"{one_line(info.session, NAME)}: {one_line(error.message, 500)}")
                continue
            age = time.time() - info.updated
            if json:
                print(_line(info, record, age), flush=True)
            else:
                rows.append(_row(info, record, age))
    if rows:
        _print_table(rows)
    elif not json and not damaged:
        note("there are no sessions yet")
    return FAILED if damaged else DONE


def _line(info: SessionInfo, record: Record, age: float) -> str:
    fields: dict[str, Any] = {  # Any: JSON
        "session": info.session,
        "state": record.condition(age),
        "facts": info.head,
        "runs": record.runs,
        "turns": record.turns,
        "calls": record.calls,
        "statuses": dict(record.statuses),
        "usage": attrs.asdict(record.usage),
        "waiting": [request.call_id for request in record.state.requests],
        "updated": info.updated,
    }
    return json.dumps(fields, separators=(",", ":"))


def _row(info: SessionInfo, record: Record, age: float) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (record.runs, record.turns, record.calls))
    name = one_line(info.session, NAME)
    return name, record.condition(age), *counts, tokens_text(record.usage) or "-", f"{age_text(age)} ago"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    for row in (HEADINGS, *rows):
        cells = (
            cell.rjust(width) if heading in RIGHT else cell.ljust(width)
            for heading, cell, width in zip(HEADINGS, row, widths, strict=True)
        )
        print("  ".join(cells).rstrip(), flush=True)
