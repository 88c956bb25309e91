"""What is found is grouped by law and place, counted, told in words, and played again by its token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.testing.places import place_of
from trio_agent.testing import CANCEL, LAWS, Finding, Location, Report, Trial, explore_cancellation, replay
from trio_agent.testing._findings import sentence_of


async def works(told: list[str]) -> None:
    for _ in range(3):
        await trio.sleep(1)  # loop
        told.append("step")
    await trio.sleep(1)  # end


def it_took_all_steps(trial: Trial[list[str]]) -> None:
    """All steps are taken.

    What else there is to say stands below, and no report repeats it.
    """
    steps = len(trial.world)
    if steps != 3:  # pytest would add words of its own to an `assert`
        raise AssertionError(f"{steps} of 3\nsteps were taken")


def it_is_never_cut(trial: Trial[list[str]]) -> None:
    assert not trial.performed


def it_can_be_checked(trial: Trial[list[str]]) -> None:
    """A law that cannot be checked after a cut."""
    if trial.performed:
        raise ZeroDivisionError("a bug of the law's own")


def explored(*laws: Callable[[Trial[list[str]]], object], **options: Any) -> Report[list[str]]:
    return explore_cancellation(list, works, laws=laws, **options)


def test_findings_are_grouped_by_law_and_place_and_counted() -> None:
    report = explored(it_took_all_steps, it_is_never_cut, when=["after"], seeds=2)
    loop, end = place_of(works, "# loop"), place_of(works, "# end")
    assert [(each.law, each.place.name, each.times, each.token) for each in report.findings] == [
        ("it_took_all_steps", loop, 6, "cancel:after:1,seed=0"),
        ("it_is_never_cut", loop, 6, "cancel:after:1,seed=0"),
        ("it_is_never_cut", end, 2, "cancel:after:4,seed=0"),
    ]


def test_the_token_of_a_finding_breaks_the_same_law_again() -> None:
    laws = {law.__name__: law for law in (it_took_all_steps, it_is_never_cut, it_can_be_checked)}
    report = explored(*laws.values(), seeds=2)
    assert len(report.findings) >= 6
    for finding in report.findings:
        trial = replay(finding.token, list, works)
        assert trial.performed[-1].place == finding.place
        with pytest.raises((AssertionError, ZeroDivisionError)) as caught:
            laws[finding.law](trial)
        assert str(caught.value) == str(finding.error)


def test_a_law_that_raises_something_else_is_a_finding() -> None:
    report = explored(it_can_be_checked, when=["after"])
    assert {finding.law for finding in report.findings} == {"it_can_be_checked"}
    assert {finding.complaint for finding in report.findings} == {"ZeroDivisionError: a bug of the law's own"}
    with pytest.raises(AssertionError) as caught:
        report.raise_for_findings()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_law_may_say_nothing_about_what_is_wrong() -> None:
    [finding, _] = explored(it_is_never_cut, when=["after"]).findings
    assert finding.complaint.startswith(("AssertionError:", "assert not"))


def test_an_untouched_scenario_that_breaks_a_law_is_a_finding_of_its_own() -> None:
    def it_takes_four_steps(trial: Trial[list[str]]) -> None:
        """It takes four steps."""
        assert len(trial.world) == 4, f"it took {len(trial.world)}"

    report = explored(it_takes_four_steps, it_is_never_cut, seeds=3)
    [finding] = report.findings
    assert (finding.law, finding.place, finding.token) == (
        "it_takes_four_steps",
        Location("untouched"),
        "untouched,seed=0",
    )
    assert (report.runs, report.tried, report.met) == (1, 0, 0), "nothing else is tried"
    assert "at untouched" in str(report)


async def fails_under_some_schedules(told: list[str]) -> None:
    async def say(word: str) -> None:
        told.append(word)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say, "a")
        nursery.start_soon(say, "b")


def a_is_said_first(trial: Trial[list[str]]) -> None:
    """A is said before b."""
    assert trial.world[:1] != ["b"]


def test_another_seed_is_another_schedule_and_stands_in_the_token() -> None:
    said = [replay(f"untouched,seed={seed}", list, fails_under_some_schedules).world[0] for seed in range(20)]
    assert set(said) == {"a", "b"}
    report = explore_cancellation(list, fails_under_some_schedules, laws=[a_is_said_first], seeds=20)
    assert report.findings[-1].token == f"untouched,seed={said.index('b')}", "and there it ends"
    for finding in report.findings:
        with pytest.raises(AssertionError):
            a_is_said_first(replay(finding.token, list, fails_under_some_schedules))


def test_what_is_found_is_told_in_words() -> None:
    report = explored(it_took_all_steps, when=["after"])
    loop = place_of(works, "# loop")
    expected = f"""\
cancel: 4 of 4 points tried (2 places), 5 runs, 1 finding

1. it_took_all_steps, 3 times: All steps are taken.
    at {loop}
    0 of 3
    steps were taken
    replay: cancel:after:1,seed=0"""
    assert str(report) == expected
    with pytest.raises(AssertionError) as caught:
        report.raise_for_findings()
    assert str(caught.value) == expected
    assert isinstance(caught.value.__cause__, AssertionError)
    assert "steps were taken" in str(caught.value.__cause__)


def test_the_functions_around_a_place_are_told_from_the_inside_out() -> None:
    async def outer(told: list[str]) -> None:
        await works(told)  # call

    report = explore_cancellation(list, outer, laws=[it_took_all_steps], when=["after"])
    text = str(report.findings[0])
    assert f"    at {place_of(works, '# loop')}\n       in {place_of(outer, '# call')}\n" in text


def test_a_clean_bill_says_what_was_tried() -> None:
    report = explored(*LAWS, seeds=200, limit=2)
    assert str(report) == "cancel: 400 of 1,800 points tried (2 places), 600 runs, 0 findings"
    assert report.raise_for_findings() is report


def test_once_is_told_as_once() -> None:
    finding = Finding("a_law", "It says so.", Location("f (a/b.py:1)"), "wrong", "cancel:after:1,seed=0")
    assert str(finding).splitlines()[0] == "a_law, once: It says so."


def test_a_law_without_words_is_told_by_its_name() -> None:
    assert sentence_of(it_is_never_cut) == "it is never cut"
    assert sentence_of(it_took_all_steps) == "All steps are taken."


def test_a_finding_keeps_what_the_law_raised_out_of_its_equality() -> None:
    one, other = (explored(it_took_all_steps).findings[0] for _ in range(2))
    assert one == other
    assert one.error is not other.error
    assert isinstance(one.error, AssertionError)


def test_replay_asks_no_law_and_does_what_the_token_says() -> None:
    trial = replay("cancel:after:2,seed=3", list, works)
    assert (trial.world, trial.cancelled, trial.plan.seed) == (["step"], True, 3)
    assert trial.performed[0].cut.action == CANCEL
