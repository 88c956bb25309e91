"""Many orders are tried; a race that only some of them show is found, and its seed plays it again."""

from __future__ import annotations

import attrs
import pytest
import trio

from trio_agent.testing import Plan, Seams, Trial, explore_schedules, replay
from trio_agent.testing._stage import Stage


@attrs.define
class Race:
    """Three workers share six equal pieces of work; each piece crosses a seam."""

    seams: Seams = attrs.field(factory=Seams)
    ended: list[int] = attrs.field(factory=list)

    async def run(self) -> None:
        todo = iter(range(6))

        async def work() -> None:
            for number in todo:
                await self.seams.cross("work", trio.lowlevel.checkpoint)
                self.ended.append(number)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)


@attrs.define
class Account:
    """Reads, waits, and writes: what another one wrote meanwhile is lost."""

    seams: Seams = attrs.field(factory=Seams)
    balance: int = 0

    async def play(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.pay_in)
            nursery.start_soon(self.pay_in_later)

    async def pay_in(self) -> None:
        balance = self.balance
        await self.seams.cross("bank", trio.lowlevel.checkpoint)
        self.balance = balance + 1

    async def pay_in_later(self) -> None:
        for _ in range(4):  # by then the other one has always been done, as Trio is
            await trio.lowlevel.checkpoint()
        await self.pay_in()


def nothing_is_lost(trial: Trial[Account]) -> None:
    """What is paid in stays."""
    assert trial.world.balance == 2


def test_a_race_that_only_some_orders_show_is_found_and_its_seed_shows_it_again() -> None:
    report = explore_schedules(Account, Account.play, laws=[nothing_is_lost], seeds=60)
    [finding] = report.findings
    assert 0 < finding.times < 60
    assert finding.place.name == "some order of its tasks"
    assert finding.token.startswith("jitter,seed=")
    for _ in range(3):
        with pytest.raises(AssertionError):
            nothing_is_lost(replay(finding.token, Account, Account.play))
    assert f"replay: {finding.token}" in str(report)
    assert (report.what, report.tried, report.met, report.runs) == ("schedules", 60, 60, 60)


def test_without_waits_at_the_seams_that_race_never_shows() -> None:
    stage = Stage(Account, Account.play, [])
    assert {stage.trial(Plan(seed=seed)).world.balance for seed in range(60)} == {2}


def orders(jitter: bool) -> set[tuple[int, ...]]:
    stage = Stage(Race, Race.run, [])
    return {tuple(stage.trial(Plan(seed=seed, jitter=jitter)).world.ended) for seed in range(300)}


def test_waits_at_the_seams_show_many_more_orders_than_the_shuffle_alone() -> None:
    shuffled, jittered = orders(jitter=False), orders(jitter=True)
    assert all(sorted(order) == list(range(6)) for order in shuffled | jittered)
    assert len(jittered) >= 66
    assert len(jittered) > 1.5 * len(shuffled)


def test_each_seed_is_one_order() -> None:
    for seed in range(10):
        one, other = (replay(f"jitter,seed={seed}", Race, Race.run).world.ended for _ in range(2))
        assert one == other


def test_what_would_try_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="expected seeds to be at least 1, got 0"):
        explore_schedules(Race, Race.run, seeds=0)
    with pytest.raises(TypeError, match="list needs an attribute `seams: Seams`"):
        explore_schedules(list, lambda _: trio.sleep(1))
