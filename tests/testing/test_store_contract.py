"""A plain store keeps the contract of stores, and stores that break one promise are convicted of that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import get_args

import attrs
import pytest
import trio

from tests.kernel.fakes import FakeStore
from tests.testing.plain_store import Plain, convicted
from trio_agent import Fact, MessageEnd, SessionConflict, read_fact, write_fact
from trio_agent.sessions import MemoryStore
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._logbook import every_kind
from trio_agent.testing._contracts._store import store_contract


class Written(Plain):
    """Keeps lines, as a file does."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(read_fact(write_fact(fact)) for fact in facts)


class Slow(Plain):
    """Waits in virtual time, holding a lock: all that it writes, it writes in one step."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = trio.Lock()

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        async with self.lock:
            await trio.sleep(0.001)
            return await super().append(session, facts, expected_head=expected_head)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        async with self.lock:
            await trio.sleep(0.001)
            return await super().read(session, after=after, limit=limit)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        async with self.lock:
            await trio.sleep(0.001)
            await super().fork(session, to, at=at)


class Threaded(Plain):
    """Writes in a thread that is waited for, and answers as the thread did."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.lowlevel.checkpoint()

        def write() -> int:
            new = self.check(self.logs[session], facts, expected_head)
            self.logs[session].extend(new)
            if new:
                self.touch(session)
            return len(self.logs[session])

        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(write)


@asynccontextmanager
async def opened_and_closed() -> AsyncIterator[Plain]:
    store = Plain()
    yield store
    store.logs.clear()


@pytest.mark.parametrize("make", [Plain, Written, Slow, opened_and_closed, MemoryStore])
@pytest.mark.parametrize("number", range(len(store_contract(Plain))))
def test_a_plain_store_keeps_it(make: Callable[[], Plain], number: int) -> None:
    store_contract(make)[number]()


@pytest.mark.parametrize("case", store_contract(Threaded, virtual=False), ids=str)
def test_a_store_with_a_thread_keeps_it(case: Case) -> None:
    case()


def test_every_case_has_a_sentence() -> None:
    cases = store_contract(Plain)
    assert len({str(case) for case in cases}) == len(cases) > 40
    for case in cases:
        assert case.sentence.endswith("."), case


def test_the_logbook_has_a_fact_of_every_kind() -> None:
    assert {type(fact) for fact in every_kind()} == set(get_args(Fact))


# ------------------------------------------------------------------------------- stores that break it


ATOMIC = "an_append_is_atomic_under_cancellation"
ONE_WINS = "of_several_at_once_one_wins"
STALE = "a_stale_head_is_a_conflict"
BEYOND = "a_head_beyond_the_end_is_a_conflict"
AGAIN = "facts_that_are_there_count_as_written"
REST = "the_rest_of_a_batch_is_written"
OTHERS = "other_facts_in_their_place_are_a_conflict"
JOURNAL = "a_fact_of_another_journal_is_another"
NOTHING = "an_append_of_nothing_needs_the_head_too"
BEHIND = "facts_with_others_behind_them_are_a_conflict"
FORKS_WIN = "of_several_forks_at_once_one_wins"
ASKING = "asking_makes_no_session"
ALIKE = {
    "names_that_look_alike_are_kept_apart",
    "names_that_look_alike_are_deleted_apart",
    "names_that_look_alike_are_forked_apart",
    "a_list_names_each_session_and_its_head",
}
SESSIONS = {
    *ALIKE,
    "sessions_do_not_mix",
    "several_sessions_at_once_do_not_compete",
    "the_head_is_the_last_position",
    "a_read_takes_no_more_than_its_limit",
    "the_session_written_to_last_is_first",
    ASKING,
    "whatever_is_asked_is_a_checkpoint",
    "a_question_that_is_cut_leaves_nothing_behind",
    "a_deleted_session_is_new",
    "a_fork_has_the_first_facts",
    "a_fork_and_its_source_go_on_apart",
    "a_fork_needs_a_new_session",
    "a_fork_needs_the_facts_that_it_asks_for",
    FORKS_WIN,
    # These take a session an attempt:
    ATOMIC,
    "a_deletion_is_atomic_under_cancellation",
    "a_fork_is_atomic_under_cancellation",
}


class WritesFirst(Plain):
    """It notices a cancellation when all is written."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(facts)
        await trio.lowlevel.checkpoint()


class OneByOne(Plain):
    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        for fact in facts:
            log.append(fact)
            await trio.lowlevel.checkpoint()


class ChecksFirst(Plain):
    """Between looking at the head and writing, others may write."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        await trio.lowlevel.checkpoint()
        log.extend(facts)


class WritesLater(Plain):
    """What it was asked to write is written even if the caller was told otherwise."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        done = trio.Event()
        failures: list[SessionConflict] = []

        async def write() -> None:
            await trio.sleep(0.001)
            try:
                await super(WritesLater, self).append(session, facts, expected_head=expected_head)
            except SessionConflict as error:
                failures.append(error)
            done.set()

        trio.lowlevel.spawn_system_task(write)
        await done.wait()
        if failures:
            raise failures[0]
        return expected_head + len(facts)


class Delegating(Plain):
    """A task of its own writes, and can be cut when it has."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        async def write() -> None:
            log.extend(facts)
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)


