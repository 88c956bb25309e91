"""What only shows when two things meet: deadlines of a run that is over, answers that come twice, logs made by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import assert_checkpoints

from trio_agent import (
    AbortRequested,
    Agent,
    AgentStart,
    Allow,
    ApprovalRequest,
    ApprovalResolved,
    ConfigError,
    Deny,
    Event,
    Fact,
    InputRequest,
    InputResolved,
    InvalidAnswer,
    Message,
    MessageEnd,
    SessionCorrupt,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    TurnStart,
    tool,
)
from trio_agent._core._state import state_of
from trio_agent._facts import Place, stamp
from trio_agent._written import read_fact, write_fact
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, say, stall

# ------------------------------------------------------------------------------- deadlines of a run that is over


@pytest.mark.parametrize("durable", [True, False])
async def test_a_session_goes_on_after_a_listener_that_hung_until_the_settle_deadline(
    durable: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async def hangs(event: Event) -> None:
        await trio.sleep_forever()

    agent = Agent(ScriptedModel(say("one"), say("two")), store=MemoryStore() if durable else None)
    with trio.fail_after(100):
        async with agent.session("talk") as session:
            session.subscribe(hangs, ["turn_end"], on_error="detach")
            with trio.move_on_after(3) as patience:
                await session.prompt("Hello.")
            assert patience.cancelled_caught
            assert trio.current_time() == 3 + 5  # everything was written, and then nobody waited any longer
            result = await session.prompt("Still there?")
    assert (result.stop_reason, result.text) == ("stop", "two")


async def test_the_end_of_an_earlier_run_does_not_lift_the_deadline_of_the_sessions_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def shielded(event: Event) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(20)

    async def hangs(event: Event) -> None:
        await trio.sleep_forever()

    agent = Agent(ScriptedModel(stall()))
    with trio.fail_after(1000):
        async with agent.session() as session:
            session.subscribe(shielded, ["agent_end"])
            session.subscribe(hangs, ["message_queued"])
            with trio.move_on_after(3):
                await session.prompt("Hello.")
            await session.steer("One more thing.")
    assert trio.current_time() == 3 + 20  # the first could not be stopped, the second could


# ------------------------------------------------------------------------------------------- what listeners are shown


async def test_what_waits_to_be_shown_is_not_hidden_with_the_ends_that_a_prompt_settles(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seen: list[Event] = []

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def listener(event: Event) -> None:
        seen.append(event)

    class SlowStore(MemoryStore):
        async def append(self, session: str, facts: Any, *, expected_head: int) -> int:
            await trio.sleep(1)
            return await super().append(session, facts, expected_head=expected_head)

    model = ScriptedModel(calls(call("pay", id="a")), say("Later, then."))
    agent = Agent(model, tools=[pay], approval=suspend, store=SlowStore())
    with trio.fail_after(100):
        async with agent.session() as session, trio.open_nursery() as nursery:
            session.subscribe(listener)
            await session.prompt("Pay.")
            seen.clear()
            nursery.start_soon(session.steer, "Wait.")
            await trio.sleep(0.5)  # it is being written
            await session.prompt("Leave it.")
    assert [event.kind for event in seen][:2] == ["message_queued", "agent_start"]


async def test_the_log_of_a_run_begins_behind_what_an_earlier_one_was_owed() -> None:
    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(calls(call("pay", id="a")), say("Later, then.")), tools=[pay], approval=suspend)
    with trio.fail_after(10):
        async with agent.session() as session:
            await session.prompt("Pay.")
            async with session.run("Leave it.") as run:
                await run.wait()
    assert [fact.kind for fact in run.log] == ["agent_start", "turn_start", "message_end", "turn_end", "agent_end"]


# ----------------------------------------------------------------------------------------------------- answers


async def test_a_question_that_is_another_in_the_next_life_can_be_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives: list[str] = []

    @tool(effect="pure")
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        lives.append(f"question {(len(lives) + 1) // 2}")
        return await ctx.ask(lives[-1]) + await ctx.ask("And then?")

    agent = Agent(ScriptedModel(calls(call("ask", id="a")), say("Done.")), tools=[ask], input=suspend)
    with trio.fail_after(100):
        async with agent.session() as session:
            result = await session.prompt("Ask me.")
            result = await session.resume({"a": "first"})
            assert [cast("InputRequest", request).question for request in result.pending] == ["question 1"]
            result = await session.resume({"a": "second"})
            assert [cast("InputRequest", request).question for request in result.pending] == ["And then?"]


async def test_a_permission_may_be_given_again_while_its_call_waits_for_something_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @tool(effect="pure", requires_approval=True)
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return await ctx.ask("How much?")

    model = ScriptedModel(calls(call("ask", id="a")), say("Done."))
    agent = Agent(model, tools=[ask], approval=suspend, input=suspend)
    with trio.fail_after(100):
        async with agent.session() as session:
            await session.prompt("Ask me.")
            await session.resume({"a": Allow()})
            result = await session.resume({"a": Allow()})
            assert [type(request) for request in result.pending] == [InputRequest]
            with pytest.raises(InvalidAnswer, match="expected a str"):
                await session.resume({"a": Deny("no")})
            assert (await session.resume({"a": "5"})).stop_reason == "stop"


# ---------------------------------------------------------------------------------------------------- verbs


async def test_every_verb_that_waits_is_a_checkpoint() -> None:
    with trio.fail_after(10):
        async with Agent(ScriptedModel(say("Hello."))).session() as session:
            verbs: list[Callable[[], Awaitable[None]]] = [
                lambda: session.steer("a"),
                lambda: session.follow_up("b"),
                lambda: session.configure(system="c"),
                lambda: session.rewind(0),
                session.wait_for_idle,
            ]
            for verb in verbs:
                with assert_checkpoints():
                    await verb()


async def test_a_class_is_no_model() -> None:
    with trio.fail_after(10):
        async with Agent(ScriptedModel(say("Hello."))).session() as session:
            with pytest.raises(ConfigError, match="model: expected a ModelProvider, got the class ScriptedModel"):
                await session.configure(model=cast("Any", ScriptedModel))


# ------------------------------------------------------------------------------------------ logs made by hand

OK = ToolResult.of("a", "not_run")
REQUEST = ApprovalRequest("a", 0, "work", "{}")


@pytest.mark.parametrize(
    "facts",
    [
        [ToolExecutionStart("a", -1, "work", "once", "k")],
        [ToolExecutionStart("b", 0, "work", "once", "k")],
        [ToolExecutionEnd(OK, -1)],
        [ToolExecutionEnd(OK, 1)],
        [ToolExecutionEnd(ToolResult.of("b", "not_run"), 0)],
        [ApprovalRequest("a", 7, "work", "{}")],
        [ApprovalRequest("a", -1, "work", "{}")],
        [ApprovalResolved("a", 0, "suspend")],
        [REQUEST, ApprovalResolved("a", -1, "allow")],
        [REQUEST, ApprovalResolved("b", 0, "allow")],
        [InputRequest("a", 3, 1, "How much?")],
        [InputResolved("a", 0, 1, "5")],
        [InputRequest("a", 0, 1, "How much?"), InputResolved("a", -1, 1, "5")],
    ],
)
def test_a_fact_about_a_call_that_is_not_there_makes_a_log_corrupt(facts: list[Fact]) -> None:
    answer = Message("assistant", (ToolCall("a", "work", "{}"),), "tool_use")
    log: list[Fact] = [AgentStart((Message("user", "Work."),)), TurnStart(1), MessageEnd(answer), *facts]
    for number, fact in enumerate(log, 1):
        stamp(fact, number, 0.0, Place("run", 1))
    with pytest.raises(SessionCorrupt, match=f"fact {len(log)} of session 'talk'"):
        state_of(log, "talk")


@pytest.mark.parametrize("grace", ["null", "[1]", "true", "{}", '"soon"'])
def test_what_is_no_number_is_refused_by_the_reader(grace: str) -> None:
    fact = AbortRequested(2.5)
    stamp(fact, 1, 0.0, Place("run", 1))
    text = write_fact(fact)
    assert read_fact(text) == fact
    with pytest.raises(SessionCorrupt):
        read_fact(text.replace("2.5", grace))
