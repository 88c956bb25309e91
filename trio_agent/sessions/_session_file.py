"""One session's file: a header in the first line, and a fact in each that follows.

A line is whole when it is a JSON object: no beginning of one is.  What a crash has left of a line that was being
written, a *torn tail*, is none: a read leaves it out, and the next append cuts it off.

Knows nothing of Trio, nor of other sessions.  Used by one thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import BinaryIO, final

import attrs

from .._errors import SessionConflict, SessionCorrupt, StoreFailed
from .._facts import Fact
from .._written import read_fact, write_fact
from ._file_names import file_name
from ._open_file import new_file, opened, remove, sync_file, sync_folder, touch, write_at
from ._session_lines import FORMAT, TornTail, as_read, header_line, header_of, json_object, line_at, line_before

__all__ = ["SessionFile"]


@attrs.frozen
class _Look:
    """What is known of a file as it is now."""

    identity: tuple[int, int, int, int]
    """The file, its length, and when it was written: who has written to it has changed this."""
    body: int
    """Where the first record begins; 0 if there is no whole header."""
    head: int = 0
    """How many records are whole."""
    end: int = 0
    """Where the last whole one ends."""
    size: int = 0
    """Where the file ends; behind ``end`` stands a torn tail."""
    ended: bool = True
    """The last whole one has its line end."""

    def leads_to(self, later: _Look, after: int) -> bool:
        """Whether what stands behind a position now can be found from where the file ended then."""
        same = self.identity[:2] == later.identity[:2] and self.ended and self.body > 0
        return same and self.head <= after and self.end <= later.end


@final
class SessionFile:
    """The file of one session in a folder; it need not exist.

    Args:
      durable: whether a write waits until it would survive that the power is lost.

    All methods raise ``OSError`` for what the system refuses, :exc:`Busy` while another program has the file locked, and
    ``SessionCorrupt`` or ``StoreFailed`` for what cannot be read; nothing was written then.
    """

    def __init__(self, folder: str, session: str, *, durable: bool) -> None:
        self.session = session
        self.path = os.path.join(folder, file_name(session))
        self.torn: list[TornTail] = []
        """What has been found and not been told yet."""
        self._folder = folder
        self._durable = durable
        self._header = header_line(session)
        self._known: _Look | None = None
        self._left_out: tuple[int, ...] = ()

    @property
    def kept(self) -> str:
        """Where torn tails are moved to."""
        return f"{self.path}.torn"

    # --- reading -------------------------------------------------------------------------------------

    def head(self) -> int:
        """The position of the last fact; 0 without a file."""
        with opened(self.path) as file:
            return 0 if file is None else self._look(file).head

    def read(self, after: int, limit: int | None) -> Sequence[Fact]:
        """The facts after a position."""
        with opened(self.path) as file:
            if file is None:
                return ()
            before, look = self._known, self._look(file)
            self._tell_left_out(file, look)
            if after >= look.head:
                return ()
            if before is not None and before.leads_to(look, after):
                try:  # what was read before need not be passed over again
                    return self._facts(file, before.head, before.end, look.end, after, limit)
                except SessionCorrupt:
                    self._known = None  # it was edited in place: positions are counted anew
            return self._facts(file, 0, look.body, look.end, after, limit)

    def lines(self, at: int) -> bytes:
        """The first ``at`` records as they stand there.

        Raises:
          ValueError: there are fewer, or ``at`` is less than 1.
        """
        with opened(self.path) as file:
            look = None if file is None else self._look(file)
            head = 0 if look is None else look.head
            if file is None or look is None or not 1 <= at <= head:
                raise ValueError(
                    f"session {self.session!r} has {head} facts; expected at to be between 1 and that, got {at}"
                )
            records = list(islice(self._records(file, 0, look.body, look.end), at))
            for position, offset, line in records:
                self._fact(file, position, offset, line)
            return b"".join(line for _, _, line in records[:-1]) + records[-1][2].rstrip(b"\n") + b"\n"

    def _facts(
        self, file: BinaryIO, position: int, start: int, end: int, after: int, limit: int | None
    ) -> Sequence[Fact]:
        wanted = islice(self._records(file, position, start, end), after - position, None)
        return tuple(self._fact(file, *record) for record in islice(wanted, limit))

    def _records(self, file: BinaryIO, position: int, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """The records between two places: the position of each, where it begins, and its line."""
        file.seek(start)
        while start < end:
            line = file.readline()
            position += 1
            yield position, start, line
            start += len(line)

    def _fact(self, file: BinaryIO, position: int, offset: int, line: bytes) -> Fact:
        try:
            fact = read_fact(line.decode())
        except UnicodeDecodeError as error:
            raise self._corrupt(file, offset, f"a record is no text: {error}") from error
        except StoreFailed as error:
            raise self._placed(file, offset, error) from error
        if fact.seq != position:
            raise self._corrupt(file, offset, f"expected fact {position}, found fact {fact.seq}")
        return fact

    def _corrupt(self, file: BinaryIO, offset: int, what: str) -> SessionCorrupt:
        return SessionCorrupt(f"{self._place(file, offset)}: {what}")

    def _placed(self, file: BinaryIO, offset: int, error: StoreFailed) -> StoreFailed:
        """The same, damage or a newer version, with its place."""
        return type(error)(f"{self._place(file, offset)}: {error.message}")

    def _place(self, file: BinaryIO, offset: int) -> str:
        return f"session {self.session!r}: {self.path}, line {line_at(file, offset)} (byte {offset})"

    # --- what stands there ---------------------------------------------------------------------------

    def _look(self, file: BinaryIO) -> _Look:
        """See what there is, if it is not known."""
        identity = _identity(file)
        if self._known is None or self._known.identity != identity:
            self._known = None
            self._known = self._look_anew(file, identity)
        return self._known

    def _look_anew(self, file: BinaryIO, identity: tuple[int, int, int, int]) -> _Look:
        size = identity[2]
        body = self._demand_header(file)
        look = _Look(identity, body, 0, body, size)
        if not body:
            return look
        end = size
        for _ in range(2):  # one line may be torn, and only the last
            if end == body:
                return look
            start = line_before(file, body, end)
            file.seek(start)
            line = file.read(end - start)
            if json_object(line) is not None:
                ended = line.endswith(b"\n")
                position = self._position(file, start, line)
                return attrs.evolve(look, head=position, end=end, ended=ended)
            end = start
        raise self._corrupt(file, end, "a record cannot be read, and it is not the last")

    def _position(self, file: BinaryIO, offset: int, line: bytes) -> int:
        try:
            return read_fact(line.decode()).seq
        except StoreFailed as error:
            raise self._placed(file, offset, error) from error

    def _demand_header(self, file: BinaryIO) -> int:
        """Where the header ends; 0 if it was not written to its end."""
        file.seek(0)
        line = file.readline()
        if not line.endswith(b"\n") and self._header.startswith(line.rstrip(b"\0")) and not file.read(1):
            return 0
        header = header_of(line)
        if header is None:
            raise SessionCorrupt(f"{self.path}, line 1: expected the header of a session; this is no file of a store")
        if header["v"] != FORMAT:
            what = f"a newer version has written the file: its format is {header['v']}, and this one reads {FORMAT}"
            raise StoreFailed(f"{self.path}, line 1: {what}")
        if header["session"] != as_read(self.session):
            raise SessionCorrupt(f"{self.path}, line 1: it is of session {header['session']!r}, not {self.session!r}")
        return len(line)

    def _tell_left_out(self, file: BinaryIO, look: _Look) -> None:
        """Tell once of a tail that a read leaves out."""
        place = (*look.identity[:2], look.end, look.size)
        if look.body and look.end < look.size and place != self._left_out:
            self._left_out = place
            self.torn.append(self._tail(file, look, None))

    def _tail(self, file: BinaryIO, look: _Look, kept: str | None) -> TornTail:
        line = line_at(file, look.end)
        return TornTail(self.session, self.path, line, look.end, look.size - look.end, kept)

    # --- writing -------------------------------------------------------------------------------------

    def append(self, facts: Sequence[Fact], texts: Sequence[str], expected_head: int) -> int:
        """Write facts, given with their written forms, after a position.  Returns the new head.

        Raises:
          SessionConflict: what stands there does not go with it.
          ValueError: a fact is stamped for another place.
        """
        for position, fact in enumerate(facts, expected_head + 1):
            if fact.seq != position:
                what = f"session {self.session!r}: a {fact.kind} is stamped as fact {fact.seq}"
                raise ValueError(f"{what}; expected {position}, the place where it would be written")
        create = bool(texts) and expected_head == 0
        if create:
            self._make_folder()
        with opened(self.path, write=True, create=create) as file:
            look = None if file is None else self._look(file)
            head = 0 if look is None else look.head
            known = head - expected_head
            if expected_head < 0 or not 0 <= known <= len(texts) or (known and not texts):
                raise self._conflict(expected_head, head)
            if file is not None and look is not None:
                if not self._stand(file, look, texts[:known], expected_head):
                    raise self._conflict(expected_head, head)
                if len(texts) > known:
                    self._write(file, look, texts[known:])
        return expected_head + len(texts)

    def _make_folder(self) -> None:
        if os.path.exists(self._folder):
            return
        with suppress(FileExistsError):  # another program was quicker
            os.mkdir(self._folder)
        if self._durable:
            sync_folder(os.path.dirname(self._folder))

    def _conflict(self, expected: int, head: int) -> SessionConflict:
        what = f"session {self.session!r} in {self.path}"
        return SessionConflict(f"{what}: expected the head {expected}, it is {head}")

    def _stand(self, file: BinaryIO, look: _Look, texts: Sequence[str], after: int) -> bool:
        """Whether exactly these facts stand behind that position."""
        if not texts:
            return True
        records = islice(self._records(file, 0, look.body, look.end), after, None)
        return all(
            line.rstrip(b"\n") == text.encode() or write_fact(self._fact(file, position, offset, line)) == text
            for text, (position, offset, line) in zip(texts, records, strict=True)
        )

    def _write(self, file: BinaryIO, look: _Look, texts: Sequence[str]) -> None:
        new = not look.body
        before = self._header if new else b"" if look.ended else b"\n"
        data = before + "".join(f"{text}\n" for text in texts).encode()
        if look.body and look.end < look.size:
            self._cut_off(file, look)
        with self._undone_if_it_fails(file, look):
            if look.end < look.size:
                os.ftruncate(file.fileno(), look.end)
            write_at(file, look.end, data)
            touch(file, self.path)
            if self._durable:
                sync_file(file)
                if new:
                    sync_folder(self._folder)
        end = look.end + len(data)
        body = len(self._header) if new else look.body
        self._known = _Look(_identity(file), body, look.head + len(texts), end, end)

    @contextmanager
    def _undone_if_it_fails(self, file: BinaryIO, look: _Look) -> Generator[None, None, None]:
        """Leave nothing of what is written if it is not written whole: the disk may be full."""
        self._known = None
        try:
            yield
        except BaseException:
            if look.body:
                os.ftruncate(file.fileno(), look.end)
            else:
                remove(file, self.path)
            raise

    def _cut_off(self, file: BinaryIO, look: _Look) -> None:
        """Move a torn tail to a file of its own, in which it is kept with those before it."""
        tail = self._tail(file, look, self.kept)
        file.seek(look.end)
        with open(self.kept, "ab") as kept:
            kept.write(file.read(tail.size) + b"\n")
            kept.flush()
            if self._durable:
                sync_file(kept)
        self.torn.append(tail)

    # --- the whole -----------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Delete the file, and what was torn of it.  Returns whether it had a record, one that can be read or not."""
        self._known = None
        with opened(self.path, write=True) as file:
            if file is None:
                return False
            body = self._demand_header(file)
            try:
                there = bool(body) and self._look(file).head > 0
            except StoreFailed:  # a session all the same, and perhaps deleted for that
                there = True
            remove(file, self.path)
            if os.path.exists(self.kept):
                os.unlink(self.kept)
            if self._durable:
                sync_folder(self._folder)
        return there

    def begin(self, lines: bytes) -> None:
        """Begin the session with these records, all or none of them whatever happens.

        Raises:
          SessionConflict: it has some.
        """
        self._known = None
        with new_file(self._folder) as (file, path):
            write_at(file, 0, self._header + lines)
            touch(file, path)
            if self._durable:
                sync_file(file)
            while not self._link(path):
                self._make_way()
            if self._durable:
                try:
                    sync_folder(self._folder)
                except OSError:
                    os.unlink(self.path)
                    raise

    def _link(self, path: str) -> bool:
        try:
            os.link(path, self.path)
        except FileExistsError:
            return False
        return True

    def _make_way(self) -> None:
        """Delete the file of an append that came to nothing."""
        with opened(self.path, write=True) as file:
            if file is not None:
                if self._look(file).head:
                    raise SessionConflict(f"session {self.session!r} has facts already; a fork begins a new session")
                remove(file, self.path)


def _identity(file: BinaryIO) -> tuple[int, int, int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
