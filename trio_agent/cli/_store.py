"""Where the command keeps sessions: one SQLite file or one folder of JSON lines, and what is told of a wrong name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from .._errors import ConfigError
from .._facts import Fact
from .._ports import SessionStore
from ..permissions._shown import one_line
from ..sessions import JSONLStore, SQLiteStore

__all__ = ["DEFAULT", "STORE", "Store", "demand_session", "read_all", "store_at"]

Store: TypeAlias = SQLiteStore | JSONLStore
"""What ``--store`` may be."""

STORE: Final = "TRIO_AGENT_STORE"
"""The environment variable that says where sessions are, if ``--store`` does not."""

DEFAULT: Final = Path(".trio-agent", "sessions.db")
"""Where they are if nothing says so, in the current folder."""

SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")
"""What a file that does not exist yet ends with, to be a SQLite file and not a folder."""

AT_ONCE: Final = 1_000
"""Facts that are read at once."""

NAMED: Final = 5
"""Sessions that an error names."""


def store_at(path: str | None, *, create: bool) -> Store:
    """The store at ``path``, or where the environment says, or at :data:`DEFAULT`.

    A folder holds JSON lines, a file is SQLite's.  Of what does not exist yet the name decides: see :data:`SUFFIXES`.

    Args:
      create: it may be new; then the folder of the default is made.

    Raises:
      ConfigError: there is none, and it should not be made; or the name is none.
    """
    told = path if path is not None else os.environ.get(STORE) or None
    place = DEFAULT if told is None else Path(told)
    if told is not None and not told.strip():
        raise ConfigError("--store: expected a file or a folder, got an empty name")
    try:
        there = place.exists()
        if not there and not create:
            raise ConfigError(f"there is no store at {place}; trio-agent run --session NAME makes one (see --store)")
        if told is None and create:
            place.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--store {told or place}: {error}") from error
    if place.is_dir() or (not there and place.suffix.lower() not in SUFFIXES):
        return JSONLStore(place)
    return SQLiteStore(place)


async def demand_session(store: SessionStore, session: str) -> None:
    """See that there is such a session.  A checkpoint.

    Raises:
      ConfigError: there is none; the message names those whose names are close.
      StoreFailed: the store cannot be read.
    """
    if session and await store.head(session):
        return
    names = [info.session for info in await store.list()]
    close = difflib.get_close_matches(session, names, NAMED, 0.5)
    problem = f"there is no session {_named(session)}"
    if close:
        raise ConfigError(f"{problem}; did you mean {' or '.join(map(_named, close))}?")
    if not names:
        raise ConfigError(f"{problem}: the store has none yet")
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    raise ConfigError(f"{problem}; there are {', '.join(map(_named, names[:NAMED]))}{more}")


def _named(session: str) -> str:
    return f"'{one_line(session, 100)}'"


async def read_all(store: SessionStore, session: str, see: Callable[[Fact], None], after: int = 0) -> int:
    """Give ``see`` each fact after position ``after``, read piece by piece.  A checkpoint.  Returns the new head."""
    while True:
        facts = await store.read(session, after=after, limit=AT_ONCE)
        for fact in facts:
            see(fact)
        after += len(facts)
        if len(facts) < AT_ONCE:
            return after
