"""The laws on what happens when: what they must not hold against a run."""

from __future__ import annotations

import trio

from trio_agent import Agent, tool
from trio_agent.testing import (
    ABORT,
    RUN_LAWS,
    Action,
    RunWorld,
    ScriptedModel,
    Trial,
    call,
    explore_cancellation,
    replay,
    say,
)


@tool
async def book(table: int) -> str:
    """Book a table."""
    await trio.sleep(60)
    return f"table {table} is yours"


def make_world() -> RunWorld:
    return RunWorld(Agent(ScriptedModel(call(book, table=4), call(book, table=5), say("Yours.")), tools=[book]))


def test_an_abort_that_came_before_the_run_is_not_held_against_it() -> None:
    report = explore_cancellation(
        make_world, RunWorld.play, laws=RUN_LAWS, action=ABORT(90), pairs=True, when=("before",), shrink=False
    )
    assert str(report).endswith("0 findings"), report


def test_a_body_may_abort_its_own_run_leave_it_early_or_fail() -> None:
    async def aborts(world: RunWorld) -> None:
        world.run.abort()
        await world.run.wait()

    async def leaves(world: RunWorld) -> None:
        await trio.sleep(30)

    async def fails(world: RunWorld) -> None:
        await trio.sleep(30)
        raise LookupError("the guest is gone")

    for body, expected in ((aborts, set()), (leaves, set()), (fails, {"nothing_else_is_raised"})):
        world = make_world()
        world.body = body
        broken = set()
        trial = replay("untouched", lambda world=world: world, RunWorld.play)
        for law in RUN_LAWS:
            try:
                law(trial)
            except AssertionError:
                broken.add(law.__name__)
        assert broken == expected


def test_an_action_of_ones_own_is_held_to_the_grace_that_it_names_and_to_none_if_it_names_none() -> None:
    def nothing(_: Trial[RunWorld]) -> None:
        """Whatever it was meant to do, it does not end the run."""

    for grace, expected in ((None, set()), (0, {"a_cut_ends_the_run_in_time", "nothing_starts_after_a_cut"})):
        action = Action("nothing", nothing, grace=grace)
        report = explore_cancellation(make_world, RunWorld.play, laws=RUN_LAWS, action=action, shrink=False)
        assert {finding.law for finding in report.findings} == expected
