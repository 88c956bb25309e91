"""One run of a scenario under the instrument: what is a step, where it was taken, what was done, and what never ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from tests.testing.places import place_of
from trio_agent.testing import ABORT, CANCEL, INTERRUPT, Action, Cut, Plan, Trial
from trio_agent.testing import _trial as trial_module
from trio_agent.testing._plan import When
from trio_agent.testing._trial import run_trial


def played(scenario: Callable[[Any], Any], *cuts: Cut, world: Any = None, places: bool = False) -> Trial[Any]:
    return run_trial(world, scenario, Plan(cuts), places=places)


def steps_of(scenario: Callable[[Any], Any]) -> tuple[int, int]:
    trial = played(scenario)
    assert trial.error is None
    return trial.steps["before"], trial.steps["after"]


# ------------------------------------------------------------------------------------------ steps


async def nothing(_: object) -> None:
    pass


async def once(_: object) -> None:
    await trio.sleep(1)


async def two_children(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)
        nursery.start_soon(trio.sleep, 2)


async def deeper(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(two_children, None)


async def a_system_task(_: object) -> None:
    done = trio.Event()

    async def work() -> None:
        for _ in range(7):
            await trio.lowlevel.checkpoint()
        done.set()

    trio.lowlevel.spawn_system_task(work)
    await done.wait()


@pytest.mark.parametrize(
    ("scenario", "before", "after"),
    [
        # A task begins, and waits, and is woken: "before" counts beginnings and wakings, "after" counts waits.
        (nothing, 1, 0),
        (once, 2, 1),
        (two_children, 6, 3),
        (deeper, 8, 4),
        (a_system_task, 2, 1),
    ],
)
def test_the_steps_of_the_scenarios_tasks_are_counted_and_no_others(
    scenario: Callable[[Any], Any], before: int, after: int
) -> None:
    assert steps_of(scenario) == (before, after)


def test_a_place_is_the_innermost_function_that_is_not_trios_own() -> None:
    async def inner() -> None:
        await trio.sleep(1)  # the wait

    async def scenario(_: object) -> None:
        await inner()  # the call

    trial = played(scenario, places=True)
    place = trial.places["after", 1]
    assert str(place) == place.name == place_of(inner, "# the wait")
    assert place.stack == (place_of(scenario, "# the call"), place_of(inner, "# the wait"))
    assert trial.places == {
        ("before", 1): trial_module.Location("before the scenario has begun"),
        ("after", 1): place,
        ("before", 2): place,
    }


def test_a_task_that_has_not_begun_waits_at_its_own_function() -> None:
    async def child() -> None: ...

    async def scenario(_: object) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    assert played(scenario, places=True).places["before", 2].name == place_of(child, "async def child")


def test_a_task_that_runs_nothing_but_trio_has_the_place_of_its_name() -> None:
    assert played(two_children, places=True).places["after", 2].name == "trio.sleep"


def test_places_are_not_remembered_unasked() -> None:
    assert played(once).places == {}


# -------------------------------------------------------------------------------------- before and after


async def in_a_second() -> None:
    """Wait for somebody else's event.  A sleep would not do: its own end is a cancellation."""

    async def somebody() -> None:
        await trio.sleep(1)
        event.set()

    event = trio.Event()
    trio.lowlevel.spawn_system_task(somebody)
    await event.wait()


async def two_waits(told: list[str]) -> None:
    await in_a_second()  # first
    told.append("woken")
    await in_a_second()  # second
    told.append("done")


@pytest.mark.parametrize(
    ("when", "step", "told", "time"),
    [
        ("before", 1, [], 0),
        ("after", 1, [], 0),  # hit where it waits
        ("before", 2, ["woken"], 1),  # what it waited for has happened; it is hit at its next wait
        ("after", 2, ["woken"], 1),
        ("before", 3, ["woken", "done"], 2),  # there is no next wait
    ],
)
def test_after_hits_where_a_task_waits_and_before_at_its_next_wait(
    when: When, step: int, told: list[str], time: float
) -> None:
    trial = played(two_waits, Cut(CANCEL, when, step), world=[])
    assert trial.world == told
    assert trial.cancelled is ("done" not in told)
    assert trial.error is None
    [performed] = trial.performed
    assert performed.cut == Cut(CANCEL, when, step)
    assert performed.time - trial.began == time
    assert performed.task.endswith("_Probe.main")


def test_a_run_may_end_before_its_cut() -> None:
    trial = played(once, Cut(CANCEL, "after", 2))
    assert trial.performed == []
    assert trial.untouched
    assert not trial.cancelled
    assert trial.ended - trial.began == 1


