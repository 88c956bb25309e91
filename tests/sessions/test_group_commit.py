"""Appends that come while a commit is under way are the next commit, and whoever is cancelled loses nothing for others."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import outcome
import pytest
import trio

from tests.sessions.sqlite_stage import REAL, log_of, notes, outside, texts, until_blocked
from trio_agent import SessionConflict, StoreFailed
from trio_agent.sessions import SQLiteStore
from trio_agent.sessions._group_commit import GroupCommit
from trio_agent.testing._contracts._cuts import When, cut_at, cut_everywhere


@attrs.define(eq=False)
class Desk:
    """Commits numbers, one batch each time that the gate is opened."""

    batches: list[list[int]] = attrs.field(factory=list)
    gate: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    begun: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    def commit(self, items: Sequence[int]) -> Sequence[outcome.Outcome[int]]:
        self.begun.release()
        assert self.gate.acquire(timeout=REAL)
        self.batches.append(list(items))
        return [outcome.Value(-item) if item >= 0 else outcome.Error(ValueError(item)) for item in items]

    async def until_begun(self) -> None:
        while not self.begun.acquire(blocking=False):
            await trio.lowlevel.checkpoint()


async def test_what_comes_meanwhile_is_one_batch_and_each_gets_its_own_result() -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)
    got: dict[int, int | None] = {}

    async def ask(item: int) -> None:
        try:
            got[item] = await group.together(item)
        except ValueError:
            got[item] = None

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            await desk.until_begun()
            for item in (2, -3, 4):
                nursery.start_soon(ask, item)
                await until_blocked()
            desk.gate.release(2)
    assert desk.batches == [[1], [2, -3, 4]]
    assert got == {1: -1, 2: -2, -3: None, 4: -4}


async def test_who_is_cancelled_in_the_queue_takes_it_back_and_who_is_being_committed_returns() -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)
    scopes = {item: trio.CancelScope() for item in range(1, 6)}
    got: list[int] = []

    async def ask(item: int) -> None:
        with scopes[item]:
            got.append(await group.together(item))

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            await desk.until_begun()
            for item in (2, 3, 4, 5):
                nursery.start_soon(ask, item)
                await until_blocked()
            for item in (1, 2, 4):
                scopes[item].cancel()
            await until_blocked()
            assert [scope.cancelled_caught for scope in scopes.values()] == [False, True, False, True, False]
            desk.gate.release()
            await desk.until_begun()
            scopes[3].cancel()
            desk.gate.release()
    assert desk.batches == [[1], [3, 5]]
    assert sorted(got) == [-5, -3, -1]
    assert [scope.cancelled_caught for scope in scopes.values()] == [False, True, False, True, False]


async def test_a_queue_that_everybody_has_left_begins_nothing() -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)
    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.together, 1)
            await desk.until_begun()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as inner:
                    for item in (2, 3):
                        inner.start_soon(group.together, item)
                    await until_blocked()
                    scope.cancel()
            desk.gate.release()
        desk.gate.release()
        assert await group.together(4) == -4
    assert desk.batches == [[1], [4]]


async def test_what_waits_longest_is_next() -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)

    def function(name: int) -> Callable[[], None]:
        return lambda: desk.batches.append([name])

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.together, 1)
            await desk.until_begun()
            for name, item in ((101, 2), (102, 3)):
                nursery.start_soon(group.alone, function(name))
                await until_blocked()
                nursery.start_soon(group.together, item)
                await until_blocked()
            desk.gate.release(2)
    assert desk.batches == [[1], [101], [2, 3], [102]]


async def test_closing_is_not_cut() -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)
    called: list[str] = []
    scope = trio.CancelScope()

    async def close() -> None:
        with scope:
            await group.alone(lambda: called.append("closed"), uncut=True)
            called.append("and told")

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.together, 1)
            await desk.until_begun()
            nursery.start_soon(close)
            await until_blocked()
            scope.cancel()
            await until_blocked()
            assert called == []
            desk.gate.release()
        with trio.CancelScope() as late:
            late.cancel()
            await group.alone(lambda: called.append("closed again"), uncut=True)
    assert called == ["closed", "and told", "closed again"]


async def test_a_commit_that_breaks_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(items: Sequence[int]) -> Sequence[outcome.Outcome[int]]:
        raise RuntimeError(f"broken: {list(items)}")

    group = GroupCommit(commit)
    with trio.fail_after(REAL):
        for item in (1, 2):
            with pytest.raises(RuntimeError, match=rf"broken: \[{item}\]"):
                await group.together(item)


async def test_without_a_thread_each_is_told_and_later_ones_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    group = GroupCommit(desk.commit)
    start = trio.lowlevel.start_thread_soon
    told: list[str] = []

    def refuse(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    async def ask(item: int) -> None:
        with pytest.raises(StoreFailed, match="no thread can be started to work in: can't start new thread") as caught:
            await group.together(item)
        told.append(str(caught.value))

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.together, 1)
            await desk.until_begun()
            for item in (2, 3):
                nursery.start_soon(ask, item)
            await until_blocked()
            monkeypatch.setattr(trio.lowlevel, "start_thread_soon", refuse)
            desk.gate.release()
        with trio.testing.assert_checkpoints():
            await ask(4)
        monkeypatch.setattr(trio.lowlevel, "start_thread_soon", start)
        desk.gate.release()
        assert await group.together(5) == -5
    assert len(told) == 3
    assert desk.batches == [[1], [5]]


# --- cut anywhere -----------------------------------------------------------------------------------------------------


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread would do is done in a later step of the loop: every course is the same each time."""

    def start(function: Callable[[], object], deliver: Callable[[outcome.Outcome[object]], object]) -> None:
        token = trio.lowlevel.current_trio_token()
        token.run_sync_soon(token.run_sync_soon, lambda: deliver(outcome.capture(function)))

    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", start)


