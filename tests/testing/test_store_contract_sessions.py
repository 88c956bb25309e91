"""Stores that break one promise about sessions as a whole are convicted of that one."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from tests.testing.plain_store import Plain, convicted
from trio_agent import Fact
from trio_agent._ports import SessionInfo

LIMIT = "a_read_takes_no_more_than_its_limit"
HEAD = "the_head_is_the_last_position"
LIST = "a_list_names_each_session_and_its_head"
ORDER = "the_session_written_to_last_is_first"
ASKING = "asking_makes_no_session"
CHECKPOINT = "whatever_is_asked_is_a_checkpoint"
CUT_QUESTION = "a_question_that_is_cut_leaves_nothing_behind"
WHETHER = "a_deletion_says_whether_there_was_one"
NEW_AGAIN = "a_deleted_session_is_new"
DELETED_APART = "names_that_look_alike_are_deleted_apart"
ONE_IS_TOLD = "of_several_deletions_at_once_one_is_told"
ATOMIC_DELETION = "a_deletion_is_atomic_under_cancellation"
FIRST_FACTS = "a_fork_has_the_first_facts"
APART = "a_fork_and_its_source_go_on_apart"
TO_NEW = "a_fork_needs_a_new_session"
AT = "a_fork_needs_the_facts_that_it_asks_for"

# ------------------------------------------------------------------------------------------ asking


class Unlimited(Plain):
    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await super().read(session, after=after)


class Absolute(Plain):
    """A limit is a position to it."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return (await super().read(session))[after:limit]


class FalsyLimit(Plain):
    """No facts are all facts."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await super().read(session, after=after, limit=limit or None)


class CountsFromZero(Plain):
    async def head(self, session: str) -> int:
        return max(await super().head(session) - 1, 0)


class CountsAll(Plain):
    async def head(self, session: str) -> int:
        await trio.lowlevel.checkpoint()
        return sum(map(len, self.logs.values()))


class Roundabout(Plain):
    """Its list does not tell heads."""

    def info(self, session: str, head: int) -> SessionInfo:
        return super().info(session, 1)


class OldestFirst(Plain):
    async def list(self) -> Sequence[SessionInfo]:
        return (await super().list())[::-1]


class AsMade(Plain):
    """Its list is in the order in which sessions were made, the newest first."""

    def touch(self, session: str) -> None:
        if session not in self.order:
            super().touch(session)


class Read(Plain):
    """Its list is in the order in which sessions were used."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        if session in self.order:
            self.touch(session)
        return await super().read(session, after=after, limit=limit)


class ForkedBefore(Plain):
    """A fork is as old as what it has of its source."""

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await super().fork(session, to, at=at)
        self.order.remove(to)
        self.order.insert(self.order.index(session), to)


class Milliseconds(Plain):
    def info(self, session: str, head: int) -> SessionInfo:
        return attrs.evolve(super().info(session, head), updated=super().info(session, head).updated * 1_000)


class ClockOfTrio(Plain):
    def info(self, session: str, head: int) -> SessionInfo:
        return attrs.evolve(super().info(session, head), updated=trio.current_time())


class Undated(Plain):
    """Its list is in order, and its times are not."""

    def info(self, session: str, head: int) -> SessionInfo:
        info = super().info(session, head)
        return attrs.evolve(info, updated=info.updated - len(repr(session)) - ord(session[-1:] or "a"))


class Curious(Plain):
    """It lists what it was asked for."""

    async def list(self) -> Sequence[SessionInfo]:
        await super().list()
        names = [*self.order[::-1], *(name for name in self.logs if name not in self.order)]
        return [self.info(name, len(self.logs[name])) for name in names]


class Twice(Plain):
    """It lists a session for each append."""

    def touch(self, session: str) -> None:
        self.order.append(session)


class AtOnce(Plain):
    """What it knows it says at once."""

    async def head(self, session: str) -> int:
        return len(self.logs[session])


