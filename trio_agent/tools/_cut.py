"""Texts that fit: valid UTF-8, and not longer than a limit, with head and tail kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._messages import ResultBlock, Text

__all__ = ["cut_blocks", "printable", "utf8_length"]


def printable(text: str) -> str:
    """``text`` with each half of a surrogate pair replaced, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, where two halves that stand together are one character after all.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def utf8_length(text: str) -> int:
    """The bytes of ``text`` in UTF-8; halves of surrogate pairs count as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut_blocks(blocks: Sequence[ResultBlock], limit: int) -> tuple[tuple[ResultBlock, ...], int]:
    """The blocks with at most ``limit`` bytes of text in all, and how many bytes were left out.

    The first half and the last of what fits are kept, cut between characters, and where the middle
    was there is a line that says so.  Texts must be printable, and the limit leave room for that line.
    Pictures and documents are kept whole: half of one is nothing.
    """
    total = sum(utf8_length(block.text) for block in blocks if type(block) is Text)
    if total <= limit:
        return tuple(blocks), 0
    room = limit - len(_mark(total))
    head_end, tail_start = (room + 1) // 2, total - room // 2
    pieces: list[ResultBlock | tuple[str, str]] = []  # a pair is what is left of a text on both sides of the cut
    start = 0
    kept = 0
    for block in blocks:
        if type(block) is not Text:
            pieces.append(block)
            continue
        data = block.text.encode()
        end = start + len(data)
        if end <= head_end or start >= tail_start:
            pieces.append(block)
            kept += len(data)
        else:
            # A character that the cut goes through is left out.
            head = data[: max(0, head_end - start)].decode("utf-8", "ignore")
            tail = _from_first_character(data[max(0, tail_start - start) :])
            pieces.append((head, tail))
            kept += utf8_length(head) + utf8_length(tail)
        start = end
    return tuple(_marked(pieces, _mark(total - kept))), total - kept


def _mark(left_out: int) -> str:
    return f"\n[... {left_out:,} bytes left out ...]\n"


def _from_first_character(data: bytes) -> str:
    start = 0
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode()


def _marked(pieces: Sequence[ResultBlock | tuple[str, str]], mark: str) -> Iterator[ResultBlock]:
    """The blocks, with the mark in the first text that the cut goes through."""
    for piece in pieces:
        if not isinstance(piece, tuple):
            yield piece
            continue
        head, tail = piece
        text = head + mark + tail
        mark = ""
        if text:
            yield Text(text)
