"""Unified diffs, read and applied to the letter: whatever does not fit exactly is refused, and the message says where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

__all__ = ["Hunk", "PatchError", "apply", "parse"]

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*")


class PatchError(Exception):
    """It is no patch, or does not apply."""


@attrs.frozen
class Hunk:
    """One change: where the old lines stand together, the new ones shall."""

    path: str
    old: tuple[str, ...]
    new: tuple[str, ...]


def parse(text: str) -> tuple[Hunk, ...]:
    """The changes of a patch.

    Raises:
      PatchError: it is not a patch that changes files; the message has the line.
    """
    hunks: list[Hunk] = []
    path = ""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        if line.startswith("--- a/"):
            path = line.removeprefix("--- a/").partition("\t")[0]
            _, renamed = next(lines, (0, ""))
            if renamed.partition("\t")[0] != f"+++ b/{path}":
                raise PatchError(f"line {number + 1}: expected '+++ b/{path}', got {renamed!r}")
        elif (found := _HUNK.fullmatch(line)) and path:
            hunks.append(_hunk(path, number, lines, int(found[1] or 1), int(found[2] or 1)))
        else:
            raise PatchError(f"line {number}: expected a file or a hunk, got {line!r}")
    if not hunks:
        raise PatchError("it changes nothing")
    return tuple(hunks)


def _hunk(path: str, start: int, lines: Iterator[tuple[int, str]], old_count: int, new_count: int) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    while len(old) < old_count or len(new) < new_count:
        number, line = next(lines, (start, "\\ nothing more"))
        sign, rest = line[:1] or " ", line[1:]  # an editor may have stripped the blank of an empty line
        if sign not in " -+":
            raise PatchError(f"line {number}: expected a line of the hunk at line {start}, got {line!r}")
        if sign != "+":
            old.append(rest)
        if sign != "-":
            new.append(rest)
    if (len(old), len(new)) != (old_count, new_count) or old == new:
        raise PatchError(f"line {start}: the hunk has not the lines that it says, or changes none")
    return Hunk(path, tuple(old), tuple(new))


def apply(text: str, folder: Path) -> None:
    """Change the files of a folder.

    Lines may have moved: a hunk is put where its old lines stand, and they must stand there once.

    Raises:
      PatchError: a file is not there, or the old lines stand in it nowhere, or twice; then nothing more is changed.
    """
    for hunk in parse(text):
        target = folder / hunk.path
        if not target.is_file():
            raise PatchError(f"there is no {hunk.path}")
        lines = target.read_text(encoding="utf-8").split("\n")
        found = _places(lines, hunk.old)
        if len(found) != 1:
            wanted = "\n".join(hunk.old)
            raise PatchError(f"{hunk.path}: these lines stand in it {len(found)} times, expected once:\n{wanted}")
        lines[found[0] : found[0] + len(hunk.old)] = hunk.new
        target.write_text("\n".join(lines), encoding="utf-8")


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    size = len(wanted)
    return [n for n in range(len(lines) - size + 1) if tuple(lines[n : n + size]) == tuple(wanted)]
