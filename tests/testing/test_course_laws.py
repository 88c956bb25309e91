"""The laws on what happens when: what they must not hold against a run."""

from __future__ import annotations

import trio

from trio_agent import Agent, tool
from trio_agent.testing import ABORT, RUN_LAWS, RunWorld, ScriptedModel, call, explore_cancellation, say


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
