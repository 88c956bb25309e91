"""Suspended and resumed runs as their observers see them: in the promised order, and nothing of them twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from trio_agent import (
    Agent,
    Allow,
    Event,
    HookContext,
    InputRequest,
    Middleware,
    RequestError,
    Run,
    ToolContext,
    ToolExecutionEnd,
    ToolUse,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import EventOrder, ScriptedModel, call, calls, check_order, say


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool(effect="pure")
async def ask(ctx: ToolContext) -> str:
    """Ask, and work on for a while."""
    answer = await ctx.ask("Which?")
    await trio.sleep(5)
    return answer


def both_ask() -> ScriptedModel:
    return ScriptedModel(calls(call(ask, id="a"), call(ask, id="b")), say("So."))


async def at_once(request: InputRequest) -> str:
    return "this"


def statuses(events: list[Event]) -> dict[str, str]:
    return {e.result.call_id: e.result.status for e in events if isinstance(e, ToolExecutionEnd)}


async def seen(run: Run, do: Callable[[Run, Event], Awaitable[None]] | None = None) -> list[Event]:
    """All events of a run; ``do`` is called with each."""
    events: list[Event] = []
    async with run:
        async for event in run:
            events.append(event)
            if do is not None:
                await do(run, event)
    return events


async def test_results_of_a_suspended_turn_are_told_once_and_together(autojump_clock: MockClock) -> None:
    order = EventOrder(session=True)
    agent = Agent(
        ScriptedModel(calls(call(look, id="l"), call(pay, id="p")), say("So.")),
        tools=[look, pay],
        approval=suspend,
        listeners=[order],
    )
    with trio.fail_after(100):
        async with agent.session() as session:
            first = await seen(session.run("go"))
            second = await seen(session.resume_run({"p": Allow()}))
    order.done()
    check_order(first)
    check_order(second)
    told = [e.call_id for e in (*first, *second) if e.kind == "message_start" and e.role == "tool"]  # type: ignore[union-attr]
    assert told == ["l", "p"]


class Failing(Middleware):
    async def after_agent(self, ctx: HookContext) -> None:
        raise RequestError("no")


async def test_an_error_behind_a_suspended_turn_settles_its_calls(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(
        ScriptedModel(calls(call(look, id="l"), call(pay, id="p"), call(ask, id="a"))),
        tools=[look, pay, ask],
        approval=suspend,
        input=suspend,
        middleware=[Failing()],
        store=store,
    )
    with trio.fail_after(100):
        async with agent.session("s") as session:
            run = session.run("go")
            events = await seen(run)
        log = await store.read("s")
    check_order(events)
    check_order(log, facts_only=True)
    assert run.result.stop_reason == "error"
    assert run.result.pending == ()
    assert statuses(events) == {"l": "ok", "p": "not_run", "a": "interrupted"}
    assert [len(message.results) for message in run.result.messages] == [0, 0, 3, 0]


@pytest.mark.parametrize("how", ["steer", "cancel_call"])
async def test_a_call_that_ran_before_a_suspension_can_be_left_out_after_it(
    how: str, autojump_clock: MockClock
) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with Agent(both_ask(), tools=[ask], input=suspend, store=store).session("s") as session:
            assert len((await session.prompt("go")).pending) == 2

        async def leave_out(run: Run, event: Event) -> None:
            if event.kind == "tool_execution_start":
                await trio.sleep(1)
                if how == "steer":
                    await run.steer("stop", interrupt=True)
                else:
                    assert run.cancel_call("b")
                    assert not run.cancel_call("b")

        agent = Agent(ScriptedModel(say("So.")), tools=[ask], input=at_once, store=store, max_parallel_tools=1)
        async with agent.session("s") as session:
            events = await seen(session.resume_run({"a": "this"}), leave_out)
    check_order(events)
    assert [e.call.id for e in events if isinstance(e, ToolUse)] == ["a", "b"]
    assert statuses(events) == {"a": "interrupted" if how == "steer" else "ok", "b": "interrupted"}