def test_two_cuts_come_one_after_the_other() -> None:
    seen: list[str] = []
    first, second = (Action(name, lambda _, name=name: seen.append(name)) for name in ("first", "second"))
    trial = played(two_waits, Cut(first, "after", 1), Cut(second, "after", 2), world=[])
    assert seen == ["first", "second"]
    calls = [place_of(two_waits, "# first"), place_of(two_waits, "# second")]
    assert [cut.place.stack for cut in trial.performed] == [
        (call, place_of(in_a_second, "event.wait()")) for call in calls
    ]
    assert trial.cut("second") is trial.performed[1]
    assert trial.cut("third") is None
    assert not trial.untouched


def test_a_cut_is_found_by_its_name_or_its_kind() -> None:
    @attrs.define
    class World:
        graces: list[float] = attrs.field(factory=list)

        def abort(self, grace: float) -> None:
            self.graces.append(grace)

    trial = played(once, Cut(ABORT(0.5), "after", 1), world=World())
    assert trial.world.graces == [0.5]
    assert trial.cut("abort") is trial.cut("abort(0.5)") is trial.performed[0]
    assert trial.cut("abort(5)") is trial.cut("abo") is None


def test_a_world_hears_of_a_cut_just_before_it_comes() -> None:
    @attrs.define
    class World:
        told: list[str] = attrs.field(factory=list)

        def before_cut(self) -> None:
            self.told.append("soon")

        def abort(self, grace: float) -> None:
            self.told.append("now")

    assert played(once, Cut(ABORT(), "after", 1), world=World()).world.told == ["soon", "now"]


# ------------------------------------------------------------------------------------------ delivered


async def shielded(_: object) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1)


async def behind_a_child(_: object) -> None:
    done = trio.Event()

    async def child() -> None:
        await trio.sleep(1)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await done.wait()


async def a_checkpoint(_: object) -> None:
    await trio.lowlevel.checkpoint()


async def shielded_checkpoint(_: object) -> None:
    await trio.lowlevel.cancel_shielded_checkpoint()


async def without_waiting(_: object) -> None:
    send, receive = trio.open_memory_channel[int](1)
    with send, receive:
        await send.send(1)


@pytest.mark.parametrize(
    ("scenario", "when", "step", "delivered"),
    [
        (once, "before", 1, True),  # it has not begun, and is cut where it first waits
        (once, "after", 1, True),
        (once, "before", 2, False),  # it was woken by what it waited for
        (shielded, "after", 1, False),
        (two_children, "after", 1, True),  # it waits for its nursery: its children are cut where they first wait
        (two_children, "after", 2, True),
        (behind_a_child, "after", 1, True),
        (behind_a_child, "after", 2, True),  # a step of the child, and the scenario's own task waits
        (a_checkpoint, "after", 1, True),  # it is ready again at once, and looks for a cancellation then
        (a_checkpoint, "before", 1, True),
        (shielded_checkpoint, "before", 1, False),
        (without_waiting, "before", 1, True),  # a channel with room looks for a cancellation too
    ],
)
def test_delivered_is_what_was_raised_in_a_task_of_the_scenario(
    scenario: Callable[[Any], Any], when: When, step: int, delivered: bool
) -> None:
    [performed] = played(scenario, Cut(CANCEL, when, step)).performed
    assert performed.delivered is delivered


def test_waking_a_task_is_no_delivery() -> None:
    async def scenario(world: trio.Event) -> None:
        await world.wait()
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    def wake(trial: Trial[Any]) -> None:
        trial.world.set()

    wakes = Action("wake", wake)
    event = trio.Event()
    trial = played(scenario, Cut(wakes, "after", 1), Cut(CANCEL, "after", 2), world=event)
    assert [performed.delivered for performed in trial.performed] == [False, False]


# ------------------------------------------------------------------------------------- how it ends


def test_what_is_raised_is_kept() -> None:
    async def scenario(_: object) -> None:
        raise LookupError("gone")

    trial = played(scenario)
    assert isinstance(trial.error, LookupError)
    assert not trial.cancelled


def test_the_tasks_that_outlive_it_are_named() -> None:
    async def lingering() -> None:
        await trio.sleep(1)

    async def scenario(_: object) -> None:
        trio.lowlevel.spawn_system_task(lingering)

    [left] = played(scenario).tasks_left
    assert left.endswith("lingering")


def test_an_interrupt_after_the_last_wait_is_kept_too() -> None:
    trial = played(once, Cut(INTERRUPT, "before", 2))
    assert isinstance(trial.error, KeyboardInterrupt)


async def test_it_is_refused_inside_of_a_trio_run() -> None:
    with pytest.raises(
        RuntimeError, match="cannot be used inside of one: call it from a plain function, or in a thread"
    ):
        played(once)


async def test_it_works_in_a_thread_of_a_trio_run() -> None:
    with trio.fail_after(5):
        trial = await trio.to_thread.run_sync(played, once)
    assert trial.ended - trial.began == 1
