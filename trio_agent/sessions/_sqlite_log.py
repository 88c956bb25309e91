"""What is asked of the tables: each question is one transaction, and each answer was true at one moment.

Knows nothing of Trio, and not in which thread it runs; never in two at once.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, final

import attrs
import outcome

from .._errors import SessionConflict, SessionCorrupt, StoreFailed
from .._facts import Fact
from .._ports import SessionInfo
from .._written import read_fact
from ._sqlite_file import demand_version, failure, open_file

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Append", "Database"]

T = TypeVar("T")


@final
@attrs.frozen(eq=False)
class Append:
    """Facts in their written form, and where they belong."""

    session: str
    texts: Sequence[str]
    expected_head: int


@final
class Database:
    """The one connection, opened when it is first needed."""

    def __init__(self, path: str, *, synchronous: str, busy_timeout: float) -> None:
        self._path = path
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._forget: weakref.finalize[[], Database] | None = None
        self._closed = False

    # --- transactions -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the file, if it is not open.

        Raises:
          StoreFailed: it cannot be used, or was closed.
        """
        self._transaction("BEGIN", lambda db: None)

    def close(self) -> None:
        """Close the file for good."""
        self._closed = True
        self._drop()

    def _transaction(self, begin: str, function: Callable[[sqlite3.Connection], T]) -> T:
        import sqlite3

        try:
            db = self._connection()
            db.execute(begin)
            demand_version(db, self._path)
            value = function(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise failure(self._path, error, self._busy_timeout) from error
        except BaseException:
            self._roll_back()
            raise
        return value

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreFailed(f"{self._path}: the store is closed")
        if self._db is None:
            db = open_file(self._path, synchronous=self._synchronous, busy_timeout=self._busy_timeout)
            # A store need not be closed, but its file shall be.
            self._db, self._forget = db, weakref.finalize(self, db.close)
            self._file = _identity(self._path)
        elif _identity(self._path) != self._file:
            # SQLite would go on writing to a file that nobody will ever find again.  No other one is opened in its place:
            # it would be read together with what this one has written ahead.
            raise StoreFailed(f"{self._path}: the file was removed or replaced while it was in use")
        return self._db

    def _roll_back(self) -> None:
        import sqlite3

        if self._db is not None and self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:  # the error that led here is the one to tell; a new connection knows nothing of it
                self._drop()

    def _drop(self) -> None:
        db, forget, self._db, self._forget = self._db, self._forget, None, None
        if forget is not None:
            forget.detach()
        if db is not None:
            db.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def commit(self, appends: Sequence[Append]) -> Sequence[outcome.Outcome[int]]:
        """Write all that can be written, in one transaction if possible; the new head or the error of each."""
        begun = False

        def write(db: sqlite3.Connection) -> Sequence[outcome.Outcome[int]]:
            nonlocal begun
            begun = True
            return [_write(db, append, self._path) for append in appends]

        try:
            return self._transaction("BEGIN IMMEDIATE", write)
        except Exception as error:
            if begun and len(appends) > 1:  # it may be the fault of one, for instance of a page that only it needs
                return [self.commit([append])[0] for append in appends]
            return [outcome.Error(error if append is appends[0] else _again(error)) for append in appends]

    def delete(self, session: str) -> bool:
        """Forget a session; whether there was one."""

        def delete(db: sqlite3.Connection) -> bool:
            row = _find(db, session, self._path)
            if row is not None:
                db.execute("DELETE FROM facts WHERE session = ?", row[:1])
                db.execute("DELETE FROM sessions WHERE id = ?", row[:1])
            return row is not None

        return self._transaction("BEGIN IMMEDIATE", delete)

    def fork(self, session: str, to: str, at: int) -> None:
        """Copy the first ``at`` facts of ``session`` to ``to``."""

        def fork(db: sqlite3.Connection) -> None:
            source, head = _find(db, session, self._path) or (0, 0)
            if not 1 <= at <= head:
                raise ValueError(
                    f"session {session!r} has {head} facts; expected at to be between 1 and that, got {at}"
                )
            if _find(db, to, self._path) is not None:
                raise SessionConflict(f"session {to!r} has facts already; a fork begins a new session")
            target = _begin_session(db, to, at)
            copy = "INSERT INTO facts SELECT ?, seq, fact FROM facts WHERE session = ? AND seq <= ? ORDER BY seq"
            if db.execute(copy, (target, source, at)).rowcount != at:
                raise SessionCorrupt(f"{self._path}: session {session!r}: some of its first {at} facts are missing")

        self._transaction("BEGIN IMMEDIATE", fork)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, session: str, after: int, limit: int | None) -> Sequence[Fact]:
        """The facts from position ``after`` on, ``limit`` at most."""
        first = max(after, 0) + 1

        def read(db: sqlite3.Connection) -> tuple[int, Sequence[tuple[int, object]]]:
            ident, head = _find(db, session, self._path) or (0, 0)
            count = head + 1 - first if limit is None else min(head + 1 - first, limit)
            if count <= 0:
                return 0, ()
            query = "SELECT seq, fact FROM facts WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?"
            return count, db.execute(query, (ident, first, count)).fetchall()

        count, rows = self._transaction("BEGIN", read)
        facts: list[Fact] = []
        for position, (seq, text) in enumerate(rows, first):
            if seq != position:
                break
            facts.append(self._fact(session, position, text))
        if len(facts) < count:
            raise SessionCorrupt(f"{self._path}: session {session!r}: position {first + len(facts)} is missing")
        return tuple(facts)

    def _fact(self, session: str, position: int, text: object) -> Fact:
        place = f"{self._path}: session {session!r}, position {position}"
        if not isinstance(text, bytes):
            raise SessionCorrupt(f"{place}: expected a text, found a {type(text).__name__}")
        try:
            return read_fact(text.decode("ascii"))
        except UnicodeDecodeError as error:
            raise SessionCorrupt(f"{place}: a record is no ASCII: {error}") from error
        except StoreFailed as error:
            raise type(error)(f"{place}: {error.message}") from error

    def head(self, session: str) -> int:
        """The position of the last fact."""
        return self._transaction("BEGIN", lambda db: (_find(db, session, self._path) or (0, 0))[1])

    def sessions(self) -> Sequence[SessionInfo]:
        """All sessions, the one written to last first."""
        # By where their last facts stand in the file: clocks are too coarse for an order.
        query = """SELECT name, head, updated FROM sessions LEFT JOIN facts ON session = id AND seq = head
            ORDER BY facts.rowid DESC"""
        rows = self._transaction("BEGIN", lambda db: db.execute(query).fetchall())
        return tuple(SessionInfo(_name(name, self._path), head, updated) for name, head, updated in rows)

    def check(self) -> None:
        """Look for damage.

        Raises:
          SessionCorrupt: there is some; the message names what was found first, and how much there is.
        """
        found = self._transaction("BEGIN", lambda db: [*_damage(db), *_gaps(db, self._path)])
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise SessionCorrupt(f"{self._path}: {found[0]}{more}")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _again(error: Exception) -> Exception:
    """An error for one more task: an exception that is raised in two of them tells neither's story."""
    if not isinstance(error, StoreFailed):
        return error
    again = type(error)(error.message)
    again.__cause__ = error.__cause__
    return again


