"""Two tools on the text files of one folder, which they cannot leave.

Both only read.  Knows nothing of runs.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import trio

from ..tools import Tool, tool

__all__ = ["MAX_FILES", "count_part", "file_tools", "list_texts", "wait_of"]

MAX_FILES: Final = 10_000
"""Files that one listing may name."""

MAX_NAMES: Final = 500_000
"""Characters that their names may have together."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""A file that is larger is not read."""


def file_tools(root: Path, latency: float) -> list[Tool]:
    """``list_files`` and ``read_and_count`` for the folder ``root``.

    Args:
      root: the folder, resolved.
      latency: about how many seconds each ``read_and_count`` waits before it reads; see :func:`wait_of`.
    """

    @tool(effect="pure", max_result_bytes=8 * MAX_NAMES)
    def list_files(limit: Annotated[int, "how many at most"] = MAX_FILES) -> dict[str, Any]:  # Any: JSON
        """List the files of the folder and of the folders in it; hidden ones and symbolic links are left out."""
        return list_texts(root, limit)

    @tool(effect="pure")
    async def read_and_count(path: str, part: int = 1, parts: int = 1) -> dict[str, Any]:  # Any: JSON
        """Count the lines and the words of a text file, or of one part of its lines.

        Args:
            path: The file, as list_files names it.
            part: Which part, from 1.
            parts: Into how many parts of nearly equal length the file is cut.
        """
        await trio.sleep(wait_of(path, part, latency))
        # Not left to itself on a cut: it is over in a moment, and nothing of a run outlives it.
        return await trio.to_thread.run_sync(count_part, root, path, part, parts)

    return [list_files, read_and_count]


def wait_of(path: str, part: int, latency: float) -> float:
    """Between 0.5 and 1.5 times ``latency``: for the same part always the same, for its neighbours another."""
    return latency * (0.5 + zlib.crc32(f"{part} {path}".encode(errors="replace")) / 2**32)


def list_texts(root: Path, limit: int = MAX_FILES) -> dict[str, Any]:  # Any: JSON
    """``{"files": [names], "more": bool}``: names relative to ``root``, in alphabetical order, folder by folder."""
    files: list[str] = []
    size = 0
    for path in _walk(root):
        size += len(path)
        if len(files) >= min(limit, MAX_FILES) or size > MAX_NAMES:
            return {"files": files, "more": True}
        files.append(path)
    return {"files": files, "more": False}


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            # A name that is no UTF-8 cannot be sent to a model.
            if not name.startswith(".") and path.is_file() and not path.is_symlink() and _is_unicode(relative):
                yield relative


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def count_part(root: Path, path: str, part: int = 1, parts: int = 1) -> dict[str, Any]:  # Any: JSON
    """What ``read_and_count`` answers: ``path``, ``lines``, ``words`` and, of several, ``part`` and ``parts``.

    Raises:
      ValueError: there is no such part, or the file lies outside of ``root``, is no UTF-8 text, is too large
        or is no file.
      OSError: it cannot be read.
    """
    if not 1 <= part <= parts:
        raise ValueError(f"there is no part {part} of {parts}")
    text = _read(root, path)
    lines = text.splitlines()
    chosen = lines[len(lines) * (part - 1) // parts : len(lines) * part // parts]
    counted: dict[str, Any] = {"path": path, "lines": len(chosen), "words": sum(len(line.split()) for line in chosen)}
    return counted if parts == 1 else {**counted, "part": part, "parts": parts}


def _read(root: Path, path: str) -> str:
    # Resolved first, so that neither ".." nor a symbolic link leads out.
    found = (root / path).resolve(strict=True)
    name = json.dumps(path, ensure_ascii=False)
    if not found.is_relative_to(root):
        raise ValueError(f"{name} lies outside of the folder")
    if not found.is_file():
        raise ValueError(f"{name} is no file")
    with found.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES:,} bytes")
    if b"\0" in data:
        raise ValueError(f"{name} is no text: it holds zero bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None
