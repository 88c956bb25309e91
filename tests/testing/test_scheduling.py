"""The order of tasks is drawn from a seed by two private names of Trio, and all else works without them."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import trio

from tests.testing.places import place_of
from trio_agent.testing import Plan, Trial, _scheduling, can_be_seeded, explore_cancellation, replay
from trio_agent.testing._scheduling import seeded
from trio_agent.testing._trial import run_trial

RUN = trio._core._run


async def race(order: list[int]) -> None:
    async def runner(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(runner, number)


def order_of(seed: int) -> tuple[int, ...]:
    return tuple(run_trial([], race, Plan(seed=seed)).world)


async def lose(told: list[str]) -> None:
    """What was taken is lost if the taker is cut at its next wait: a bug that only ``before`` a step can show."""
    send, receive = trio.open_memory_channel[str](0)

    async def give() -> None:
        await send.send("given")
        told.append("taken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give)
        item = await receive.receive()
        await trio.lowlevel.checkpoint()  # here
        told.append(item)


def what_was_taken_is_there(trial: Trial[list[str]]) -> None:
    """What was taken is there."""
    assert trial.world.count("taken") <= trial.world.count("given")


NEWER = {
    "no inner module": SimpleNamespace(),
    "another inner module": SimpleNamespace(_core=SimpleNamespace()),
    "no shuffler": SimpleNamespace(_core=SimpleNamespace(_run=SimpleNamespace(_ALLOW_DETERMINISTIC_SCHEDULING=False))),
    "another shuffler": SimpleNamespace(
        _core=SimpleNamespace(_run=SimpleNamespace(_r=sorted, _ALLOW_DETERMINISTIC_SCHEDULING=False))
    ),
    "no switch": SimpleNamespace(_core=SimpleNamespace(_run=SimpleNamespace(_r=random.Random(1)))),
}
"""What a later Trio may look like to those who look for the names."""


@pytest.fixture(params=list(NEWER))
def without_names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # Trio needs its names itself: they are hidden from the kit alone.
    monkeypatch.setattr(_scheduling, "trio", NEWER[request.param])


def state() -> tuple[object, object]:
    return RUN._r.getstate(), RUN._ALLOW_DETERMINISTIC_SCHEDULING


def test_this_trio_still_has_the_private_names() -> None:
    # If this fails, a new Trio has dropped or renamed them: see `testing/_scheduling.py`.  Explorers find the
    # same without them, but a token may then replay another order.
    assert can_be_seeded()
    assert isinstance(RUN._r, random.Random)
    assert RUN._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)


def test_a_seed_decides_the_order_of_tasks() -> None:
    orders = [order_of(seed) for seed in range(10)]
    assert orders == [order_of(seed) for seed in range(10)]
    assert len(set(orders)) > 1


def test_afterwards_all_is_as_it_was() -> None:
    before = state()
    with seeded(3):
        assert state() == (random.Random(3).getstate(), True)
        assert trio.run(trio.sleep, 0) is None
    assert state() == before
    with pytest.raises(LookupError):
        with seeded(4):
            raise LookupError
    assert state() == before
    explore_cancellation(list, race, seeds=2)
    assert state() == before


@pytest.mark.usefixtures("without_names")
def test_without_them_a_planted_bug_is_found_at_its_line() -> None:
    assert not can_be_seeded()
    report = explore_cancellation(list, lose, laws=[what_was_taken_is_there], seeds=3)
    assert place_of(lose, "# here") in {finding.place.name for finding in report.findings}


@pytest.mark.usefixtures("without_names")
def test_without_them_a_token_is_played_still() -> None:
    trial = replay("cancel:after:1,seed=5", list, race)
    assert trial.cancelled
    assert trial.world == []


@pytest.mark.usefixtures("without_names")
def test_without_them_nothing_of_trio_is_touched() -> None:
    before = state()
    with seeded(3):
        assert state() == before
    assert state() == before
