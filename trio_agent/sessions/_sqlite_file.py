"""The SQLite file of a store: whose it is, its schema, how it is opened, and what SQLite's errors mean.

Knows nothing of facts.  Synchronous: it runs where the store lets it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from .._errors import SessionCorrupt, StoreFailed

if TYPE_CHECKING:
    import sqlite3

__all__ = ["demand_version", "failure", "open_file"]

APPLICATION_ID: Final = int.from_bytes(b"trag", "big")
"""What the header of our files says; nobody else's does."""

_MIGRATIONS: Final[list[tuple[str, ...]]] = [
    (
        # A name is the UTF-8 of a session's name, half surrogate pairs included: a TEXT could not hold every name, and
        # would compare some as equal.
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            name BLOB NOT NULL UNIQUE,
            head INTEGER NOT NULL,
            updated REAL NOT NULL
        )""",
        """CREATE TABLE facts (
            session INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            fact TEXT NOT NULL,
            PRIMARY KEY (session, seq)
        )""",
    ),
]
"""The statements that bring a file from version 0 (no tables) to 1, from 1 to 2, and so on."""

_HEADER: Final = 105
"""Bytes: the header of a database, and that of its first page, which lists its tables."""
_NO_TABLES: Final = b"\x0d\0\0\0\0"
"""How a first page without tables begins: it is a leaf, and has no cells."""
_PATIENCE: Final = 0.005
"""Seconds between two attempts where SQLite itself does not wait for a lock."""


def open_file(path: str, *, synchronous: str, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, which is created or brought to this version if need be.

    Raises:
      StoreFailed: it is not ours, of a newer version, locked, or cannot be opened or written.  It is as it was.
      SessionCorrupt: it is damaged.
      sqlite3.Error: see :func:`failure`.
    """
    import sqlite3

    _look_at(path)
    # One thread at a time uses it, but not always the same.
    db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        db.text_factory = bytes  # a damaged text need not be UTF-8
        db.execute("BEGIN")
        version = _version(db, path)
        db.execute("COMMIT")
        if version < len(_MIGRATIONS):
            _migrate(db, path)
        _write_ahead(db, path, busy_timeout)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        if synchronous == "FULL":
            db.execute("PRAGMA fullfsync = ON")  # on macOS, a plain fsync does not reach the disk
        db.execute("PRAGMA cell_size_check = ON")  # damage is noticed when a page is read, not later
    except BaseException:
        db.close()
        raise
    return db


def demand_version(db: sqlite3.Connection, path: str) -> None:
    """See, in a transaction, that no newer program has changed the schema since the file was opened.

    Raises:
      StoreFailed: one has.
    """
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != len(_MIGRATIONS):
        _demand_ours(path, APPLICATION_ID, version, tables=True)


def _look_at(path: str) -> None:
    """Look at the file's first bytes: SQLite might change a file that it opens, whosoever it is."""
    folder = os.path.dirname(path)
    try:
        if not os.path.isdir(folder):
            raise StoreFailed(f"{path}: there is no folder {folder}; expected the file's folder to exist")
        with open(path, "rb") as file:
            header = file.read(_HEADER)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # a path with a NUL
        raise StoreFailed(f"{path}: it cannot be opened: {error}") from error
    if not header:
        return
    if len(header) < _HEADER or not header.startswith(b"SQLite format 3\0"):
        raise StoreFailed(f"{path}: this is not a SQLite database; it was left as it is")
    version, application = (int.from_bytes(header[at : at + 4], "big", signed=True) for at in (60, 68))
    _demand_ours(path, application, version, tables=header[100:105] != _NO_TABLES)


def _demand_ours(path: str, application: int, version: int, *, tables: bool) -> None:
    if application == 0 and not tables:
        return  # made, and never used
    if application != APPLICATION_ID:
        raise StoreFailed(
            f"{path}: this database is another program's (its application id is {application:#x}, not"
            f" {APPLICATION_ID:#x}); it was left as it is"
        )
    if version > len(_MIGRATIONS):
        raise StoreFailed(
            f"{path}: its schema has version {version}; this version of the program knows {len(_MIGRATIONS)}."
            " It was left as it is"
        )


def _version(db: sqlite3.Connection, path: str) -> int:
    """In a transaction: otherwise it is made of what stood there before and after another program has made its tables."""
    # The header that was looked at may be older than what stands in the write-ahead log.
    application: int = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    _demand_ours(path, application, version, tables=db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None)
    return version if application == APPLICATION_ID else 0


def _migrate(db: sqlite3.Connection, path: str) -> None:
    # A new file is not in WAL mode yet: so its first bytes say whose it is from its first transaction on.
    db.execute("BEGIN IMMEDIATE")
    version = _version(db, path)  # another program may have been quicker
    for statements in _MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
    db.execute("COMMIT")


def _write_ahead(db: sqlite3.Connection, path: str, busy_timeout: float) -> None:
    import sqlite3

    deadline = time.monotonic() + busy_timeout
    mode = b""
    while not mode:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            # For this lock SQLite does not wait, since it might wait for somebody who waits for us.
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(_PATIENCE)
    if mode != b"wal":
        raise StoreFailed(
            f"{path}: SQLite cannot write ahead here (its journal mode stays {mode.decode()!r});"
            " expected a file on a disk of this machine"
        )


def failure(path: str, error: sqlite3.Error, busy_timeout: float) -> StoreFailed:
    """What an error of SQLite's means."""
    import sqlite3

    if _is_busy(error):
        return StoreFailed(f"{path}: it is locked by another program for {busy_timeout:g} s")
    code = _code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return SessionCorrupt(f"{path}: the file is damaged: {error}")
    why = {
        sqlite3.SQLITE_FULL: "the disk is full: ",
        sqlite3.SQLITE_READONLY: "the file or its folder is read-only: ",
        sqlite3.SQLITE_CANTOPEN: "the file, or one that SQLite keeps beside it, cannot be opened: ",
        sqlite3.SQLITE_IOERR: "the disk or the file system fails: ",
    }.get(code, "")
    return StoreFailed(f"{path}: {why}{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})")


def _is_busy(error: sqlite3.Error) -> bool:
    import sqlite3

    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)  # errors of the Python module itself have none
    return code & 0xFF  # without what tells one such error from another