# --- pieces of transactions -------------------------------------------------------------------------------------------


def _find(db: sqlite3.Connection, session: str, path: str) -> tuple[int, int] | None:
    """The number of a session in this file, and its head."""
    row = db.execute("SELECT id, head FROM sessions WHERE name = ?", (_blob(session),)).fetchone()
    if row is None:
        return None
    ident, head = row
    if not isinstance(ident, int) or not isinstance(head, int):
        raise SessionCorrupt(f"{path}: session {session!r}: expected its head to be a number, found {head!r}")
    return ident, head


def _write(db: sqlite3.Connection, append: Append, path: str) -> outcome.Outcome[int]:
    """Write one append, or say with whom it is in conflict; nothing is written then."""
    ident, head = _find(db, append.session, path) or (0, 0)
    expected, texts = append.expected_head, append.texts
    known = head - expected
    if not 0 <= known <= len(texts) or (known and not _stand(db, ident, expected, texts[:known])):
        what = f"session {append.session!r} in {path}: expected the head {expected}, it is {head}"
        return outcome.Error(SessionConflict(what))
    new_head = expected + len(texts)
    if new_head > head:
        if head:
            db.execute("UPDATE sessions SET head = ?, updated = ? WHERE id = ?", (new_head, time.time(), ident))
        else:
            ident = _begin_session(db, append.session, new_head)
        rows = [(ident, seq, text) for seq, text in enumerate(texts[known:], head + 1)]
        db.executemany("INSERT INTO facts VALUES (?, ?, ?)", rows)
    return outcome.Value(new_head)


def _stand(db: sqlite3.Connection, ident: int, after: int, texts: Sequence[str]) -> bool:
    """Whether exactly these stand behind that position."""
    query = "SELECT fact FROM facts WHERE session = ? AND seq > ? ORDER BY seq"
    return [row[0] for row in db.execute(query, (ident, after))] == [text.encode() for text in texts]


def _begin_session(db: sqlite3.Connection, session: str, head: int) -> int:
    insert = "INSERT INTO sessions (name, head, updated) VALUES (?, ?, ?)"
    ident = db.execute(insert, (_blob(session), head, time.time())).lastrowid
    assert ident is not None
    return ident


def _blob(session: str) -> bytes:
    return session.encode("utf-8", "surrogatepass")


def _name(blob: object, path: str) -> str:
    try:
        if isinstance(blob, bytes):
            return blob.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        pass  # damaged, like what is no blob at all
    raise SessionCorrupt(f"{path}: expected the name of a session, found {blob!r}")


def _damage(db: sqlite3.Connection) -> Sequence[str]:
    """What SQLite finds wrong with the file itself."""
    return [text for row in db.execute("PRAGMA integrity_check") if (text := row[0].decode(errors="replace")) != "ok"]


def _gaps(db: sqlite3.Connection, path: str) -> Sequence[str]:
    """Sessions whose positions are not 1, 2, 3, ... up to their head, and facts that belong to none."""
    numbers = """SELECT name, head, count(seq), coalesce(max(seq), 0) FROM sessions LEFT JOIN facts ON session = id
        GROUP BY id HAVING count(seq) != head OR coalesce(max(seq), 0) != head OR min(seq) != 1"""
    found = [
        f"session {_name(name, path)!r}: expected {head} facts up to position {head}, found {count} up to {last}"
        for name, head, count, last in db.execute(numbers)
    ]
    strays = "SELECT session, count(*) FROM facts WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session"
    found += [f"{count} facts belong to a session that is not there" for _, count in db.execute(strays)]
    return found
