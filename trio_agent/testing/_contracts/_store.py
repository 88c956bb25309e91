"""What every session store must do: keep each log whole, in order and apart, whoever cancels or competes.

Knows nothing of files or databases: whoever asks brings a way to make a store with nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias, final

import attrs
import trio

from ..._agent import Agent
from ..._errors import SessionConflict
from ..._facts import Fact
from ..._ports import SessionStore
from ...tools import tool
from .._answers import call, calls
from .._order import check_order
from .._script import ScriptedModel
from ._case import Case, cases_of, must_checkpoint, opened
from ._cuts import When, cut_at, cut_everywhere
from ._logbook import LONG_NAME, every_kind, notes, told, wild

__all__ = ["store_contract"]

_Make: TypeAlias = Callable[[], "AbstractAsyncContextManager[SessionStore] | SessionStore"]

_MOMENT: Final = 0.01
"""Seconds in which a write that outlived its call would show."""
_MANY: Final = 2_000
_AT_ONCE: Final = 8

_NAMES: Final = (
    *(
        "a",
        "A",
        "a/b",
        "a\\b",
        "a:b",
        "a.b",
        "a%2Fb",
        "a b",
        "a ",
        " a",
        "a\n",
        "a\0b",
        "a'b",
        'a"b',
        "a;b",
        "a_b",
        "a%b",
    ),
    *(".", "..", "../a", "/a", "~", "con", "*", "-a", "None", "0", "00"),
    *("\u00e9", "e\u0301", "\u212b", "\u00c5", "ß", "ss", "搜索", "👋🏽", "\u202ea"),
    *(LONG_NAME, LONG_NAME + "a"),
)
"""Names of sessions that files, tables, queries and normal forms would take for one another."""


def store_contract(make: _Make, *, virtual: bool = True) -> tuple[Case, ...]:
    """What :class:`~trio_agent.SessionStore` promises, as cases for a test's parameters.

    Args:
      make: gives a store with nothing in it, or a context manager around one; called once or more a case.
      virtual: whether time is virtual.  ``False`` for a store that has threads: a virtual clock jumps
        while they work.
    """
    return cases_of(_StoreContract(make), virtual=virtual)


@final
class _StoreContract:
    def __init__(self, make: _Make) -> None:
        self._make = make

    def _open(self) -> AbstractAsyncContextManager[SessionStore]:
        return opened(self._make())

    # --- writing and reading -------------------------------------------------------------------------

    async def an_unknown_session_is_empty(self) -> None:
        """Nothing is read of a session that nothing was written to, and reading does not make it one."""
        async with self._open() as store:
            _demand(await _read(store) == [], "a new session is not empty")
            _demand(await _read(store, after=7) == [], "behind its end, a new session is not empty")
            _demand(await store.append("s", notes(1, 1), expected_head=0) == 1, "its first fact is not the first")

    async def an_append_gives_the_new_head(self) -> None:
        """An append returns the position of the last fact that it wrote."""
        async with self._open() as store:
            heads = [await store.append("s", notes(first, count), expected_head=first - 1) for first, count in _BATCHES]
        expected = [first + count - 1 for first, count in _BATCHES]
        _demand(heads == expected, f"expected the heads {expected}, got {heads}")

    async def what_was_written_is_read(self) -> None:
        """Facts of every kind are read as they were written, in order, with seq, time and place."""
        facts = every_kind()
        async with self._open() as store:
            await store.append("s", facts[:5], expected_head=0)
            await store.append("s", facts[5:], expected_head=5)
            await _demand_log(store, facts)

    async def any_text_survives(self) -> None:
        """NUL, line ends of every kind, half surrogate pairs: a text is read as it was written."""
        facts = wild()
        async with self._open() as store:
            await store.append("s", facts, expected_head=0)
            await _demand_log(store, facts)

    async def a_read_begins_where_it_is_told(self) -> None:
        """Reading after a position gives what comes behind it: all after 0, nothing after the head."""
        facts = notes(1, 5)
        async with self._open() as store:
            await store.append("s", facts, expected_head=0)
            for after in range(8):
                await _demand_log(store, facts[after:], after=after)

    async def many_facts_are_one_batch(self) -> None:
        """Two thousand facts are written and read like two."""
        facts = notes(1, _MANY + 2)
        async with self._open() as store:
            head = await store.append("s", facts[:_MANY], expected_head=0)
            _demand(head == _MANY, f"expected the head {_MANY}, got {head}")
            await store.append("s", facts[_MANY:], expected_head=_MANY)
            await _demand_log(store, facts)
            await _demand_log(store, facts[_MANY - 1 :], after=_MANY - 1)

    async def an_append_is_a_checkpoint(self) -> None:
        """An append lets other tasks run, and notices a cancellation."""
        async with self._open() as store:
            with must_checkpoint():
                await store.append("s", notes(1, 1), expected_head=0)

    async def an_append_of_nothing_is_one_too(self) -> None:
        """An append of no facts gives the head and writes nothing; it is a checkpoint as well."""
        async with self._open() as store:
            for head in (0, 2):
                with must_checkpoint():
                    given = await store.append("s", [], expected_head=head)
                _demand(given == head, f"expected the head {head}, got {given}")
                if head == 0:
                    await store.append("s", notes(1, 2), expected_head=0)
            await _demand_log(store, notes(1, 2))

    # --- what is one's own ---------------------------------------------------------------------------

    async def sessions_do_not_mix(self) -> None:
        """Each session has a head and a log of its own."""
        async with self._open() as store:
            for head in range(3):
                for name in ("s", "t"):
                    await store.append(name, notes(head + 1, 1, name), expected_head=head)
            for name in ("s", "t"):
                await _demand_log(store, notes(1, 3, name), name)

    async def names_that_look_alike_are_kept_apart(self) -> None:
        """Names that differ in anything are different sessions, whatever files or databases make of them."""
        async with self._open() as store:
            for name in _NAMES:
                await store.append(name, notes(1, 1, name), expected_head=0)
            for name in _NAMES:
                await _demand_log(store, notes(1, 1, name), name)

    async def what_was_read_does_not_change(self) -> None:
        """What a read returned stays as it is, whatever is written later."""
        async with self._open() as store:
            await store.append("s", notes(1, 2), expected_head=0)
            read = [await store.read("s"), await store.read("s", after=1)]
            await store.append("s", notes(3, 2), expected_head=2)
            lengths = [len(facts) for facts in read]
            _demand(lengths == [2, 1], f"2 and 1 facts were read; after an append they are {lengths}")

    async def the_batch_is_the_callers(self) -> None:
        """An append changes nothing in the facts that it is given, and keeps nothing of their list."""
        batch = notes(1, 2)
        before = told(batch)
        async with self._open() as store:
            await store.append("s", batch, expected_head=0)
            _demand(told(batch) == before, "an append changed the facts that it was given")
            batch.append(batch[0])
            batch[0] = notes(9, 1)[0]
            await _demand_log(store, notes(1, 2))
            _demand(await store.append("s", notes(3, 1), expected_head=2) == 3, "the head is not 3")

    # --- competing -----------------------------------------------------------------------------------

    async def a_stale_head_is_a_conflict(self) -> None:
        """Who has not seen all that was written gets SessionConflict, and nothing is written."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            for head in (0, 1, 2):
                await _demand_conflict(store, head)
            await _demand_log(store, notes(1, 3))
            _demand(await store.append("s", notes(4, 1), expected_head=3) == 4, "after a conflict, the head is not 3")

    async def a_head_beyond_the_end_is_a_conflict(self) -> None:
        """Who claims to have seen more than was written gets SessionConflict too: a log has no gaps."""
        async with self._open() as store:
            await _demand_conflict(store, 1)
            _demand(await _read(store) == [], "a conflict left something behind")
            await store.append("s", notes(1, 3), expected_head=0)
            await _demand_conflict(store, 4)
            await _demand_log(store, notes(1, 3))

    async def of_several_at_once_one_wins(self) -> None:
        """Of several appends at once after the same head one writes; the others get SessionConflict."""
        async with self._open() as store:
            await store.append("s", notes(1, 1), expected_head=0)
            writers = [_Writer(store, "s", notes(2, 3, f"writer {number}"), 1) for number in range(_AT_ONCE)]
            await _run(writers)
            won = [writer for writer in writers if writer.head is not None]
            _demand(len(won) == 1, f"of {_AT_ONCE} writers {len(won)} won")
            _demand(won[0].head == 4, f"the winner was given the head {won[0].head}, not 4")
            await _demand_log(store, [*notes(1, 1), *won[0].facts])

    async def several_sessions_at_once_do_not_compete(self) -> None:
        """Appends at once to different sessions all succeed."""
        async with self._open() as store:
            for first in (1, 3, 5):
                writers = [_Writer(store, f"s{n}", notes(first, 2, f"s{n}"), first - 1) for n in range(_AT_ONCE)]
                await _run(writers)
                heads = [writer.head for writer in writers]
                _demand(heads == [first + 1] * _AT_ONCE, f"expected all heads to be {first + 1}, got {heads}")
            for number in range(_AT_ONCE):
                await _demand_log(store, notes(1, 6, f"s{number}"), f"s{number}")

    # --- cancellation --------------------------------------------------------------------------------

    async def an_append_is_atomic_under_cancellation(self) -> None:
        """Cut at any step, an append has written nothing if it raises Cancelled, and all if it returns."""
        async with self._open() as store:

            async def attempt(step: int, when: When) -> bool:
                session, place = f"{when} {step}", f"cut {when} step {step}"
                await store.append(session, notes(1, 2), expected_head=0)
                done = await cut_at(step, when, lambda: store.append(session, notes(3, 3), expected_head=2))
                head = 5 if done.returned else 2
                _demand(done.value in (None, head), f"{place}, an append returned {done.value}, not {head}")
                fate = f"{place}, an append {'returned' if done.returned else 'raised Cancelled'}"
                await _demand_log(store, notes(1, head), session, fate)
                await trio.sleep(_MOMENT)
                await _demand_log(store, notes(1, head), session, f"{fate}; later")
                await store.append(session, notes(head + 1, 1), expected_head=head)
                await _demand_log(store, notes(1, head + 1), session, f"{fate}, and one more was made")
                return done.reached

            await cut_everywhere(attempt)

    async def a_read_that_is_cut_leaves_nothing_behind(self) -> None:
        """Cut at any step, a read raises Cancelled or returns all, and the store works on."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)

            async def attempt(step: int, when: When) -> bool:
                done = await cut_at(step, when, lambda: store.read("s"))
                if done.value is not None:
                    _demand(told(done.value) == told(notes(1, 3)), f"cut {when} step {step}, it read {done.value}")
                _demand(await store.append("s", [], expected_head=3) == 3, "after a read the head is not 3")
                await _demand_log(store, notes(1, 3))
                return done.reached

            await cut_everywhere(attempt)

    # --- runs ----------------------------------------------------------------------------------------

    async def runs_go_on_where_others_ended(self) -> None:
        """A run is logged whole, and the next one of its session begins with its history."""
        model = ScriptedModel(calls(call("look", path="a"), call("look", path="b")), "Both are empty.", "You asked.")
        async with self._open() as store:
            agent = Agent(model, tools=[tool(look)], store=store)
            first = await agent.send("Look.", session="s")
            head = len(await store.read("s"))
            second = await agent.send("What was it?", session="s")
            log = await store.read("s")
        _demand((first.stop_reason, second.stop_reason) == ("stop", "stop"), f"the runs ended as {first} and {second}")
        _demand([fact.seq for fact in log] == list(range(1, len(log) + 1)), "the log's positions are not 1, 2, 3, ...")
        check_order(log, facts_only=True, session=True)
        _demand(0 < head < len(log), f"the first run has {head} of {len(log)} facts")
        said = [message.text for message in model.requests[-1].messages if message.role != "tool"]
        expected = ["Look.", "", "Both are empty.", "What was it?"]
        _demand(said == expected, f"the second run's model was told {said}, not {expected}")


_BATCHES: Final = ((1, 1), (2, 3), (5, 2))
"""Where batches begin, and how many facts they have."""


async def look(path: str) -> str:
    """Look at a file."""
    return f"nothing in {path}"


@attrs.define(eq=False)
class _Writer:
    """One append, and what came of it."""

    store: SessionStore
    session: str
    facts: list[Fact]
    expected_head: int
    head: int | None = None
    """What it returned; ``None``: it lost."""

    async def write(self) -> None:
        try:
            self.head = await self.store.append(self.session, self.facts, expected_head=self.expected_head)
        except SessionConflict:
            self.head = None


async def _run(writers: Sequence[_Writer]) -> None:
    async with trio.open_nursery() as nursery:
        for writer in writers:
            nursery.start_soon(writer.write)


async def _read(store: SessionStore, after: int = 0) -> list[Fact]:
    return list(await store.read("s", after=after))


async def _demand_log(
    store: SessionStore, expected: Sequence[Fact], session: str = "s", place: str = "", *, after: int = 0
) -> None:
    """See that the log is this; ``after`` is asked for only where it is the point."""
    read = await store.read(session, after=after) if after else await store.read(session)
    found, wanted = told(read), told(expected)
    if found == wanted:
        return
    place = place or f"session {session!r}" + (f" after {after}" if after else "")
    if len(found) != len(wanted):
        raise AssertionError(f"{place}: expected {len(wanted)} facts, got {len(found)}")
    number = next(index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
    raise AssertionError(f"{place}: fact {number} of what was read is {found[number]}, not {wanted[number]}")


async def _demand_conflict(store: SessionStore, head: int) -> None:
    try:
        given = await store.append("s", notes(head + 1, 2, "stale"), expected_head=head)
    except SessionConflict:
        return
    raise AssertionError(f"an append after the wrong head {head} returned {given}; expected SessionConflict")


def _demand(truth: bool, complaint: str) -> None:
    if not truth:
        raise AssertionError(complaint)
