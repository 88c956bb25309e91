"""Stores that do not know again what they have written, or take something else for it, are convicted."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio

from tests.testing.plain_store import Plain, convicted
from trio_agent import Fact, SessionConflict, write_fact

STALE = "a_stale_head_is_a_conflict"
ONE_WINS = "of_several_at_once_one_wins"
FORKS_WIN = "of_several_forks_at_once_one_wins"
AGAIN = "facts_that_are_there_count_as_written"
REST = "the_rest_of_a_batch_is_written"
OTHERS = "other_facts_in_their_place_are_a_conflict"
JOURNAL = "a_fact_of_another_journal_is_another"


class Forgetful(Plain):
    """It knows heads, but not what it has written."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        if expected_head != len(log):
            raise SessionConflict("somebody has written")
        return facts


class WholeOrNothing(Plain):
    """It takes a batch again only if all of it is there."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        new = super().check(log, facts, expected_head)
        if 0 < len(new) < len(facts):
            raise SessionConflict("a part of it is there")
        return new


class Doubling(Plain):
    """What it recognizes it writes again."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        super().check(log, facts, expected_head)
        return facts


class Trustful(Plain):
    """It counts what is there, and does not compare it."""

    def same(self, there: Fact, given: Fact) -> bool:
        return True


class Hasty(Plain):
    """It compares the first of those that are there."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        known = len(log) - expected_head
        super().check(log[: expected_head + 1], facts[: min(known, 1)] if known > 0 else facts, expected_head)
        super().check(log, [*log[max(expected_head, 0) :], *facts[known:]] if known > 0 else facts, expected_head)
        if known > len(facts):
            raise SessionConflict("there is more")
        return facts[known:]


class Pythonic(Plain):
    """It compares values, which have no stamp."""

    def same(self, there: Fact, given: Fact) -> bool:
        return there == given


class Timeless(Plain):
    """When a fact was written is nothing to it."""

    def same(self, there: Fact, given: Fact) -> bool:
        return json.loads(write_fact(there)) | {"time": 0} == json.loads(write_fact(given)) | {"time": 0}


class Impersonal(Plain):
    """Who wrote a fact is nothing to it."""

    def same(self, there: Fact, given: Fact) -> bool:
        return json.loads(write_fact(there)) | {"journal": ""} == json.loads(write_fact(given)) | {"journal": ""}


class Nostalgic(Plain):
    """It takes facts again that have been gone on from."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        end = expected_head + len(facts)
        return super().check(log[:end] if facts and expected_head >= 0 else log, facts, expected_head)


class Halfway(Plain):
    """Of a batch that has another fact in it, it writes what is behind its head."""

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        try:
            return super().check(log, facts, expected_head)
        except SessionConflict:
            if 0 < len(log) - expected_head < len(facts) and expected_head >= 0:
                log.extend(facts[len(log) - expected_head :])
            raise


class Careless(Plain):
    """Where there is nothing to write, there is nothing to check."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.lowlevel.checkpoint()
        return await super().append(session, facts, expected_head=expected_head) if facts else expected_head


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Forgetful, {AGAIN, REST}),
        (WholeOrNothing, {REST}),
        (Doubling, {AGAIN, REST}),
        (Trustful, {OTHERS, JOURNAL, STALE, ONE_WINS, FORKS_WIN}),
        (Hasty, {OTHERS, JOURNAL}),
        (Pythonic, {AGAIN, JOURNAL}),
        (Timeless, {JOURNAL}),
        (Impersonal, {JOURNAL}),
        (Nostalgic, {"facts_with_others_behind_them_are_a_conflict"}),
        (Halfway, {OTHERS, JOURNAL, STALE}),
        (Careless, {"an_append_of_nothing_needs_the_head_too"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_convicted(make: type[Plain], expected: set[str]) -> None:
    assert convicted(make) == expected