class AtOnceWhereNothingIs(Plain):
    async def delete(self, session: str) -> bool:
        return await super().delete(session) if self.logs[session] else False


class LockedHead(Plain):
    """A head that is cut keeps the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = trio.Lock()

    async def head(self, session: str) -> int:
        await self.lock.acquire()
        await trio.sleep(0.001)
        self.lock.release()
        return await super().head(session)


class LockedList(LockedHead):
    async def head(self, session: str) -> int:
        return await Plain.head(self, session)

    async def list(self) -> Sequence[SessionInfo]:
        await self.lock.acquire()
        await trio.sleep(0.001)
        self.lock.release()
        return await super().list()


# -------------------------------------------------------------------------------------- forgetting


class Deaf(Plain):
    """It does not say whether there was one."""

    async def delete(self, session: str) -> bool:
        await super().delete(session)
        return True


class Ashamed(Plain):
    async def delete(self, session: str) -> bool:
        await super().delete(session)
        return False


class Emptying(Plain):
    """What it deletes stays in the list."""

    def drop(self, session: str) -> bool:
        log = self.logs[session]
        there = bool(log)
        log.clear()
        return there


class Sweeping(Plain):
    """It deletes all that begins so."""

    def drop(self, session: str) -> bool:
        found = [name for name in self.logs if name.startswith(session) and name != session]
        there = super().drop(session)
        for name in found:
            super().drop(name)
        return there


class Dropping(Plain):
    """It notices a cancellation when all is gone."""

    async def delete(self, session: str) -> bool:
        there = self.drop(session)
        await trio.lowlevel.checkpoint()
        return there


class LooksFirst(Plain):
    """Between looking whether there is one and deleting it, others may do so."""

    async def delete(self, session: str) -> bool:
        there = bool(self.logs[session])
        await trio.lowlevel.checkpoint()
        self.drop(session)
        return there


class Later(Plain):
    """It deletes when there is time."""

    async def delete(self, session: str) -> bool:
        await trio.lowlevel.checkpoint()
        there = bool(self.logs[session]) and session in self.order
        self.order = [name for name in self.order if name != session]

        async def drop() -> None:
            await trio.sleep(0.001)
            self.drop(session)

        trio.lowlevel.spawn_system_task(drop)
        return there


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Unlimited, {LIMIT}),
        (Absolute, {LIMIT}),
        (FalsyLimit, {LIMIT}),
        (CountsFromZero, {HEAD, LIST, CUT_QUESTION, FIRST_FACTS}),
        (CountsAll, {HEAD, LIST, NEW_AGAIN, FIRST_FACTS, AT}),
        (OldestFirst, {ORDER}),
        (AsMade, {ORDER}),
        (Read, {ORDER}),
        (ForkedBefore, {ORDER}),
        (Milliseconds, {ORDER}),
        (ClockOfTrio, {ORDER}),
        (Undated, {ORDER}),
        (Curious, {ASKING, AT}),
        (Twice, {ORDER}),
        (AtOnce, {CHECKPOINT}),
        (AtOnceWhereNothingIs, {CHECKPOINT}),
        (LockedHead, {CUT_QUESTION}),
        (LockedList, {CUT_QUESTION}),
        (Deaf, {WHETHER, ASKING, ONE_IS_TOLD}),
        (Ashamed, {WHETHER, DELETED_APART, ONE_IS_TOLD, ATOMIC_DELETION}),
        (Emptying, {NEW_AGAIN, DELETED_APART, ORDER, APART}),
        (Sweeping, {DELETED_APART}),
        (Dropping, {ATOMIC_DELETION}),
        (LooksFirst, {ONE_IS_TOLD}),
        (Later, {NEW_AGAIN, ATOMIC_DELETION, TO_NEW}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_convicted(make: type[Plain], expected: set[str]) -> None:
    assert convicted(make) == expected


def test_what_breaks_nearly_everything_is_convicted_too() -> None:
    assert LIST in convicted(Roundabout)
