"""Stores that break one promise about forks are convicted of that one."""

from __future__ import annotations

import attrs
import pytest
import trio

from tests.testing.plain_store import Plain, convicted
from trio_agent import Fact
from trio_agent._facts import stamp

ASKING = "asking_makes_no_session"
FIRST_FACTS = "a_fork_has_the_first_facts"
APART = "a_fork_and_its_source_go_on_apart"
FORKED_APART = "names_that_look_alike_are_forked_apart"
TO_NEW = "a_fork_needs_a_new_session"
AT = "a_fork_needs_the_facts_that_it_asks_for"
FORKS_WIN = "of_several_forks_at_once_one_wins"
ATOMIC_FORK = "a_fork_is_atomic_under_cancellation"


class Sharing(Plain):
    """A fork of all is the same log."""

    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        return log if at == len(log) else log[:at]


class Moving(Plain):
    """What is forked is taken from its source."""

    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        copied = log[:at]
        del log[:at]
        return copied


class Restamping(Plain):
    """A fork is written now, by another journal."""

    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        copied = [attrs.evolve(fact) for fact in log[:at]]
        for fact, made in zip(log, copied, strict=False):
            stamp(made, fact.seq, trio.current_time(), attrs.evolve(fact.place, journal="fork"))
        return copied


class OneMore(Plain):
    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        return log[: at + 1]


class ForksOver(Plain):
    """A fork replaces what is there."""

    def check_new(self, to: str) -> None:
        pass


class ForksOverItself(Plain):
    """It does not see that a session is forked to itself."""

    async def fork(self, session: str, to: str, *, at: int) -> None:
        if session == to:
            await trio.lowlevel.checkpoint()
            self.check_at(self.logs[session], at)
            return
        await super().fork(session, to, at=at)


class Generous(Plain):
    """Who asks for too many gets all there are."""

    def check_at(self, log: list[Fact], at: int) -> None:
        if at < 1:
            raise ValueError("a fork needs a fact")


class Backwards(Plain):
    """It counts from the end, as Python does."""

    def check_at(self, log: list[Fact], at: int) -> None:
        if not -len(log) <= at <= len(log) or not at:
            raise ValueError("there are fewer")


class Empty(Plain):
    """It begins a session with nothing."""

    def check_at(self, log: list[Fact], at: int) -> None:
        if not 0 <= at <= len(log):
            raise ValueError("there are fewer")


class MakesFirst(Plain):
    """It makes the session, and looks then whether it can be forked."""

    def check_at(self, log: list[Fact], at: int) -> None:
        try:
            super().check_at(log, at)
        except ValueError:
            self.touch("t")
            raise


class Copying(Plain):
    """It copies fact by fact."""

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await trio.lowlevel.checkpoint()
        log = self.logs[session]
        self.check_at(log, at)
        self.check_new(to)
        for number, fact in enumerate(log[:at]):
            if number:
                await trio.lowlevel.checkpoint()
            self.logs[to].append(fact)
            self.touch(to)


class SlowCopy(Plain):
    """While it copies, others may write to the new session."""

    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        copied = log[:at]
        await trio.lowlevel.checkpoint()
        return copied


class NoticesLate(Plain):
    """It notices a cancellation when it has forked."""

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await super().fork(session, to, at=at)
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Sharing, {APART}),
        (Moving, {FIRST_FACTS, APART, ATOMIC_FORK, FORKS_WIN}),
        (Restamping, {FIRST_FACTS, APART, FORKED_APART, TO_NEW, FORKS_WIN, ATOMIC_FORK}),
        (OneMore, {FIRST_FACTS, APART, FORKED_APART, ATOMIC_FORK}),
        (ForksOver, {TO_NEW, FORKS_WIN}),
        (ForksOverItself, {TO_NEW}),
        (Generous, {AT, ASKING}),
        (Backwards, {AT}),
        (Empty, {AT}),
        (MakesFirst, {AT, ASKING}),
        (Copying, {ATOMIC_FORK}),
        (SlowCopy, {FORKS_WIN}),
        (NoticesLate, {ATOMIC_FORK}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_convicted(make: type[Plain], expected: set[str]) -> None:
    assert convicted(make) == expected