@pytest.mark.parametrize("place", range(4))
def test_one_of_four_is_cut_at_each_step_and_nobody_is_forgotten(no_threads: None, place: int) -> None:
    fates: set[bool] = set()

    async def attempt(step: int, when: When) -> bool:
        written: list[int] = []

        def commit(items: Sequence[int]) -> Sequence[outcome.Outcome[int]]:
            written.extend(items)
            return [outcome.Value(-item) for item in items]

        group = GroupCommit(commit)
        done: list[bool] = []

        async def ask(item: int) -> None:
            if item == place:
                cut = await cut_at(step, when, lambda: group.together(item))
                done.append(cut.reached)
                assert cut.returned == (item in written), f"{when} step {step}: {cut}, {written}"
                fates.add(cut.returned)
            else:
                assert await group.together(item) == -item
                await trio.lowlevel.checkpoint()
            assert await group.together(item + 10) == -item - 10

        async with trio.open_nursery() as nursery:
            for item in range(4):
                nursery.start_soon(ask, item)
        assert sorted({*written} | {place}) == [0, 1, 2, 3, 10, 11, 12, 13]
        assert len(written) == len({*written})
        return done == [True]

    async def main() -> None:
        with trio.fail_after(REAL):
            await cut_everywhere(attempt)

    trio.run(main)
    assert fates == {True, False}


# --- over SQLite ------------------------------------------------------------------------------------------------------


async def test_a_conflict_of_one_does_not_spoil_the_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fates: dict[str, int | type[Exception]] = {}

    async def append(name: str, session: str, first: int) -> None:
        try:
            fates[name] = await store.append(session, notes(first, 2, name), expected_head=first - 1)
        except SessionConflict as error:
            fates[name] = type(error)

    with trio.fail_after(REAL), outside(path) as other:
        async with SQLiteStore(path, busy_timeout=REAL) as store:
            await store.append("s", notes(1, 2), expected_head=0)
            other.execute("BEGIN IMMEDIATE")
            async with trio.open_nursery() as nursery:
                for each in [
                    ("first", "a", 1),
                    ("stale", "s", 1),
                    ("gap", "s", 9),
                    ("next", "s", 3),
                    ("after it", "s", 5),
                    ("too late", "s", 5),
                    ("last", "b", 1),
                ]:
                    nursery.start_soon(append, *each)
                    await until_blocked()
                other.execute("ROLLBACK")
            assert fates == {
                "first": 2,
                "stale": SessionConflict,
                "gap": SessionConflict,
                "next": 4,
                "after it": 6,
                "too late": SessionConflict,
                "last": 2,
            }
            assert await log_of(store) == texts([*notes(1, 2), *notes(3, 2, "next"), *notes(5, 2, "after it")])
            await store.check()


@pytest.mark.parametrize("seed", range(3))
async def test_hundreds_of_appends_are_cut_at_random(tmp_path: Path, seed: int) -> None:
    """Returned: it is there.  Cancelled: it is not."""
    rng = random.Random(seed)
    doomed: dict[trio.CancelScope, int] = {}  # and the steps that are left to them
    fates = {True: 0, False: 0}

    async def write(store: SQLiteStore, session: str) -> None:
        kept: list[str] = []
        for number in range(40):
            batch = notes(len(kept) + 1, 2, f"{session} {number}")
            with trio.CancelScope() as scope:
                if rng.randrange(2):
                    doomed[scope] = rng.randrange(20)
                await store.append(session, batch, expected_head=len(kept))
            doomed.pop(scope, None)
            fates[not scope.cancelled_caught] += 1
            if not scope.cancelled_caught:
                kept += texts(batch)
            if number % 8 == 0:
                assert await log_of(store, session) == kept
        assert await log_of(store, session) == kept

    async def cut() -> None:
        while True:
            for scope in [scope for scope, steps in doomed.items() if steps == 0]:
                scope.cancel()
                del doomed[scope]
            for scope in doomed:
                doomed[scope] -= 1
            await trio.lowlevel.checkpoint()

    with trio.fail_after(REAL):
        async with SQLiteStore(tmp_path / "s.db", durability="process") as store, trio.open_nursery() as cutters:
            cutters.start_soon(cut)
            async with trio.open_nursery() as writers:
                for number in range(8):
                    writers.start_soon(write, store, f"s{number}")
            await store.check()
            cutters.cancel_scope.cancel()
    assert sum(fates.values()) == 320
    assert min(fates.values()) > 10, fates
