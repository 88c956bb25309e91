"""What every session store must do with sessions as a whole: tell of them, forget them, begin one with another's facts.

The part of a store's contract that knows of more than one log; writing and reading one stands in :mod:`._store`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import pairwise, product
from typing import Final, final

import trio

from ..._ports import SessionStore
from ._case import must_checkpoint, opened
from ._cuts import When, cut_at, cut_everywhere
from ._demands import AT_ONCE, MOMENT, Make, Rival, compete, demand, demand_conflict, demand_heads, demand_log
from ._logbook import NAMES, every_kind, notes, told

__all__ = ["SessionsContract"]

_HOUR: Final = 3_600.0
"""Seconds by which clocks and files may differ; a clock of another kind differs by more."""


@final
class SessionsContract:
    """Cases about ``limit``, ``head``, ``list``, ``delete`` and ``fork``."""

    def __init__(self, make: Make) -> None:
        self._make = make

    def _open(self) -> AbstractAsyncContextManager[SessionStore]:
        return opened(self._make())

    # --- asking --------------------------------------------------------------------------------------

    async def a_read_takes_no_more_than_its_limit(self) -> None:
        """A read with a limit gives the first facts behind its position, and no more than that many."""
        facts = notes(1, 5)
        async with self._open() as store:
            await store.append("s", facts, expected_head=0)
            for after in range(7):
                for limit in (0, 1, 2, 5, 100, None):
                    read = await store.read("s", after=after, limit=limit)
                    wanted = facts[after:] if limit is None else facts[after : after + limit]
                    place = f"a read after {after} with limit={limit}"
                    demand(told(read) == told(wanted), f"{place}: expected {len(wanted)} facts, got {read}")
            demand(not await store.read("t", limit=3), "a new session is not empty")

    async def the_head_is_the_last_position(self) -> None:
        """Each session's head is the position of its last fact, and 0 before it has one."""
        async with self._open() as store:
            await _demand_head(store, "s", 0)
            for first, count in ((1, 1), (2, 3), (5, 2)):
                await store.append("s", notes(first, count), expected_head=first - 1)
                await _demand_head(store, "s", first + count - 1)
                await store.append("t", notes(first, count), expected_head=first - 1)
            await _demand_head(store, "u", 0)

    async def a_list_names_each_session_and_its_head(self) -> None:
        """A list has each session once, under its name whatever that is, with its head."""
        async with self._open() as store:
            await demand_heads(store, {})
            heads = {name: number % 3 + 1 for number, name in enumerate(NAMES)}
            for name, head in heads.items():
                await store.append(name, notes(1, head, name), expected_head=0)
            await demand_heads(store, heads)
            names = [info.session for info in await store.list()]
            demand(len(names) == len(set(names)), f"a session stands in the list twice: {names}")
            for name, head in heads.items():
                await _demand_head(store, name, head)

    async def the_session_written_to_last_is_first(self) -> None:
        """A list begins with the session that was written to last, and says when that was."""
        async with self._open() as store:
            latest: list[str] = []
            heads = dict.fromkeys("abc", 0)
            for name in "abccabbcaac":
                await store.append(name, notes(heads[name] + 1, 1), expected_head=heads[name])
                heads[name] += 1
                latest = [name, *(other for other in latest if other != name)]
                await _demand_order(store, latest)
            await store.fork("b", "d", at=2)
            await _demand_order(store, ["d", *latest])
            await store.read("b")
            await store.delete("a")
            latest.remove("a")
            await _demand_order(store, ["d", *latest])
            infos = await store.list()
            now = time.time()  # virtual clocks do not tell what time it is
            times = [info.updated for info in infos]
            demand(
                all(abs(now - each) < _HOUR for each in times), f"{times} are no seconds since the epoch: it is {now}"
            )
            demand(all(a >= b for a, b in pairwise(times)), f"the times in the list are not descending: {times}")

    async def asking_makes_no_session(self) -> None:
        """Neither a question nor what is refused makes a session: only what has facts is one."""
        async with self._open() as store:
            await store.append("s", notes(1, 2), expected_head=0)
            await store.read("a")
            await store.read("b", after=3, limit=1)
            await store.head("c")
            await store.delete("d")
            await store.append("e", [], expected_head=0)
            await demand_conflict(lambda: store.append("f", notes(3, 1), expected_head=2), "an append after 2 of 0")
            await _demand_no_fork(store, "g", "h", 1)
            await _demand_no_fork(store, "s", "i", 3)
            await demand_heads(store, {"s": 2})
            for name in "abcdefghi":
                demand(not await store.delete(name), f"there is a session {name!r}, which nobody has written to")

    async def whatever_is_asked_is_a_checkpoint(self) -> None:
        """Each method lets other tasks run, and notices a cancellation, also where there is nothing to do."""
        async with self._open() as store:
            for facts in ([], notes(1, 2)):
                await store.append("s", facts, expected_head=0)
                for call in (
                    lambda: store.read("s"),
                    lambda: store.read("s", after=9),
                    lambda: store.read("s", limit=0),
                    lambda: store.head("s"),
                    store.list,
                    lambda: store.delete("t"),
                ):
                    with must_checkpoint():
                        await call()
            with must_checkpoint():
                await store.fork("s", "t", at=1)
            with must_checkpoint():
                await store.delete("t")

    async def a_question_that_is_cut_leaves_nothing_behind(self) -> None:
        """Cut at any step, a question raises Cancelled or answers, and the store works on."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            questions: tuple[Callable[[], Awaitable[object]], ...] = (lambda: store.head("s"), store.list)
            for question in questions:

                async def attempt(step: int, when: When, question: Callable[[], Awaitable[object]] = question) -> bool:
                    done = await cut_at(step, when, question)
                    await _demand_head(store, "s", 3)
                    await demand_heads(store, {"s": 3})
                    await demand_log(store, notes(1, 3))
                    return done.reached

                await cut_everywhere(attempt)

    # --- forgetting ----------------------------------------------------------------------------------

    async def a_deletion_says_whether_there_was_one(self) -> None:
        """Deleting a session returns true once; there is nothing to delete before and after it."""
        async with self._open() as store:
            demand(await store.delete("s") is False, "an unknown session could be deleted")
            await store.append("s", notes(1, 2), expected_head=0)
            demand(await store.delete("s") is True, "a session with two facts could not be deleted")
            demand(await store.delete("s") is False, "a session could be deleted twice")

    async def a_deleted_session_is_new(self) -> None:
        """Nothing is left of a session that was deleted: it begins again at 0, and others are as they were."""
        async with self._open() as store:
            for name in ("s", "t", "S"):
                await store.append(name, notes(1, 3, name), expected_head=0)
            for mark in ("first", "second"):
                await store.delete("s")
                await demand_heads(store, {"t": 3, "S": 3})
                await _demand_head(store, "s", 0)
                await demand_log(store, [])
                await store.append("s", notes(1, 2, mark), expected_head=0)
                await demand_log(store, notes(1, 2, mark))
                await demand_heads(store, {"s": 2, "t": 3, "S": 3})
            for name in ("t", "S"):
                await demand_log(store, notes(1, 3, name), name)

    async def names_that_look_alike_are_deleted_apart(self) -> None:
        """Deleting a session leaves those alone whose names differ in anything."""
        async with self._open() as store:
            for name in NAMES:
                await store.append(name, notes(1, 1, name), expected_head=0)
            left = dict.fromkeys(NAMES, 1)
            for name in NAMES[::2]:
                demand(await store.delete(name), f"session {name!r} could not be deleted")
                del left[name]
            await demand_heads(store, left)
            for name in left:
                await demand_log(store, notes(1, 1, name), name)

    async def of_several_deletions_at_once_one_is_told(self) -> None:
        """Of several deletions at once one is told that there was a session."""
        async with self._open() as store:
            await store.append("s", notes(1, 2), expected_head=0)
            rivals = [Rival(lambda: store.delete("s")) for _ in range(AT_ONCE)]
            await compete(rivals)
            told_so = [rival.value for rival in rivals].count(True)
            demand(told_so == 1, f"of {AT_ONCE} deletions {told_so} were told that there was a session")

    async def a_deletion_is_atomic_under_cancellation(self) -> None:
        """Cut at any step, a deletion has deleted nothing if it raises Cancelled, and all if it returns."""
        async with self._open() as store:

            async def attempt(step: int, when: When) -> bool:
                session = f"{when} {step}"
                await store.append(session, notes(1, 2), expected_head=0)
                done = await cut_at(step, when, lambda: store.delete(session))
                demand(done.value in (None, True), f"cut {when} step {step}, a deletion returned {done.value}")
                fate = f"cut {when} step {step}, a deletion {'returned' if done.returned else 'raised Cancelled'}"
                await _demand_fate(store, session, 0 if done.returned else 2, fate)
                return done.reached

            await cut_everywhere(attempt)

    # --- beginning with another's facts --------------------------------------------------------------

    async def a_fork_has_the_first_facts(self) -> None:
        """A fork begins with the first facts of its source, each as it was, its stamp included."""
        facts = every_kind()
        async with self._open() as store:
            await store.append("s", facts[:4], expected_head=0)
            await store.append("s", facts[4:], expected_head=4)
            heads = {"s": len(facts)}
            for at in range(1, len(facts) + 1):
                await store.fork("s", f"at {at}", at=at)
                await demand_log(store, facts[:at], f"at {at}")
                await _demand_head(store, f"at {at}", at)
                heads[f"at {at}"] = at
            await demand_log(store, facts)
            await demand_heads(store, heads)

    async def a_fork_and_its_source_go_on_apart(self) -> None:
        """What is written to a fork or to its source, or done to it, does not show in the other."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            await store.fork("s", "t", at=2)
            await store.fork("s", "w", at=3)
            await store.append("t", notes(3, 2, "t"), expected_head=2)
            await store.append("s", notes(4, 1, "s"), expected_head=3)
            await store.fork("t", "u", at=3)
            logs = {
                "s": [*notes(1, 3), *notes(4, 1, "s")],
                "t": [*notes(1, 2), *notes(3, 2, "t")],
                "u": [*notes(1, 2), *notes(3, 1, "t")],
                "w": notes(1, 3),
            }
            while logs:
                for name, log in logs.items():
                    await demand_log(store, log, name)
                await demand_heads(store, {name: len(log) for name, log in logs.items()})
                gone = next(iter(logs))  # the source first
                await store.delete(gone)
                del logs[gone]

    async def names_that_look_alike_are_forked_apart(self) -> None:
        """A fork may have any name, and its source too."""
        async with self._open() as store:
            for name in NAMES:
                await store.append(f"of {name}", notes(1, 2, name), expected_head=0)
                await store.fork(f"of {name}", name, at=1)
            for name in NAMES:
                await demand_log(store, notes(1, 1, name), name)

    async def a_fork_needs_a_new_session(self) -> None:
        """A fork to a session that has facts is a conflict, and nothing is written; one that was deleted is new."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            await store.append("t", notes(1, 1, "t"), expected_head=0)
            for to in ("t", "s"):
                for at in (1, 3):
                    await demand_conflict(partial(store.fork, "s", to, at=at), f"a fork to {to!r}, which has facts,")
            await demand_log(store, notes(1, 3))
            await demand_log(store, notes(1, 1, "t"), "t")
            await store.delete("t")
            await store.fork("s", "t", at=3)
            await demand_log(store, notes(1, 3), "t")

    async def a_fork_needs_the_facts_that_it_asks_for(self) -> None:
        """A fork at a position that its source has not is a ValueError, and makes no session."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)
            for session, at in (("s", 0), ("s", -1), ("s", 4), ("s", 100), ("u", 0), ("u", 1)):
                await _demand_no_fork(store, session, "t", at)
                await _demand_head(store, "t", 0)
                await demand_heads(store, {"s": 3})

    async def of_several_forks_at_once_one_wins(self) -> None:
        """Of forks and first appends to one session at once one writes; the others get SessionConflict."""
        async with self._open() as store:
            for number in range(AT_ONCE):
                await store.append(f"s{number}", notes(1, 2, f"s{number}"), expected_head=0)
            sources = [notes(1, 2, f"s{number}") for number in range(AT_ONCE)]
            new = [notes(1, 2, f"new {number}") for number in range(AT_ONCE)]
            for steps, turned in product(range(4), (False, True)):
                to = f"t{steps} {turned}"
                forks = [Rival(partial(store.fork, f"s{number}", to, at=2)) for number in range(AT_ONCE)]
                appends = [Rival(partial(store.append, to, batch, expected_head=0)) for batch in new]
                won = await (compete(appends, forks, steps) if turned else compete(forks, appends, steps))
                demand(len(won) == 1, f"of {2 * AT_ONCE} writers {len(won)} won")
                batches = dict(zip([*forks, *appends], [*sources, *new], strict=True))
                await demand_log(store, batches[won[0]], to)

    async def a_fork_is_atomic_under_cancellation(self) -> None:
        """Cut at any step, a fork has written nothing if it raises Cancelled, and all if it returns."""
        async with self._open() as store:
            await store.append("s", notes(1, 3), expected_head=0)

            async def attempt(step: int, when: When) -> bool:
                to = f"{when} {step}"
                done = await cut_at(step, when, lambda: store.fork("s", to, at=2))
                fate = f"cut {when} step {step}, a fork {'returned' if done.returned else 'raised Cancelled'}"
                await _demand_fate(store, to, 2 if done.returned else 0, fate)
                await demand_log(store, notes(1, 3), "s", fate)
                return done.reached

            await cut_everywhere(attempt)


