"""What every session store must do: keep each log whole, in order and apart, whoever cancels or competes.

Knows nothing of files or databases: whoever asks brings a way to make a store with nothing in it.  What is
done with sessions as a whole stands in :mod:`._store_sessions`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, final

import trio

from ..._agent import Agent
from ..._facts import Custom, Fact
from ..._ports import SessionStore
from ..._written import read_fact, write_fact
from ...tools import tool
from .._answers import call, calls
from .._order import check_order
from .._script import ScriptedModel
from ._case import Case, cases_of, must_checkpoint, opened
from ._cuts import When, cut_at, cut_everywhere
from ._demands import AT_ONCE, MOMENT, Make, Rival, compete, demand, demand_conflict, demand_log
from ._logbook import NAMES, every_kind, notes, stamped, told, wild, written_by
from ._store_sessions import SessionsContract

__all__ = ["store_contract"]

_MANY: Final = 2_000


def store_contract(make: Make, *, virtual: bool = True) -> tuple[Case, ...]:
    """What :class:`~trio_agent.SessionStore` promises, as cases for a test's parameters.

    Args:
      make: gives a store with nothing in it, or a context manager around one; called once or more a case.
      virtual: whether time is virtual.  ``False`` for a store that has threads: a virtual clock jumps
        while they work.
    """
    contracts = (_StoreContract(make), SessionsContract(make))
    return tuple(case for contract in contracts for case in cases_of(contract, virtual=virtual))


@final
class _StoreContract:
    def __init__(self, make: Make) -> None:
        self._make = make

    def _open(self) -> AbstractAsyncContextManager[SessionStore]:
        return opened(self._make())

    # --- writing and reading -------------------------------------------------------------------------

    async def an_unknown_session_is_empty(self) -> None:
        """Nothing is read of a session that nothing was written to, and reading does not make it one."""
        async with self._open() as store:
            demand(await _read(store) == [], "a new session is not empty")
            demand(await _read(store, after=7) == [], "behind its end, a new session is not empty")
            demand(await store.append("s", notes(1, 1), expected_head=0) == 1, "its first fact is not the first")

    async def an_append_gives_the_new_head(self) -> None:
        """An append returns the position of the last fact that it wrote."""
        async with self._open() as store:
            heads = [await store.append("s", notes(first, count), expected_head=first - 1) for first, count in _BATCHES]
        expected = [first + count - 1 for first, count in _BATCHES]
        demand(heads == expected, f"expected the heads {expected}, got {heads}")

    async def what_was_written_is_read(self) -> None:
        """Facts of every kind are read as they were written, in order, with seq, time and place."""
        facts = every_kind()
        async with self._open() as store:
            await store.append("s", facts[:5], expected_head=0)
            await store.append("s", facts[5:], expected_head=5)
            await demand_log(store, facts)

    async def any_text_survives(self) -> None:
        """NUL, line ends of every kind, half surrogate pairs: a text is read as it was written."""
        facts = wild()
        async with self._open() as store:
            await store.append("s", facts, expected_head=0)
            await demand_log(store, facts)

    async def a_read_begins_where_it_is_told(self) -> None:
        """Reading after a position gives what comes behind it: all after 0, nothing after the head."""
        facts = notes(1, 5)
        async with self._open() as store:
            await store.append("s", facts, expected_head=0)
            for after in range(8):
                await demand_log(store, facts[after:], after=after)

    async def many_facts_are_one_batch(self) -> None:
        """Two thousand facts are written and read like two."""
        facts = notes(1, _MANY + 2)
        async with self._open() as store:
            head = await store.append("s", facts[:_MANY], expected_head=0)
            demand(head == _MANY, f"expected the head {_MANY}, got {head}")
            await store.append("s", facts[_MANY:], expected_head=_MANY)
            await demand_log(store, facts)
            await demand_log(store, facts[_MANY - 1 :], after=_MANY - 1)

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
                demand(given == head, f"expected the head {head}, got {given}")
                if head == 0:
                    await store.append("s", notes(1, 2), expected_head=0)
            await demand_log(store, notes(1, 2))

    # --- what is one's own ---------------------------------------------------------------------------

    async def sessions_do_not_mix(self) -> None:
        """Each session has a head and a log of its own."""
        async with self._open() as store:
            for head in range(3):
                for name in ("s", "t"):
                    await store.append(name, notes(head + 1, 1, name), expected_head=head)
            for name in ("s", "t"):
                await demand_log(store, notes(1, 3, name), name)

    async def names_that_look_alike_are_kept_apart(self) -> None:
        """Names that differ in anything are different sessions, whatever files or databases make of them."""
        async with self._open() as store:
            for name in NAMES:
                await store.append(name, notes(1, 1, name), expected_head=0)
            for name in NAMES:
                await demand_log(store, notes(1, 1, name), name)

    async def what_was_read_does_not_change(self) -> None:
        """What a read returned stays as it is, whatever is written later."""
        async with self._open() as store:
            await store.append("s", notes(1, 2), expected_head=0)
            read = [await store.read("s"), await store.read("s", after=1)]
            await store.append("s", notes(3, 2), expected_head=2)
            lengths = [len(facts) for facts in read]
            demand(lengths == [2, 1], f"2 and 1 facts were read; after an append they are {lengths}")

    async def the_batch_is_the_callers(self) -> None:
        """An append changes nothing in the facts that it is given, and keeps nothing of their list."""
        batch = notes(1, 2)
        before = told(batch)
        async with self._open() as store:
            await store.append("s", batch, expected_head=0)
            demand(told(batch) == before, "an append changed the facts that it was given")
            batch.append(batch[0])
            batch[0] = notes(9, 1)[0]
            await demand_log(store, notes(1, 2))
            demand(await store.append("s", notes(3, 1), expected_head=2) == 3, "the head is not 3")

    # --- competing -----------------------------------------------------------------------------------

    async def a_stale_head_is_a_conflict(self) -> None:
        """Who has not seen all that was written gets SessionConflict, and nothing is written."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            for head in (0, 1, 2, -1):
                await _demand_stale(store, head)
            await demand_log(store, notes(1, 3))
            demand(await store.append("s", notes(4, 1), expected_head=3) == 4, "after a conflict, the head is not 3")

    async def a_head_beyond_the_end_is_a_conflict(self) -> None:
        """Who claims to have seen more than was written gets SessionConflict too: a log has no gaps."""
        async with self._open() as store:
            await _demand_stale(store, 1)
            demand(await _read(store) == [], "a conflict left something behind")
            await store.append("s", notes(1, 3), expected_head=0)
            await _demand_stale(store, 4)
            await demand_log(store, notes(1, 3))

    async def of_several_at_once_one_wins(self) -> None:
        """Of several appends at once after the same head one writes; the others get SessionConflict."""
        async with self._open() as store:
            await store.append("s", notes(1, 1), expected_head=0)
            batches = [notes(2, 3, f"writer {number}") for number in range(AT_ONCE)]
            writers = [_writer(store, "s", batch, 1) for batch in batches]
            won = await compete(writers)
            demand(len(won) == 1, f"of {AT_ONCE} writers {len(won)} won")
            demand(won[0].value == 4, f"the winner was given the head {won[0].value}, not 4")
            await demand_log(store, [*notes(1, 1), *batches[writers.index(won[0])]])

    async def several_sessions_at_once_do_not_compete(self) -> None:
        """Appends at once to different sessions all succeed."""
        async with self._open() as store:
            for first in (1, 3, 5):
                writers = [_writer(store, f"s{n}", notes(first, 2, f"s{n}"), first - 1) for n in range(AT_ONCE)]
                await compete(writers)
                heads = [writer.value for writer in writers]
                demand(heads == [first + 1] * AT_ONCE, f"expected all heads to be {first + 1}, got {heads}")
            for number in range(AT_ONCE):
                await demand_log(store, notes(1, 6, f"s{number}"), f"s{number}")

    # --- writing again -------------------------------------------------------------------------------

    async def facts_that_are_there_count_as_written(self) -> None:
        """An append that is made again returns the head as before, and changes nothing."""
        facts = [*every_kind(), *_turned(len(every_kind()) + 1)]
        again = [read_fact(write_fact(fact)) for fact in facts]  # as another process has them
        end = len(facts)
        async with self._open() as store:
            for first, last in ((0, 5), (5, end), (0, end), (end - 1, end)):
                for batch in (facts, again):
                    given = await store.append("s", batch[first:last], expected_head=first)
                    demand(given == last, f"expected the head {last}, got {given}")
                    await _demand_written(store, facts[:last])

    async def the_rest_of_a_batch_is_written(self) -> None:
        """If the first facts of a batch stand there already, the rest is written behind them."""
        facts = every_kind()
        async with self._open() as store:
            for head in range(1, len(facts) + 1, 3):
                for first in (0, head // 2):
                    given = await store.append("s", facts[first:head], expected_head=first)
                    demand(given == head, f"expected the head {head}, got {given}")
                    await demand_log(store, facts[:head])

    async def other_facts_in_their_place_are_a_conflict(self) -> None:
        """What stands at a known position must be the same fact; otherwise nothing of the batch is written."""
        there = notes(1, 4)
        async with self._open() as store:
            await store.append("s", there, expected_head=0)
            for first in range(4):
                for other in range(first, 4):
                    batch = [*there[first:other], *notes(other + 1, 6 - other, "other")]
                    call = partial(store.append, "s", batch, expected_head=first)
                    await demand_conflict(call, f"an append after {first} whose fact {other + 1} is another")
                    await demand_log(store, there)
            demand(await store.append("s", notes(5, 1), expected_head=4) == 5, "after a conflict, the head is not 4")

    async def a_fact_of_another_journal_is_another(self) -> None:
        """The same words at the same place are another fact if another journal wrote them, or at another time."""
        there = written_by("a", notes(1, 3))
        others = {
            "of another journal": written_by("b", notes(1, 3)),
            "of no journal": written_by("", notes(1, 3)),
            "of another run": written_by("a", notes(1, 3), run="run2"),
            "of another moment": written_by("a", notes(1, 3), later=0.25),
        }
        async with self._open() as store:
            await store.append("s", there, expected_head=0)
            for whose, facts in others.items():
                for batch in (facts, facts[:1], [*there[:2], facts[2]]):
                    call = partial(store.append, "s", [*batch, *notes(len(batch) + 1, 2)], expected_head=0)
                    await demand_conflict(call, f"an append of facts {whose}")
                    await demand_log(store, there)

    async def facts_with_others_behind_them_are_a_conflict(self) -> None:
        """Who appends again what has been gone on from has not seen the head, and is told so."""
        there = notes(1, 4)
        async with self._open() as store:
            await store.append("s", there, expected_head=0)
            for first, end in ((0, 1), (0, 3), (1, 3), (2, 3)):
                call = partial(store.append, "s", there[first:end], expected_head=first)
                await demand_conflict(call, f"an append of facts {first + 1} to {end} of 4")
            await demand_log(store, there)

    async def an_append_of_nothing_needs_the_head_too(self) -> None:
        """An append of no facts after a head that is not the log's is a conflict as any other."""
        async with self._open() as store:
            await demand_conflict(lambda: store.append("s", [], expected_head=1), "an append of nothing after 1 of 0")
            await store.append("s", notes(1, 2), expected_head=0)
            for head in (0, 1, 3):
                call = partial(store.append, "s", [], expected_head=head)
                await demand_conflict(call, f"an append of nothing after {head} of 2")
            await demand_log(store, notes(1, 2))

    # --- cancellation --------------------------------------------------------------------------------

    async def an_append_is_atomic_under_cancellation(self) -> None:
        """Cut at any step, an append has written nothing if it raises Cancelled, and all if it returns."""
        async with self._open() as store:

            async def attempt(step: int, when: When) -> bool:
                session, place = f"{when} {step}", f"cut {when} step {step}"
                await store.append(session, notes(1, 2), expected_head=0)
                done = await cut_at(step, when, lambda: store.append(session, notes(3, 3), expected_head=2))
                head = 5 if done.returned else 2
                demand(done.value in (None, head), f"{place}, an append returned {done.value}, not {head}")
                fate = f"{place}, an append {'returned' if done.returned else 'raised Cancelled'}"
                await demand_log(store, notes(1, head), session, fate)
                await trio.sleep(MOMENT)
                await demand_log(store, notes(1, head), session, f"{fate}; later")
                await store.append(session, notes(head + 1, 1), expected_head=head)
                await demand_log(store, notes(1, head + 1), session, f"{fate}, and one more was made")
                return done.reached

            await cut_everywhere(attempt)

    async def a_read_that_is_cut_leaves_nothing_behind(self) -> None:
        """Cut at any step, a read raises Cancelled or returns all, and the store works on."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)

            async def attempt(step: int, when: When) -> bool:
                done = await cut_at(step, when, lambda: store.read("s"))
                if done.value is not None:
                    demand(told(done.value) == told(notes(1, 3)), f"cut {when} step {step}, it read {done.value}")
                demand(await store.append("s", [], expected_head=3) == 3, "after a read the head is not 3")
                await demand_log(store, notes(1, 3))
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
        demand((first.stop_reason, second.stop_reason) == ("stop", "stop"), f"the runs ended as {first} and {second}")
        demand([fact.seq for fact in log] == list(range(1, len(log) + 1)), "the log's positions are not 1, 2, 3, ...")
        check_order(log, facts_only=True, session=True)
        demand(0 < head < len(log), f"the first run has {head} of {len(log)} facts")
        said = [message.text for message in model.requests[-1].messages if message.role != "tool"]
        expected = ["Look.", "", "Both are empty.", "What was it?"]
        demand(said == expected, f"the second run's model was told {said}, not {expected}")


_BATCHES: Final = ((1, 1), (2, 3), (5, 2))
"""Where batches begin, and how many facts they have."""


async def look(path: str) -> str:
    """Look at a file."""
    return f"nothing in {path}"


def _writer(store: SessionStore, session: str, facts: list[Fact], head: int) -> Rival:
    return Rival(lambda: store.append(session, facts, expected_head=head))


def _turned(first: int) -> list[Fact]:
    """Facts that are equal only in their written form to what is read of them."""
    return stamped([Custom("note", {"pair": (1, 2), "whole": 1.0}), Custom("note", {"deep": [{"a": ()}]})], first)


async def _demand_written(store: SessionStore, expected: list[Fact]) -> None:
    """See that the log is this, in its written form: a store may return facts as they were, or as they were read."""
    read = [write_fact(fact) for fact in await store.read("s")]
    demand(read == [write_fact(fact) for fact in expected], f"expected {len(expected)} facts, got {read}")


async def _demand_stale(store: SessionStore, head: int) -> None:
    call = partial(store.append, "s", notes(head + 1, 2, "stale"), expected_head=head)
    await demand_conflict(call, f"an append after the wrong head {head}")


async def _read(store: SessionStore, after: int = 0) -> list[Fact]:
    return list(await store.read("s", after=after))
