"""The explorer visits every point, convicts each planted bug where it is, and says what it has tried."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from tests.testing.places import place_of
from trio_agent.testing import (
    ABORT,
    CANCEL,
    INTERRUPT,
    LAWS,
    Action,
    Cut,
    Report,
    Trial,
    explore_cancellation,
    replay,
)
from trio_agent.testing._plan import When


def explored(scenario: Callable[[Any], Any], world: Callable[[], Any] = object, **options: Any) -> Report[Any]:
    return explore_cancellation(world, scenario, **options)


def found(report: Report[Any]) -> set[tuple[str, str]]:
    return {(finding.law, finding.place.name) for finding in report.findings}


def test_a_scenario_that_keeps_the_laws_is_acquitted() -> None:
    async def scenario(_: object) -> None:
        try:
            await trio.sleep(1)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    for action in (CANCEL, INTERRUPT):
        report = explored(scenario, action=action, pairs=True, seeds=2)
        assert report.raise_for_findings() is report
        assert report.findings == ()


# --------------------------------------------------------------------- one planted bug for each law


async def waits_for_ever(_: object) -> None:
    done = trio.Event()
    try:
        await trio.sleep(1)  # cut
        done.set()
    finally:
        with trio.CancelScope(shield=True):
            await done.wait()


async def leaves_a_task(_: object) -> None:
    finished = trio.Event()

    async def work() -> None:
        await finished.wait()

    trio.lowlevel.spawn_system_task(work)
    await trio.sleep(1)  # cut
    finished.set()
    await trio.sleep(1)


async def swallows_a_cancellation(_: object) -> None:
    try:
        await trio.sleep(1)  # cut
    except trio.Cancelled:
        return


async def swallows_at_a_bare_checkpoint(_: object) -> None:
    try:
        await trio.lowlevel.checkpoint()  # cut
    except trio.Cancelled:
        return


async def swallows_around_a_nursery(_: object) -> None:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(trio.sleep, 2)
    except BaseExceptionGroup:
        return


async def swallows_in_a_child(_: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swallows_a_cancellation, None)


async def raises_on_its_way_out(_: object) -> None:
    try:
        await trio.sleep(1)  # cut
    except trio.Cancelled:
        raise LookupError("no such file") from None


@pytest.mark.parametrize("scenario", [swallows_at_a_bare_checkpoint, swallows_around_a_nursery, swallows_in_a_child])
def test_a_cancellation_that_is_swallowed_is_noticed_wherever_it_was_raised(scenario: Callable[[Any], Any]) -> None:
    report = explored(scenario)
    assert {finding.law for finding in report.findings} == {"a_cancellation_goes_on"}


async def swallows_an_interrupt(_: object) -> None:
    try:
        await trio.sleep(1)  # cut
    except KeyboardInterrupt:
        return


BUGS: list[tuple[Callable[[Any], Any], str, str, Action]] = [
    (
        waits_for_ever,
        "it_ends",
        "it waits for ever: no task is ready, no deadline is set, no thread of Trio is at work",
        CANCEL,
    ),
    (leaves_a_task, "nothing_is_left_running", "still running: ", CANCEL),
    (swallows_a_cancellation, "a_cancellation_goes_on", "it was cancelled where it waited, and returned", CANCEL),
    (raises_on_its_way_out, "nothing_else_is_raised", "it raised LookupError: no such file", CANCEL),
    (swallows_an_interrupt, "an_interrupt_goes_on", "it was left by nothing: it returned", INTERRUPT),
]


def test_there_is_a_planted_bug_for_each_law() -> None:
    assert {law for _, law, _, _ in BUGS} == {law.__name__ for law in LAWS}


@pytest.mark.parametrize(("scenario", "law", "complaint", "action"), BUGS, ids=[law for _, law, _, _ in BUGS])
def test_a_planted_bug_is_convicted_at_its_line(
    scenario: Callable[[Any], Any], law: str, complaint: str, action: Action
) -> None:
    report = explored(scenario, action=action, when=["after"])
    assert found(report) == {(law, place_of(scenario, "# cut"))}
    [finding] = report.findings
    assert finding.complaint.startswith(complaint)
    broken = replay(finding.token, object, scenario)
    [same] = [each for each in LAWS if each.__name__ == law]
    with pytest.raises(AssertionError, match=complaint):
        same(broken)


def test_a_task_that_was_left_is_named() -> None:
    [finding] = explored(leaves_a_task, when=["after"]).findings
    assert finding.complaint.endswith("leaves_a_task.<locals>.work")


# --------------------------------------------------------------------------------------- counting


async def two_waits(told: list[str]) -> None:
    await trio.sleep(1)
    told.append("one")
    await trio.sleep(1)
    told.append("two")


@pytest.mark.parametrize(
    ("when", "points", "places"), [(["after"], 2, 2), (["before"], 3, 3), (["before", "after"], 5, 3)]
)
def test_each_point_is_tried_once_for_each_seed(when: list[When], points: int, places: int) -> None:
    # Before its beginning, before each waking; after each wait.
    for seeds in (1, 3):
        report = explored(two_waits, list, when=when, seeds=seeds)
        assert (report.tried, report.met, report.runs) == (points * seeds, points * seeds, (points + 1) * seeds)
        assert report.places == places


def test_each_point_is_another_cut() -> None:
    seen: list[tuple[When, int]] = []

    def remember(trial: Trial[Any]) -> None:
        seen.extend((performed.cut.when, performed.cut.step) for performed in trial.performed)

    explored(two_waits, list, laws=[remember])
    assert seen == [("before", 1), ("before", 2), ("before", 3), ("after", 1), ("after", 2)]


def never_cut(trial: Trial[Any]) -> None:
    """Nothing is ever done to it."""
    assert not trial.performed


async def loops(_: object) -> None:
    for _ in range(40):
        await trio.sleep(1)  # often
    await trio.sleep(1)  # once
    await trio.sleep(1)  # last


def test_a_limit_draws_each_place_at_least_once_and_says_what_was_left_out() -> None:
    report = explored(loops, laws=[never_cut], limit=6, when=["after"])
    assert (report.tried, report.met, report.runs, report.places) == (6, 42, 7, 3)
    assert found(report) == {("never_cut", place_of(loops, f"# {name}")) for name in ("often", "once", "last")}
    assert str(report).startswith("cancel: 6 of 42 points tried (3 places), 7 runs, 3 findings")


def test_a_limit_is_spread_over_the_points_and_over_both_sides() -> None:
    cuts: list[Cut] = []
    explored(loops, laws=[lambda trial: cuts.extend(each.cut for each in trial.performed)], limit=20)
    for when in ("before", "after"):
        steps = [cut.step for cut in cuts if cut.when == when]
        assert len(steps) == len(set(steps)) == 10
        assert max(b - a for a, b in zip([0, *steps], [*steps, 43], strict=True)) <= 8


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert explored(two_waits, list, limit=100) == explored(two_waits, list)


def test_a_limit_below_the_number_of_places_takes_the_first() -> None:
    report = explored(loops, limit=2, when=["after"])
    assert (report.tried, report.met, report.places) == (2, 42, 2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seeds": 0}, "expected seeds to be at least 1, got 0"),
        ({"limit": 0}, "expected limit to be at least 2, one for each side of a step, got 0"),
        ({"limit": 1}, "expected limit to be at least 2, one for each side of a step, got 1"),
        ({"limit": 0, "when": ["after"]}, "expected limit to be at least 1"),
        ({"when": "after"}, "expected when to name one or both"),
        ({"when": ()}, "expected when to name one or both"),
    ],
)
def test_what_would_try_nothing_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        explored(two_waits, list, **options)


# ------------------------------------------------------------------------------------------- pairs


async def tidies_up(told: list[str]) -> None:
    try:
        await trio.sleep(1)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            told.append("tidy")


def remembering(pairs: Counter[tuple[str, ...]]) -> Callable[[Trial[Any]], None]:
    def remember(trial: Trial[Any]) -> None:
        pairs[tuple(str(performed.cut) for performed in trial.performed)] += 1

    return remember


def test_of_a_pair_both_are_done() -> None:
    done: Counter[tuple[str, ...]] = Counter()
    report = explored(tidies_up, list, laws=[remembering(done)], pairs=True, when=["after"])
    assert done == {(): 1, ("cancel:after:1", "cancel:after:2"): 1}
    assert (report.what, report.tried, report.met, report.runs) == ("cancel + cancel", 1, 1, 2)


def test_the_second_of_a_pair_may_be_another_action() -> None:
    done: Counter[tuple[str, ...]] = Counter()
    mine = Action("mine", lambda _: None)
    report = explored(tidies_up, list, laws=[remembering(done)], action=mine, pairs=CANCEL)
    assert report.what == "mine + cancel"
    assert done == {
        (): 1,
        ("mine:before:1", "cancel:before:2"): 1,
        ("mine:before:1", "cancel:before:3"): 1,
        ("mine:before:2", "cancel:before:3"): 1,
        ("mine:after:1", "cancel:after:2"): 1,
    }


def test_of_a_pair_that_was_drawn_both_are_done_too() -> None:
    done: Counter[tuple[str, ...]] = Counter()

    async def scenario(_: object) -> None:
        with trio.CancelScope(shield=True):
            await loops(None)
        await loops(None)

    report = explored(scenario, laws=[remembering(done)], pairs=True, limit=40)
    assert done.pop(()) == 1
    assert {len(cuts) for cuts in done} == {2}
    assert set(done.values()) == {1}
    assert len(done) == report.tried == 40
    assert report.met == 84 * 83 // 2 + 85 * 84 // 2


def test_a_finding_of_a_pair_whose_second_action_is_ones_own_is_reported() -> None:
    mine = Action("mine", lambda _: None)
    report = explored(tidies_up, list, laws=[never_cut], pairs=mine, when=["after"])
    [finding] = report.findings
    assert finding.token == "cancel:after:1+mine:after:2,seed=0"
    assert [each.cut for each in replay(finding.token, list, tidies_up, actions=[mine]).performed] == [
        Cut(CANCEL, "after", 1),
        Cut(mine, "after", 2),
    ]


# ----------------------------------------------------------------------------------------- actions


def test_an_interrupt_leaves_by_keyboard_interrupt_and_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    left: list[BaseException | None] = []
    report = explored(two_waits, list, action=INTERRUPT, laws=[*LAWS, lambda trial: left.append(trial.error)])
    report.raise_for_findings()
    assert [type(error) for error in left] == [type(None), *[KeyboardInterrupt] * 5]
    assert signal.getsignal(signal.SIGINT) is before


async def test_an_interrupt_that_would_not_reach_trio_is_refused() -> None:
    def explore() -> None:
        explored(two_waits, list, action=CANCEL, pairs=INTERRUPT)

    with trio.fail_after(5):
        with pytest.raises(RuntimeError, match="only the main thread hears"):
            await trio.to_thread.run_sync(explore)


def test_an_interrupt_is_refused_where_somebody_else_hears_it() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with pytest.raises(RuntimeError, match="needs Python's own handler"):
            explored(two_waits, list, action=INTERRUPT)
    finally:
        signal.signal(signal.SIGINT, before)


@attrs.define
class Abortable:
    """Ends when it is told to, but only by what it waits for."""

    end: trio.Event = attrs.field(factory=trio.Event)
    graces: list[float] = attrs.field(factory=list)

    def abort(self, grace: float) -> None:
        self.graces.append(grace)
        self.end.set()

    async def play(self) -> None:
        with trio.move_on_after(5):
            await self.end.wait()


def test_an_abort_is_the_worlds_own_affair() -> None:
    graces: list[list[float]] = []
    report = explored(
        Abortable.play, Abortable, action=ABORT(2), laws=[lambda trial: graces.append(trial.world.graces)]
    )
    assert report.what == "abort(2)"
    assert graces == [[], [2], [2], [2]]


def test_an_action_of_ones_own_is_done_and_named() -> None:
    def poison(trial: Trial[list[str]]) -> None:
        trial.world.append("poison")

    def is_clean(trial: Trial[list[str]]) -> None:
        assert "poison" not in trial.world

    action = Action("poison", poison)
    report = explored(two_waits, list, action=action, laws=[is_clean], when=["after"])
    assert [finding.token for finding in report.findings] == ["poison:after:1,seed=0", "poison:after:2,seed=0"]
    assert replay("poison:after:1", list, two_waits, actions=[action]).world == ["poison", "one", "two"]
    with pytest.raises(ValueError, match="no action is called 'poison'"):
        replay("poison:after:1", list, two_waits)


async def only_returns_if_nobody_cuts(_: object) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1)


@pytest.mark.parametrize("scenario", [two_waits, only_returns_if_nobody_cuts])
def test_an_action_that_fails_is_no_clean_bill(scenario: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"'abort\(2\)' failed at abort\(2\):before:1: AttributeError: .* 'abort'"):
        explored(scenario, list, action=ABORT(2))


def test_a_world_that_fails_to_note_a_cut_is_no_clean_bill() -> None:
    class World:
        def before_cut(self) -> None:
            raise LookupError("no note")

    with pytest.raises(RuntimeError, match="'cancel' failed at cancel:before:1: LookupError: no note"):
        explored(only_returns_if_nobody_cuts, World)


async def test_it_is_refused_inside_of_a_trio_run() -> None:
    with pytest.raises(RuntimeError, match="call it from a plain function"):
        explored(two_waits, list)


def test_an_async_law_or_action_is_refused_since_nothing_of_it_would_run() -> None:
    async def law(trial: Trial[Any]) -> None:
        raise AssertionError

    async def act(trial: Trial[Any]) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="the law law is async: expected a plain function"):
        explored(waits_for_ever, laws=[law])
    with pytest.raises(RuntimeError, match="the action shut is async: expected a plain function"):
        explored(swallows_a_cancellation, action=Action("shut", act))
