"""Calls that are cut while a person is asked whether they may run: nobody waits for an answer that changes nothing."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Watched
from trio_agent import Agent, Allow, ApprovalRequest, HookContext, Middleware, PreparedCall, Suspend, ToolContext, tool
from trio_agent.testing import ScriptedModel, call, calls, say

How = Literal["cancel_call", "interrupt"]
BOTH = pytest.mark.parametrize("how", ["cancel_call", "interrupt"])


def an_agent(**options: Any) -> tuple[Agent, list[str]]:
    """An agent with two calls that need a permission, and what has run."""
    ran: list[str] = []

    @tool(requires_approval=True)
    async def sign(ctx: ToolContext) -> str:
        """Sign."""
        ran.append(ctx.call_id)
        return "signed"

    model = ScriptedModel(calls(call(sign, id="a"), call(sign, id="b")), say("Well then."))
    return Agent(model, tools=[sign], store=FakeStore(), **options), ran


async def cut(watched: Watched, how: How) -> None:
    if how == "cancel_call":
        assert watched.run.cancel_call("a")
    else:
        await watched.run.steer("Leave that.", interrupt=True)


@BOTH
async def test_nobody_waits_for_an_answer_about_a_call_that_was_left_out(autojump_clock: MockClock, how: How) -> None:
    asked: list[tuple[str, float]] = []

    async def person(request: ApprovalRequest) -> Allow:
        asked.append((request.call_id, trio.current_time()))
        await trio.sleep(10)
        return Allow()

    agent, ran = an_agent(approval=person)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            await cut(watched, how)
            await watched.run.wait()
    assert watched.result.text == "Well then."
    if how == "cancel_call":
        assert watched.statuses == {"a": "not_run", "b": "ok"}
        assert (asked, ran, watched.took) == ([("a", 0), ("b", 1)], ["b"], 11)
    else:
        assert watched.statuses == {"a": "not_run", "b": "not_run"}
        assert (asked, ran, watched.took) == ([("a", 0)], [], 1)
    assert [each.call_id for each in watched.log if each.kind == "approval_resolved"] == ran


@BOTH
@pytest.mark.parametrize("late", [Allow(), Suspend()])
async def test_an_answer_in_the_very_moment_comes_too_late(
    autojump_clock: MockClock, how: How, late: Allow | Suspend
) -> None:
    async def person(request: ApprovalRequest) -> Allow | Suspend:
        if request.call_id == "b":
            return Allow()
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return late

    agent, ran = an_agent(approval=person)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            await cut(watched, how)
            await watched.run.wait()
    assert watched.statuses["a"] == "not_run"
    assert watched.result.stop_reason == "stop"
    assert [each.call_id for each in watched.log if each.kind == "approval_resolved"] == ran


@BOTH
@pytest.mark.parametrize("suspends", [False, True])
async def test_nobody_is_asked_about_a_call_that_was_left_out_while_a_hook_before_took_its_time(
    autojump_clock: MockClock, how: How, suspends: bool
) -> None:
    class Slow(Middleware):
        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Suspend | None:
            await trio.sleep(5)
            return Suspend() if suspends and call.call.id == "a" else None

    asked: list[str] = []

    async def person(request: ApprovalRequest) -> Allow:
        asked.append(request.call_id)
        return Allow()

    agent, ran = an_agent(approval=person, middleware=[Slow()])
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            await cut(watched, how)
            await watched.run.wait()
    assert watched.statuses["a"] == "not_run"
    assert watched.result.stop_reason == "stop"
    assert asked == ran == (["b"] if how == "cancel_call" else [])