class Swallowing(Plain):
    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        try:
            return await super().append(session, facts, expected_head=expected_head)
        except trio.Cancelled:
            return expected_head + len(facts)


class Trusting(Plain):
    """It never looks at the head."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        return facts


class Lenient(Plain):
    """It takes a caller from the future at his word."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        return super().check(log, facts, min(expected_head, len(log)))


class Overwriting(Plain):
    """What a conflict would have written replaces what is there."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        del log[max(expected_head, 0) :]
        return super().check(log, facts, expected_head)


class Conflicted(Plain):
    """It says that there is a conflict, and writes."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        try:
            return await super().append(session, facts, expected_head=expected_head)
        except SessionConflict:
            self.logs[session].extend(facts)
            raise


class Sharing(Plain):
    """What it returns is its own list."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        await trio.lowlevel.checkpoint()
        log = self.logs[session]
        return log[after:][:limit] if after or limit is not None else log


class Keeping(Plain):
    """It keeps the caller's list."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if expected_head == 0 and isinstance(facts, list) and facts and not self.logs[session]:
            await trio.lowlevel.checkpoint()
            self.check(self.logs[session], facts, expected_head)
            self.logs[session] = facts
            self.touch(session)
            return len(facts)
        return await super().append(session, facts, expected_head=expected_head)


class Filing(Plain):
    """It makes a file's name of a session's."""

    def key(self, session: str) -> str:
        return session.replace("/", "_")


class Folding(Plain):
    """It does not know upper case from lower."""

    def key(self, session: str) -> str:
        return session.casefold()


class Lonely(Plain):
    def key(self, session: str) -> str:
        return ""


class OffByOne(Plain):
    """A position is an index to it."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await super().read(session, after=max(after - 1, 0), limit=limit)


class Impatient(Plain):
    """Nothing to write, nothing to wait for."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if not facts and expected_head == len(self.logs[session]):
            return expected_head
        return await super().append(session, facts, expected_head=expected_head)


class Encoding(Plain):
    """It writes texts as a file in UTF-8 has them."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        texts = [fact.message.text for fact in facts if isinstance(fact, MessageEnd)]
        "".join(texts).encode()
        log.extend(facts)


class Unstamped(Plain):
    """It keeps facts without when and where."""

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(attrs.evolve(fact) for fact in facts)


class Backwards(Plain):
    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(sorted(facts, key=lambda fact: fact.kind))


class Bounded(Plain):
    """It returns one page."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await super().read(session, after=after, limit=1_000 if limit is None else limit)


class Counting(Plain):
    """It returns how much it wrote."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        return await super().append(session, facts, expected_head=expected_head) - expected_head


class Locked(Slow):
    """A read that is cut keeps the lock."""

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        await self.lock.acquire()
        await trio.sleep(0.001)
        self.lock.release()
        return self.logs[session][after:][:limit]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (WritesFirst, {ATOMIC}),
        (OneByOne, {ATOMIC}),
        (ChecksFirst, {ONE_WINS, FORKS_WIN}),
        (WritesLater, {ATOMIC}),
        (Delegating, {ATOMIC, ONE_WINS, FORKS_WIN}),
        (Swallowing, {ATOMIC}),
        (Trusting, {STALE, BEYOND, ONE_WINS, FORKS_WIN, AGAIN, REST, OTHERS, JOURNAL, NOTHING, BEHIND, ASKING}),
        (Lenient, {BEYOND, NOTHING, ASKING}),
        (Overwriting, {STALE, ONE_WINS, FORKS_WIN, OTHERS, JOURNAL, NOTHING, BEHIND}),
        (Conflicted, {STALE, BEYOND, ONE_WINS, FORKS_WIN, OTHERS, JOURNAL, BEHIND, ASKING}),
        (Sharing, {"what_was_read_does_not_change"}),
        (Keeping, {"the_batch_is_the_callers"}),
        (Filing, ALIKE),
        (Folding, {*ALIKE, "a_deleted_session_is_new"}),
        (Lonely, SESSIONS),
        (
            OffByOne,
            {
                "a_read_begins_where_it_is_told",
                "a_read_takes_no_more_than_its_limit",
                "many_facts_are_one_batch",
                "what_was_read_does_not_change",
            },
        ),
        (Impatient, {"an_append_of_nothing_is_one_too"}),
        (Encoding, {"any_text_survives"}),
        (Bounded, {"many_facts_are_one_batch"}),
        (
            Backwards,
            {
                "what_was_written_is_read",
                "any_text_survives",
                "runs_go_on_where_others_ended",
                "a_fork_has_the_first_facts",
                AGAIN,
                REST,
            },
        ),
        (Locked, {"a_read_that_is_cut_leaves_nothing_behind"}),
        (FakeStore, SESSIONS),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_convicted(make: type[Plain], expected: set[str]) -> None:
    assert convicted(make) == expected


@pytest.mark.parametrize(
    ("make", "expected"),
    [(Unstamped, "what_was_written_is_read"), (Counting, "an_append_gives_the_new_head")],
)
def test_what_breaks_nearly_everything_is_convicted_too(make: type[Plain], expected: str) -> None:
    assert expected in convicted(make)
