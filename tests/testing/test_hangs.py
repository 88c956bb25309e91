"""What never ends: a hang is noticed and ended, and what only looks like one is not disturbed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.testing.places import place_of
from trio_agent.testing import LAWS, Plan, Seams, Trial, explore_cancellation, explore_faults, explore_schedules
from trio_agent.testing import _trial as trial_module
from trio_agent.testing._trial import run_trial


def played(scenario: Callable[[Any], Any]) -> Trial[Any]:
    return run_trial(None, scenario, Plan())


ENDLESS = "it waits for ever: no task is ready, no deadline is set, no thread of Trio is at work; it is at "


async def a_deadlock(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await trio.Event().wait()


def test_tasks_that_wait_for_nothing_are_a_hang() -> None:
    trial = played(a_deadlock)
    assert trial.hung == f"{ENDLESS}{place_of(a_deadlock, 'Event().wait()')}, trio.sleep_forever"
    assert not trial.stuck
    assert not trial.cancelled, "it was not the scenario's scope that ended it"
    assert trial.error is None
    assert trial.tasks_left == ()


async def patient(_: object) -> None:
    with trio.move_on_after(1_000_000):
        await trio.sleep_forever()


async def blocked_on_purpose(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        for cushion in (0, 0, 0.005, 0.02):
            await trio.testing.wait_all_tasks_blocked(cushion)
        nursery.cancel_scope.cancel()


async def in_a_thread(_: object) -> None:
    # Not a sleep: it ends when another thread says so, and nothing in Trio waits for a time.
    gate = threading.Event()
    timer = threading.Timer(0.03, gate.set)
    timer.start()
    await trio.to_thread.run_sync(gate.wait)
    timer.join()


async def woken_by_a_thread(_: object) -> None:
    woken = trio.Event()
    token = trio.lowlevel.current_trio_token()
    await trio.to_thread.run_sync(lambda: token.run_sync_soon(woken.set))
    await woken.wait()


async def a_pipe(_: object) -> None:
    left, right = trio.socket.socketpair()
    timer = threading.Timer(0.03, lambda: trio.from_thread.run_sync(right.close, trio_token=token))
    token = trio.lowlevel.current_trio_token()
    timer.start()
    with left:
        assert await left.recv(1) == b""
    await trio.to_thread.run_sync(timer.join)


@pytest.mark.parametrize("threshold", [0, 0.01, None])
@pytest.mark.parametrize("scenario", [blocked_on_purpose, in_a_thread, woken_by_a_thread, a_pipe])
def test_who_is_woken_from_elsewhere_is_no_hang(scenario: Callable[[Any], Any], threshold: float | None) -> None:
    trial = run_trial(None, scenario, Plan(), autojump_threshold=threshold)
    assert (trial.hung, trial.error, trial.tasks_left) == ("", None, ())


def test_a_far_deadline_is_no_hang() -> None:
    trial = played(patient)
    assert trial.hung == ""
    assert trial.ended - trial.began == 1_000_000


async def shielded_for_ever(_: object) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


def test_an_endless_wait_behind_a_shield_is_stuck() -> None:
    trial = played(shielded_for_ever)
    assert trial.stuck
    assert trial.hung == ENDLESS + place_of(shielded_for_ever, "sleep_forever")
    assert isinstance(trial.error, RuntimeError)
    assert str(trial.error) == "the scenario waits for ever behind a shield"


async def a_livelock(_: object) -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def a_stubborn_livelock(_: object) -> None:
    while True:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            continue


def test_too_many_steps_are_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "MAX_STEPS", 500)
    trial = played(a_livelock)
    assert trial.hung == f"it has not ended after 500 steps; it is at {place_of(a_livelock, 'checkpoint()')}"
    assert not trial.stuck
    assert trial.error is None


def test_a_loop_that_swallows_cancellations_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "MAX_STEPS", 500)
    trial = played(a_stubborn_livelock)
    assert trial.hung == f"it has not ended after 500 steps; it is at {place_of(a_stubborn_livelock, 'checkpoint()')}"
    assert trial.stuck


async def checkpoints(waits: int, _: object) -> None:
    for _ in range(waits):
        await trio.lowlevel.checkpoint()


def test_no_step_is_one_too_many_for_a_scenario_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_module, "MAX_STEPS", 10)
    for waits, ends in ((8, True), (9, False)):
        assert (played(partial(checkpoints, waits)).hung == "") is ends


# ------------------------------------------------------------------------------ after what is stuck


class Crossed:
    """A world with one crossing, from which only a fault or another order leads behind the shield."""

    def __init__(self) -> None:
        self.seams = Seams()


async def stuck_after_a_fault(world: Crossed) -> None:
    for _ in range(3):
        try:
            await world.seams.cross("line", trio.lowlevel.checkpoint)
        except Exception:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()


async def stuck_at_once(world: Crossed) -> None:
    await world.seams.cross("line", trio.lowlevel.checkpoint)
    await shielded_for_ever(None)


def test_nothing_is_explored_behind_a_trial_that_was_stuck() -> None:
    untouched = explore_cancellation(Crossed, stuck_at_once)
    assert (untouched.runs, [finding.law for finding in untouched.findings]) == (1, ["it_ends"])
    # Without a law that would say so, too.
    for laws in (LAWS, LAWS[1:]):
        assert explore_faults(Crossed, stuck_at_once, laws=laws).runs == 1
        assert explore_faults(Crossed, stuck_after_a_fault, laws=laws).runs == 2
        assert explore_schedules(Crossed, stuck_at_once, laws=laws).runs == 1
        assert explore_cancellation(Crossed, stuck_at_once, laws=laws, seeds=3).runs == 1


async def stuck_if_cancelled(_: object) -> None:
    try:
        await trio.sleep(1)  # cut
    except BaseException:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
        raise


def test_the_trial_that_was_stuck_is_a_finding_at_the_place_that_was_cut() -> None:
    report = explore_cancellation(object, stuck_if_cancelled, when=["after"], seeds=4)
    assert report.runs == 2, "untouched, and the one that was stuck"
    [finding] = report.findings
    assert (finding.law, finding.place.name) == ("it_ends", place_of(stuck_if_cancelled, "# cut"))


def test_a_trial_that_was_stuck_is_a_finding_even_if_no_law_says_so() -> None:
    report = explore_cancellation(object, stuck_if_cancelled, laws=LAWS[1:2], when=["after"])
    [finding] = report.findings
    assert (finding.law, finding.place.name) == ("it_can_be_ended", place_of(stuck_if_cancelled, "# cut"))
    assert "it waits for ever" in finding.complaint
