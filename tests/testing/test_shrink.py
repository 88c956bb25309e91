"""A finding is shown in the smallest world that still has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

from trio_agent import Agent, tool
from trio_agent.testing import (
    Action,
    Report,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    calls,
    explore_cancellation,
    replay,
    say,
)
from trio_agent.testing._parts import parts_of, without


@tool
async def bad() -> str:
    """Leave a mark if it is cut."""
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        marks.append("cut")
        raise
    return "done"


@tool
async def good() -> str:
    """Work."""
    await trio.sleep(1)
    return "done"


marks: list[str] = []


def make() -> RunWorld:
    marks.clear()
    script = ScriptedModel(
        calls(call("good"), call("good"), text="First."),
        calls(call("good"), call("bad"), call("good"), text="Second."),
        say("Third.", chunks=3, every=1),
    )
    return RunWorld(Agent(script, tools=[good, bad]))


def no_call_of_bad_is_cut(trial: Trial[RunWorld]) -> None:
    """The bad tool is never cut."""
    assert not marks


def explored(**options: Any) -> Report[RunWorld]:
    return explore_cancellation(make, RunWorld.play, laws=[no_call_of_bad_is_cut], when=["after"], **options)


def test_a_finding_that_needs_one_call_of_one_turn_shrinks_to_it() -> None:
    whole = explored(shrink=False)
    report = explored()
    [finding] = [each for each in report.findings if each.place.stack[-1].startswith("bad")]
    [same] = [each for each in whole.findings if each.place == finding.place]
    assert "without=" not in same.token
    token, _, left_out = finding.token.partition(",without=")
    assert left_out.split("/") == ["turn 3", "turn 1", "call 2.4", "call 2.2", "chunk 2.1"]
    assert int(token.split(":")[2].partition(",")[0]) < int(same.token.split(":")[2].partition(",")[0])
    assert finding.times == same.times, "how often it was found does not shrink"
    assert report.runs == whole.runs, "nor what was tried"


def test_the_smaller_world_breaks_the_same_law_when_it_is_played_again() -> None:
    [finding] = [each for each in explored().findings if each.place.stack[-1].startswith("bad")]
    trial = replay(finding.token, make, RunWorld.play)
    with pytest.raises(AssertionError):
        no_call_of_bad_is_cut(trial)
    assert trial.performed[0].place == finding.place
    [only] = trial.world.agent.model.turns
    assert [step.name for step in only.steps] == ["bad"]


# ------------------------------------------------------------------------------- any world with parts


@attrs.define
class Steps:
    """A world of named steps, of which any can be left out."""

    names: list[str] = attrs.field(factory=lambda: ["a", "b", "c", "d", "e"])
    left: list[Sequence[str]] = attrs.field(factory=list)

    def parts(self) -> Sequence[str]:
        return list(self.names)

    def leave_out(self, parts: Sequence[str]) -> None:
        self.names = [name for name in self.names if name not in parts]
        self.left.append(parts)

    async def play(self) -> None:
        for name in self.names:
            await getattr(self, f"play_{name}", self.play_any)()

    async def play_any(self) -> None:
        await trio.sleep(1)

    async def play_c(self) -> None:
        await trio.sleep(1)

    async def play_d(self) -> None:
        await trio.sleep(1)


def d_is_not_cut_behind_b(trial: Trial[Steps]) -> None:
    """The step d is not cut if b came before it."""
    cut = any("play_d" in performed.place.name for performed in trial.performed)
    assert not (cut and "b" in trial.world.names)


def test_what_the_finding_needs_is_kept() -> None:
    [finding] = explore_cancellation(Steps, Steps.play, laws=[d_is_not_cut_behind_b], when=["after"]).findings
    assert finding.token == "cancel:after:2,seed=0,without=a/c/e"
    assert replay(finding.token, Steps, Steps.play).world.names == ["b", "d"]


def test_a_smaller_world_that_breaks_in_another_way_is_no_smaller_finding() -> None:
    def make() -> RunWorld:
        return RunWorld(Agent(ScriptedModel(call("nope"), say("Done.")), max_turns=5))

    def it_says_nothing_of_done(trial: Trial[RunWorld]) -> None:
        """It fails in its own way, or for want of a script."""
        assert trial.world.result.stop_reason == "stop", "the script is over"
        raise AssertionError("it was done")

    [finding] = explore_cancellation(make, RunWorld.play, laws=[it_says_nothing_of_done]).findings
    assert finding.complaint == "it was done"
    assert finding.token == "untouched,seed=0,without=turn 1"


def test_an_untouched_world_shrinks_too() -> None:
    def there_is_no_c(trial: Trial[Steps]) -> None:
        """There is no c."""
        assert "c" not in trial.world.names

    [finding] = explore_cancellation(Steps, Steps.play, laws=[there_is_no_c]).findings
    assert finding.token == "untouched,seed=0,without=a/b/d/e"


def test_a_finding_of_a_pair_and_of_ones_own_actions_shrinks_too() -> None:
    one, other = (Action(name, lambda _: None) for name in ("one", "other"))

    def not_both_in_d(trial: Trial[Steps]) -> None:
        """Nothing is done to the step d."""
        assert "play_d" not in str([performed.place for performed in trial.performed])

    report = explore_cancellation(Steps, Steps.play, laws=[not_both_in_d], action=one, pairs=other, when=["after"])
    for finding in report.findings:
        trial = replay(finding.token, Steps, Steps.play, actions=[one, other])
        with pytest.raises(AssertionError):
            not_both_in_d(trial)
        assert len(trial.world.names) == 2


def test_only_the_first_findings_are_made_smaller() -> None:
    def it_is_not_cut(trial: Trial[Steps]) -> None:
        """It is not cut."""
        assert not trial.performed

    @attrs.define
    class Different(Steps):
        async def play_a(self) -> None:
            await trio.sleep(1)

        async def play_b(self) -> None:
            await trio.sleep(1)

    report = explore_cancellation(Different, Different.play, laws=[it_is_not_cut], when=["after"])
    assert [finding.token for finding in report.findings] == [
        "cancel:after:1,seed=0,without=b/c/d/e",
        "cancel:after:1,seed=0,without=a/c/d/e",
        "cancel:after:1,seed=0,without=a/b/d/e",
        "cancel:after:4,seed=0",
        "cancel:after:5,seed=0",
    ]


def test_a_world_without_parts_is_left_alone() -> None:
    async def scenario(_: object) -> None:
        await trio.sleep(1)

    def it_is_not_cut(trial: Trial[object]) -> None:
        """It is not cut."""
        assert not trial.performed, "it was"

    both = [explore_cancellation(object, scenario, laws=[it_is_not_cut], shrink=shrink) for shrink in (True, False)]
    assert [[finding.token for finding in report.findings] for report in both] == [
        ["cancel:before:1,seed=0", "cancel:before:2,seed=0"]
    ] * 2


# -------------------------------------------------------------------------------- the parts of a script

SCRIPT = (calls(call("a"), call("b"), text="Hi."), "plain", say("Three.", chunks=2, every=1), RuntimeError("no"))


def test_parts_are_named_by_turn_and_step_and_later_ones_come_first() -> None:
    assert parts_of(SCRIPT) == (
        "turn 4",
        "turn 3",
        "turn 2",
        "turn 1",
        "call 1.3",
        "call 1.2",
        "chunk 3.3",
        "chunk 3.2",
        "chunk 3.1",
        "chunk 1.1",
    )


@pytest.mark.parametrize("part", parts_of(SCRIPT))
def test_each_part_can_be_left_out_alone(part: str) -> None:
    def sizes(turns: Sequence[Any]) -> list[int]:
        return [len(getattr(turn, "steps", "-")) for turn in turns]

    before, after = sizes(SCRIPT), sizes(without(SCRIPT, [part]))
    turn = int(part.split()[1].partition(".")[0]) - 1
    if part.startswith("turn"):
        del before[turn]
    else:
        before[turn] -= 1
    assert after == before


def test_names_stay_what_they_are_when_others_are_left_out() -> None:
    left = without(SCRIPT, ["turn 2", "call 1.2", "chunk 3.2"])
    assert [step.name for step in left[0].steps if hasattr(step, "name")] == ["b"]
    assert [step.text for step in left[1].steps] == ["Thr", "ee."]
    assert without(SCRIPT, []) == SCRIPT


def test_a_part_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"the script has no call 1\.1, turn 9"):
        without(SCRIPT, ["turn 9", "call 1.1"])
    with pytest.raises(ValueError, match="the script has no turn 9"):
        replay("untouched,without=turn 9", make, RunWorld.play)
