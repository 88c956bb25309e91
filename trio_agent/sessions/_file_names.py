"""The name of a session's file: readable, and another one for every session, whatever a file system folds together.

Pure: knows nothing of files.
"""

from __future__ import annotations

import hashlib
import re
import string
from typing import Final

__all__ = ["file_name", "session_in"]

_SUFFIX: Final = ".jsonl"
_PLAIN: Final = frozenset((string.ascii_lowercase + string.digits + "-_.").encode())
"""What stands for itself.  No capital: some file systems take it for the small letter."""
_LONGEST: Final = 180
"""Bytes; file systems take 255, and what is kept beside a file has a longer name."""
_BEGINNING: Final = 80
"""Bytes of a name that is too long, which its file's name begins with."""
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
"""What Windows takes for a device, whatever stands behind the dot."""


def file_name(session: str) -> str:
    """The name of the session's file.

    Small letters, digits, ``-``, ``_`` and ``.`` are kept; every other byte of the name in UTF-8 is ``%`` and two
    digits.  A name that gets too long is its beginning, ``~``, and its SHA-256.
    """
    data = session.encode("utf-8", "surrogatepass")
    stem = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in data)
    if stem[:1] in (".", "-") or _DEVICE.match(stem):  # hidden, taken for an option, or for a device
        stem = f"%{data[0]:02x}{stem[1:]}"
    if len(stem) > _LONGEST:
        beginning = re.sub(r"%.?$", "", stem[:_BEGINNING])  # not half a byte
        stem = f"{beginning}~{hashlib.sha256(data).hexdigest()}"
    return f"{stem or '%'}{_SUFFIX}"


def session_in(name: str) -> str | None:
    """The session whose file has this name; ``None`` if no session's has, or if only the file itself can tell."""
    stem = name.removesuffix(_SUFFIX)
    parts = re.split(r"%([0-9a-f]{2})", stem)
    data = b"".join(
        bytes.fromhex(part) if odd else part.encode("utf-8", "surrogateescape")
        for part, odd in zip(parts, [False, True] * len(parts), strict=False)
    )
    try:
        session = data.decode("utf-8", "surrogatepass") if stem != "%" else ""
    except UnicodeDecodeError:
        return None
    return session if file_name(session) == name else None
