"""Which sessions are open in this process: each has one writer.  Other processes are told apart by the store."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakValueDictionary

from .._errors import SessionBusy
from .._ports import SessionStore

__all__ = ["claim", "release"]

_OPEN: Final[WeakValueDictionary[tuple[int, str], Any]] = WeakValueDictionary()  # Any: whoever holds a claim
"""By store and session: who has it.  Weak: a session that was dropped without being left is open no more.  The
owner keeps the store alive, and with it its identity."""


def claim(store: SessionStore, session: str, owner: object) -> None:
    """Open the session for ``owner``.

    Raises:
      SessionBusy: another has it.
    """
    if _OPEN.setdefault((id(store), session), owner) is not owner:
        raise SessionBusy(f"session {session!r} is open in this process already")


def release(store: SessionStore, session: str, owner: object) -> None:
    """Let others open it, if ``owner`` has it."""
    if _OPEN.get((id(store), session)) is owner:
        del _OPEN[id(store), session]
