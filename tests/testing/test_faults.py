"""Each seam fails at each of its crossings, before and after its effect, and who cannot bear it is convicted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
import trio

from trio_agent.testing import InjectedFault, Location, Seams, Trial, explore_faults, replay


@attrs.define
class Shop:
    """Orders something and pays for it; both go over the network."""

    seams: Seams = attrs.field(factory=Seams)
    booked: Counter[str] = attrs.field(factory=Counter)
    tries: int = 1

    async def buy(self) -> None:
        for what in ("order", "pay"):
            for _ in range(self.tries):
                try:
                    await self.seams.cross(what, lambda what=what: self._book(what))
                except InjectedFault:
                    continue
                break
            else:
                return

    async def _book(self, what: str) -> None:
        await trio.sleep(1)
        self.booked[what] += 1


class Retrying(Shop):
    """Tries again, though its answer may only have been lost."""

    def __init__(self) -> None:
        super().__init__(tries=2)


class Brittle(Shop):
    """Leaves it to others to clean up."""

    async def buy(self) -> None:
        try:
            await self.seams.cross("order", lambda: self._book("order"))
        except InjectedFault as error:
            raise LookupError("no order") from error


class Clumsy(Shop):
    """Hides what went wrong behind a slip of its own."""

    async def buy(self) -> None:
        failed = False
        try:
            await self.seams.cross("order", lambda: self._book("order"))
        except InjectedFault:
            failed = True
        if failed:
            raise KeyError("order")


def nothing_is_booked_twice(trial: Trial[Shop]) -> None:
    """Nothing is booked twice."""
    assert all(times == 1 for times in trial.world.booked.values()), f"booked: {dict(trial.world.booked)}"


def what_is_paid_is_ordered(trial: Trial[Shop]) -> None:
    """Whatever is paid is ordered."""
    assert bool(trial.world.booked["pay"]) <= bool(trial.world.booked["order"])


LAWS = (nothing_is_booked_twice, what_is_paid_is_ordered)


def test_each_crossing_fails_once_on_each_side() -> None:
    seen: list[str] = []

    def remember(trial: Trial[Shop]) -> None:
        seen.append(trial.plan.token)
        assert (trial.injected is not None) is (trial.plan.fault is not None)

    report = explore_faults(Shop, Shop.buy, laws=[remember], seeds=2)
    assert report.raise_for_findings().what == "faults"
    one = ["untouched", *(f"fault({s}):{w}:1" for s in ("order", "pay") for w in ("before", "after"))]
    assert seen == [f"{token},seed={seed}" for seed in (0, 1) for token in one]
    assert (report.tried, report.met, report.runs, report.places) == (8, 8, 10, 4)


def test_an_answer_that_is_lost_convicts_who_tries_again() -> None:
    report = explore_faults(Retrying, Shop.buy, laws=LAWS)
    assert [(each.law, each.place, each.complaint.splitlines()[0], each.token) for each in report.findings] == [
        (
            "nothing_is_booked_twice",
            Location(f"the seam {seam}, after its effect"),
            f"booked: {booked}",
            f"fault({seam}):after:1,seed=0",
        )
        for seam, booked in (("order", {"order": 2, "pay": 1}), ("pay", {"order": 1, "pay": 2}))
    ]
    assert explore_faults(Retrying, Shop.buy, laws=LAWS, when=["before"]).findings == ()


def test_the_token_of_a_fault_breaks_the_same_law_again() -> None:
    [finding, _] = explore_faults(Retrying, Shop.buy, laws=LAWS).findings
    with pytest.raises(AssertionError, match="booked"):
        nothing_is_booked_twice(replay(finding.token, Retrying, Shop.buy))


def test_only_the_seams_that_are_named_fail() -> None:
    report = explore_faults(Retrying, Shop.buy, laws=LAWS, seams=["pay"])
    assert [finding.token for finding in report.findings] == ["fault(pay):after:1,seed=0"]
    assert report.tried == 2


def test_a_fault_may_leave_the_scenario_also_wrapped_but_nothing_else_may() -> None:
    explore_faults(Brittle, Brittle.buy).raise_for_findings()
    [before, after] = explore_faults(Clumsy, Clumsy.buy).findings
    assert before.law == after.law == "nothing_else_is_raised"
    assert before.complaint == "it raised KeyError: 'order'"


def test_the_error_is_the_users_choice() -> None:
    errors: list[Exception | None] = []
    explore_faults(Shop, Shop.buy, laws=[lambda trial: errors.append(trial.injected)], error=lambda: OSError(5, "lost"))
    assert [type(error) for error in errors] == [type(None), *[OSError] * 4]
    assert len({id(error) for error in errors}) == 5, "a new one each time"


@attrs.define
class Many:
    """Crosses one seam ten times, another one once, and waits for the last answer for ever."""

    seams: Seams = attrs.field(factory=Seams)

    async def play(self) -> None:
        for _ in range(10):
            try:
                await self.seams.cross("many", trio.lowlevel.checkpoint)
            except InjectedFault:
                pass
        with trio.move_on_after(5):
            await self.seams.cross("endless", trio.sleep_forever)


@pytest.mark.parametrize(
    ("limit", "crossings"), [(None, range(1, 11)), (100, range(1, 11)), (3, (1, 5, 9)), (1, (1,)), (5, (1, 3, 5, 7, 9))]
)
def test_a_limit_draws_crossings_evenly_and_says_how_many_there_are(limit: int | None, crossings: Any) -> None:
    tried: list[int] = []

    def remember(trial: Trial[Many]) -> None:
        if trial.plan.fault is not None:
            tried.append(trial.plan.fault.crossing)

    report = explore_faults(Many, Many.play, laws=[remember], limit=limit, seams=["many"], when=["after"])
    assert tried == list(crossings)
    assert (report.tried, report.met) == (len(tried), 10)


def test_a_call_that_never_returns_has_nothing_behind_its_effect() -> None:
    report = explore_faults(Many, Many.play, laws=[], seams=["endless"])
    assert (report.tried, report.places) == (1, 1)


def test_a_scenario_that_breaks_a_law_untouched_is_not_made_to_fail() -> None:
    def it_is_free(trial: Trial[Shop]) -> None:
        """It is free."""
        assert not trial.world.booked["pay"]

    report = explore_faults(Shop, Shop.buy, laws=[it_is_free], seeds=3)
    assert [finding.token for finding in report.findings] == ["untouched,seed=0"]
    assert report.runs == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seams": ["ordr"]}, r"seams that are never crossed: \['ordr'\]; there are \['order', 'pay'\]"),
        ({"seams": ["pay", "ordr"], "limit": 3}, r"seams that are never crossed: \['ordr'\]"),
        ({"when": "after"}, "expected when to name one or both"),
        ({"seeds": 0}, "expected seeds to be at least 1"),
        ({"limit": 0}, "expected limit to be at least 1"),
    ],
)
def test_what_would_try_nothing_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        explore_faults(Shop, Shop.buy, **options)


def test_a_world_without_seams_is_refused() -> None:
    with pytest.raises(TypeError, match="list needs an attribute `seams: Seams`"):
        explore_faults(list, lambda _: trio.sleep(1))
