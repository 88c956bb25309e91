"""Which sessions a folder has: those whose file has their name, and a header that says so.

Knows nothing of what is written; reads no more of a file than its first and its last lines, and locks none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

from .._ports import SessionInfo
from ._file_names import file_name, session_in
from ._session_lines import as_read, header_of, json_object, line_before

__all__ = ["sessions_in"]


def sessions_in(folder: str) -> Sequence[SessionInfo]:
    """The sessions that have a fact, the one written to last first.

    A file that is damaged is listed too; what it has is counted as well as may be.

    Raises:
      OSError: the folder, or a file that may be a session's, cannot be read.  There are none in a folder that is not there.
    """
    found: list[tuple[int, SessionInfo]] = []
    try:
        with os.scandir(folder) as entries:
            paths = [(entry.name, entry.path) for entry in entries if entry.is_file() and entry.name.endswith(".jsonl")]
    except FileNotFoundError:
        return ()
    for name, path in paths:
        try:
            with open(path, "rb") as file:
                session, head = _session(file, name)
                updated = os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:  # deleted meanwhile
            continue
        if session is not None and head:
            found.append((updated, SessionInfo(session, head, updated / 1e9)))
    found.sort(key=lambda each: -each[0])
    return tuple(info for _, info in found)


def _session(file: BinaryIO, name: str) -> tuple[str | None, int]:
    """Whose file it is, and how many facts it has; ``None``: nobody's."""
    line = file.readline()
    header = header_of(line)
    if header is None:
        return None, 0
    session = session_in(name)
    if session is None and file_name(header["session"]) == name:
        session = header["session"]  # its name is too long for that of a file
    if session is None or as_read(session) != header["session"]:
        return None, 0
    return session, _head(file, len(line))


def _head(file: BinaryIO, body: int) -> int:
    end = file.seek(0, os.SEEK_END)
    for _ in range(2):  # the last line may be torn
        if end <= body:
            return 0
        start = line_before(file, body, end)
        file.seek(start)
        line = file.read(end - start)
        record = json_object(line)
        if record is not None and isinstance(record.get("seq"), int):
            return int(record["seq"])
        end = start
    file.seek(body)
    return sum(1 for _ in file)