async def _demand_head(store: SessionStore, session: str, expected: int) -> None:
    head = await store.head(session)
    demand(head == expected, f"session {session!r}: expected the head {expected}, got {head}")


async def _demand_order(store: SessionStore, expected: list[str]) -> None:
    names = [info.session for info in await store.list()]
    demand(names == expected, f"expected the sessions {expected}, the one written to last first; got {names}")


async def _demand_no_fork(store: SessionStore, session: str, to: str, at: int) -> None:
    try:
        await store.fork(session, to, at=at)
    except ValueError:
        return
    raise AssertionError(f"a fork at {at} of a session with fewer facts was made; expected ValueError")


async def _demand_fate(store: SessionStore, session: str, head: int, fate: str) -> None:
    """See that a session has so many notes, now and later, and goes on from there."""
    for place in (fate, f"{fate}; later"):
        await demand_log(store, notes(1, head), session, place)
        heads: Mapping[str, int] = {info.session: info.head for info in await store.list()}
        demand(heads.get(session, 0) == head, f"{place}: the list tells the head {heads.get(session, 0)}, not {head}")
        await trio.sleep(MOMENT)
    await store.append(session, notes(head + 1, 1), expected_head=head)
    await demand_log(store, notes(1, head + 1), session, f"{fate}, and one more fact was written")
