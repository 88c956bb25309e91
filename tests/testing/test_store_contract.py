"""A plain store keeps the contract of stores, and stores that break one promise are convicted of that one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from tests.kernel.fakes import FakeStore
from trio_agent import Fact, MessageEnd, SessionConflict, read_fact, write_fact
from trio_agent.testing._contracts._case import Case
from trio_agent.testing._contracts._store import store_contract


class Plain:
    """Logs in memory; what subclasses do wrong stands in one of the small methods."""

    def __init__(self) -> None:
        self.logs: defaultdict[str, list[Fact]] = defaultdict(list)

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.lowlevel.checkpoint()
        log = self.logs[self.key(session)]
        self.check(log, expected_head)
        await self.write(log, facts)
        return len(log)

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        return self.logs[self.key(session)][after:]

    def key(self, session: str) -> str:
        return session

    def check(self, log: list[Fact], expected_head: int) -> None:
        if expected_head != len(log):
            raise SessionConflict(f"expected the head {expected_head}, it is {len(log)}")

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(facts)


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

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        async with self.lock:
            await trio.sleep(0.001)
            return await super().read(session, after=after)


class Threaded(Plain):
    """Writes in a thread that is waited for, and answers as the thread did."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.lowlevel.checkpoint()

        def write() -> int:
            self.check(self.logs[session], expected_head)
            self.logs[session].extend(facts)
            return len(self.logs[session])

        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(write)


@asynccontextmanager
async def opened_and_closed() -> AsyncIterator[Plain]:
    store = Plain()
    yield store
    assert store.logs


@pytest.mark.parametrize("make", [Plain, Written, Slow, opened_and_closed])
@pytest.mark.parametrize("number", range(len(store_contract(Plain))))
def test_a_plain_store_keeps_it(make: Callable[[], Plain], number: int) -> None:
    store_contract(make)[number]()


@pytest.mark.parametrize("case", store_contract(Threaded, virtual=False), ids=str)
def test_a_store_with_a_thread_keeps_it(case: Case) -> None:
    case()


def test_every_case_has_a_sentence() -> None:
    cases = store_contract(Plain)
    assert len({str(case) for case in cases}) == len(cases) > 15
    for case in cases:
        assert case.sentence.endswith("."), case


# ------------------------------------------------------------------------------- stores that break it


def convicted(make: Callable[[], object]) -> set[str]:
    failed: set[str] = set()
    for case in store_contract(make):  # type: ignore[arg-type]
        try:
            case()
        except Exception:
            failed.add(case.name)
    return failed


ATOMIC = "an_append_is_atomic_under_cancellation"
ONE_WINS = "of_several_at_once_one_wins"
STALE = "a_stale_head_is_a_conflict"
BEYOND = "a_head_beyond_the_end_is_a_conflict"
SESSIONS = {
    "sessions_do_not_mix",
    "names_that_look_alike_are_kept_apart",
    "several_sessions_at_once_do_not_compete",
    ATOMIC,  # it takes a session an attempt
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

    def check(self, log: list[Fact], expected_head: int) -> None:
        pass


class Lenient(Plain):
    """It takes a caller from the future at his word."""

    def check(self, log: list[Fact], expected_head: int) -> None:
        super().check(log, min(expected_head, len(log)))


class Overwriting(Plain):
    """What a conflict would have written replaces what is there."""

    def check(self, log: list[Fact], expected_head: int) -> None:
        del log[expected_head:]
        super().check(log, expected_head)


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

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        return self.logs[session][after:] if after else self.logs[session]


class Keeping(Plain):
    """It keeps the caller's list."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if expected_head == 0 and isinstance(facts, list):
            await trio.lowlevel.checkpoint()
            self.check(self.logs[session], expected_head)
            self.logs[session] = facts
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

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        return self.logs[session][after - 1 :] if after else self.logs[session][:]


class Impatient(Plain):
    """Nothing to write, nothing to wait for."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if not facts:
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

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        return self.logs[session][after : after + 1_000]


class Counting(Plain):
    """It returns how much it wrote."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        return await super().append(session, facts, expected_head=expected_head) - expected_head


class Locked(Slow):
    """A read that is cut keeps the lock."""

    async def read(self, session: str, *, after: int = 0) -> Sequence[Fact]:
        await self.lock.acquire()
        await trio.sleep(0.001)
        self.lock.release()
        return self.logs[session][after:]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (WritesFirst, {ATOMIC}),
        (OneByOne, {ATOMIC}),
        (ChecksFirst, {ONE_WINS}),
        (WritesLater, {ATOMIC}),
        (Delegating, {ATOMIC, ONE_WINS}),
        (Swallowing, {ATOMIC}),
        (Trusting, {STALE, BEYOND, ONE_WINS}),
        (Lenient, {BEYOND}),
        (Overwriting, {STALE, ONE_WINS}),
        (Conflicted, {STALE, BEYOND, ONE_WINS}),
        (Sharing, {"what_was_read_does_not_change"}),
        (Keeping, {"the_batch_is_the_callers"}),
        (Filing, {"names_that_look_alike_are_kept_apart"}),
        (Folding, {"names_that_look_alike_are_kept_apart"}),
        (Lonely, SESSIONS),
        (OffByOne, {"a_read_begins_where_it_is_told", "many_facts_are_one_batch", "what_was_read_does_not_change"}),
        (Impatient, {"an_append_of_nothing_is_one_too"}),
        (Encoding, {"any_text_survives"}),
        (Bounded, {"many_facts_are_one_batch"}),
        (Backwards, {"what_was_written_is_read", "any_text_survives", "runs_go_on_where_others_ended"}),
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
