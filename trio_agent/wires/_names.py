"""Tool names that a vendor accepts: any name to a legal one and back, the same way each time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["WireNames"]

LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
FIRST_REFUSED: Final = frozenset("-0123456789")

STEM: Final = 55
"""Characters kept of a name; with an underscore and eight digits they make 64."""


class WireNames:
    """The names of one request's tools, on our side and on the wire.

    A legal name stays as it is.  Another gets its legal characters and a digest of the whole, so that
    ``a.b``, ``a b`` and ``a_b`` stay three tools, and the same name is the same in every request.

    Args:
      names: of the request's tools.
      letter_first: the vendor refuses a name that begins with a digit or a hyphen.
    """

    __slots__ = ("_legal", "_letter_first", "_original", "_wire")

    def __init__(self, names: Iterable[str], *, letter_first: bool = False) -> None:
        names = tuple(names)
        self._letter_first = letter_first
        self._legal = frozenset(name for name in names if self.accepts(name))
        self._wire: dict[str, str] = {}
        self._original: dict[str, str] = {}
        for name in names:
            if name not in self._legal and name not in self._wire:
                legal = self.to_wire(name)
                self._wire[name] = legal
                self._original[legal] = name

    def accepts(self, name: str) -> bool:
        """Whether the vendor takes ``name`` as it is."""
        return is_legal(name) and not (self._letter_first and name[0] in FIRST_REFUSED)

    def to_wire(self, name: str) -> str:
        """The name to send for ``name``, which need not be one of the request's tools."""
        known = self._wire.get(name)
        if known is not None:
            return known
        if self.accepts(name):
            return name
        attempt = 0
        while True:
            legal = self._candidate(name, attempt)
            if legal not in self._legal and legal not in self._original:
                return legal
            attempt += 1

    def to_original(self, name: str) -> str:
        """The tool that the model means by ``name``; ``name`` itself if it is none of the mapped ones."""
        return self._original.get(name, name)

    def _candidate(self, name: str, attempt: int) -> str:
        seed = f"{attempt}:{name}" if attempt else name
        digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        stem = ILLEGAL.sub("_", name)
        if self._letter_first and stem[:1] in FIRST_REFUSED:
            stem = f"_{stem}"
        return f"{stem[:STEM]}_{digest}"


def is_legal(name: str) -> bool:
    """Whether most vendors accept ``name`` as it is."""
    return LEGAL.fullmatch(name) is not None
