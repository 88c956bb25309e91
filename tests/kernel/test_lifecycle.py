"""The lifecycle of a run, event for event."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, play, results, tale
from trio_agent import (
    Agent,
    AgentStart,
    Block,
    HookContext,
    Message,
    MessageEnd,
    MessageStart,
    Middleware,
    PreparedCall,
    ProviderError,
    Retry,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    Usage,
    tool,
)
from trio_agent.testing import STALL, ScriptedModel, call, calls, fail, say, think

OPENING = ["agent_start", "phase turn", "turn_start 1", "model_call_start 1"]
CLOSING = ["phase idle"]


async def test_one_prompt(autojump_clock: MockClock) -> None:
    live = []
    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Hello.", chunks=["Hel", "lo."], every=1)))) as watched:
            async for event in watched.run:
                live.append(event)
    assert tale(live) == [
        *OPENING,
        "message_start assistant",
        "text_delta 'Hel'",
        "text_delta 'lo.'",
        "message_end stop 'Hello.'",
        "turn_end 1 stop",
        *CLOSING,
        "agent_end stop",
    ]
    assert watched.reason == ("stop", "stop")
    result = watched.result
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert (result.text, result.stop_reason, result.error, result.turns) == ("Hello.", "stop", None, 1)
    assert result.undelivered == ()
    assert result.raise_for_error() is result


async def test_parallel_tools_then_an_answer(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(
            call("work", seconds=3, id="a"),
            call("work", seconds=1, id="b"),
            call("work", seconds=2, id="c"),
            text="Hm.",
        ),
        say("Done."),
    )
    watched = await play(Agent(model, tools=[gauge.tool()]))
    assert watched.tale == [
        *OPENING,
        "message_start assistant",
        "text_delta 'Hm.'",
        *["tool_call_delta"] * 3,
        "message_end tool_use 'Hm.'",
        "tool_use a",
        "tool_use b",
        "tool_use c",
        "start a",
        "start b",
        "start c",
        "end b ok",
        "end c ok",
        "end a ok",
        *["message_start a", "message_end a ok"],
        *["message_start b", "message_end b ok"],
        *["message_start c", "message_end c ok"],
        "turn_end 1 tool_use",
        "turn_start 2",
        "model_call_start 1",
        "message_start assistant",
        "text_delta 'Done.'",
        "message_end stop 'Done.'",
        "turn_end 2 stop",
        *CLOSING,
        "agent_end stop",
    ]
    assert [message.role for message in watched.result.messages] == ["user", "assistant", "tool", "assistant"]
    assert [(r.call_id, r.text) for r in results(watched)] == [
        ("a", "done in 3"),
        ("b", "done in 1"),
        ("c", "done in 2"),
    ]
    assert [(end.result.call_id, end.index, end.duration) for end in watched.all(ToolExecutionEnd)] == [
        ("b", 1, 1),
        ("c", 2, 2),
        ("a", 0, 3),
    ]
    starts = watched.all(ToolExecutionStart)
    run_id = watched.the(AgentStart).run_id
    assert [start.idempotency_key for start in starts] == [f"{run_id}.1.{index}" for index in range(3)]
    assert {start.effect for start in starts} == {"once"}
    assert watched.result.turns == 2
    assert watched.took == 3


async def test_calls_that_fail_have_their_place_in_the_order(autojump_clock: MockClock) -> None:
    gauge = Gauge()

    class Gate(Middleware):
        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
            return Block("not today") if call.call.id == "blocked" else None

    model = ScriptedModel(
        calls(
            call("work", id="fine", seconds=2),
            call("nope", id="unknown"),
            call("work", id="raising", seconds=1, boom="broken"),
            call("work", id="invalid", seconds="soon"),
            call("work", id="blocked"),
            call("work", id="array", raw="[1]"),
        ),
        say("I see."),
    )
    watched = await play(Agent(model, tools=[gauge.tool()], middleware=[Gate()]))
    ids = ["fine", "unknown", "raising", "invalid", "blocked", "array"]
    statuses = ["ok", "unknown_tool", "error", "invalid", "denied", "invalid"]
    told = watched.tale
    first, last = told.index("tool_use fine"), told.index("turn_end 1 tool_use")
    assert told[first:last] == [
        *[f"tool_use {call_id}" for call_id in ids],
        "end unknown unknown_tool",
        "end invalid invalid",
        "end blocked denied",
        "end array invalid",
        "start fine",
        "start raising",
        "end raising error",
        "end fine ok",
        *[
            line
            for call_id, status in zip(ids, statuses, strict=True)
            for line in (f"message_start {call_id}", f"message_end {call_id} {status}")
        ],
    ]
    texts = {result.call_id: result.text for result in results(watched)}
    assert "'nope'" in texts["unknown"]
    assert "ValueError: broken" in texts["raising"]
    assert "seconds" in texts["invalid"]
    assert "not today" in texts["blocked"]
    assert "array" in texts["array"]
    assert gauge.begun == ["fine", "raising"]
    assert watched.reason == ("stop", "stop")


async def test_progress_and_custom_events_stand_between_start_and_end(autojump_clock: MockClock) -> None:
    @tool
    async def dig(ctx: ToolContext) -> str:
        """Dig."""
        ctx.progress("half")
        ctx.emit("depth", {"metres": 3})
        await trio.sleep(1)
        ctx.progress({"done": True})
        return "dug"

    model = ScriptedModel(calls(call(dig, id="a"), call(dig, id="b")), say("Done."))
    told = (await play(Agent(model, tools=[dig]))).tale
    for call_id in "ab":
        mine = [
            line for line in told if line.split()[:2] in (["start", call_id], ["update", call_id], ["end", call_id])
        ]
        assert mine == [
            f"start {call_id}",
            f"update {call_id} 'half'",
            f"update {call_id} {{'done': True}}",
            f"end {call_id} ok",
        ]
    assert told.index("custom depth") > told.index("start a")


async def test_reasoning_is_told_and_kept(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(think("Hm.", "sealed") + say("Yes."))))
    assert "reasoning_delta 'Hm.'" in watched.tale
    answer = watched.result.messages[-1]
    assert (answer.reasoning, answer.text) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    ("grace", "extra", "end"),
    [
        (0, ["message_end interrupted 'Half '"], "turn_end 1 aborted"),
        (5, ["text_delta 'an answer.'", "message_end stop 'Half an answer.'"], "turn_end 1 stop"),
    ],
)
async def test_an_abort_while_the_model_streams(
    autojump_clock: MockClock, grace: float, extra: list[str], end: str
) -> None:
    model = ScriptedModel(say("Half an answer.", chunks=["Half ", "an answer."], every=2))
    with trio.fail_after(100):
        async with Watched(Agent(model)) as watched:
            await trio.sleep(1)
            watched.run.abort(grace)
            await watched.run.wait()
    assert watched.tale == [
        *OPENING,
        "message_start assistant",
        "text_delta 'Half '",
        f"abort {grace}",
        *extra,
        end,
        *CLOSING,
        "agent_end aborted",
    ]


async def test_an_abort_in_the_tool_phase(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(*[call("work", seconds=s, id=f"c{s}") for s in (1, 9)], call("work", id="late")))
    agent = Agent(model, tools=[Gauge().tool()], max_parallel_tools=2)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(0.5)
            watched.run.abort(0)
            await watched.run.wait()
    told = watched.tale
    assert told[told.index("start c1") :] == [
        "start c1",
        "start c9",
        "abort 0",
        "end c1 interrupted",
        "end c9 interrupted",
        "end late not_run",
        *["message_start c1", "message_end c1 interrupted"],
        *["message_start c9", "message_end c9 interrupted"],
        *["message_start late", "message_end late not_run"],
        "turn_end 1 aborted",
        *CLOSING,
        "agent_end aborted",
    ]


async def test_an_abort_in_a_backoff_goes_back_to_the_phase_turn_before_idle(autojump_clock: MockClock) -> None:
    model = ScriptedModel(fail(503, retry_after=10), say("Never."))
    with trio.fail_after(100):
        async with Watched(Agent(model)) as watched:
            await trio.sleep(1)
            watched.run.abort()
            await watched.run.wait()
    assert watched.tale == [
        *OPENING,
        "model_call_failed 1 OVERLOADED",
        "retry_scheduled 1",
        "phase retry",
        "abort inf",
        "phase turn",
        "turn_end 1 aborted",
        *CLOSING,
        "agent_end aborted",
    ]
    assert watched.took == 1


async def test_a_provider_that_fails_for_good(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(fail(401, "who are you?"))))
    assert watched.tale == [
        *OPENING,
        "message_start assistant",
        "message_end error ''",
        "turn_end 1 error",
        *CLOSING,
        "agent_end error",
    ]
    error = watched.result.error
    assert isinstance(error, ProviderError)
    assert (error.code, error.status) == ("AUTHENTICATION", 401)
    with pytest.raises(ProviderError) as caught:
        watched.result.raise_for_error()
    assert caught.value is error
    assert watched.events[-1].error.message == "who are you?"  # type: ignore[union-attr]  # AgentEnd, as told above


async def test_a_provider_that_fails_in_mid_stream_for_good_leaves_its_text(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(fail(400, after=say("Half an", usage=Usage(3, 2))))))
    assert watched.tale[4:] == [
        "message_start assistant",
        "text_delta 'Half an'",
        "message_end error 'Half an'",
        "turn_end 1 error",
        *CLOSING,
        "agent_end error",
    ]
    assert watched.result.usage == Usage(3, 2)
    assert watched.result.messages[-1].finish_reason == "error"
    history = list(watched.result.messages)
    again = await play(Agent(ScriptedModel(say("Now."))), [*history, Message("user", "again")])
    request = again.agent.model.requests[0]  # type: ignore[attr-defined]  # a ScriptedModel
    assert [message.role for message in request.messages] == ["user"], "an answer that failed is not sent"


async def test_a_provider_that_recovers_discards_its_draft(autojump_clock: MockClock) -> None:
    model = ScriptedModel(fail(500, after=say("Half an")), fail(429, retry_after=3), say("Whole."))
    watched = await play(Agent(model, retry=Retry(base=0)))
    assert watched.tale == [
        *OPENING,
        "message_start assistant",
        "text_delta 'Half an'",
        "model_call_failed 1 PROVIDER_ERROR",
        "message_discarded",
        *["retry_scheduled 1", "phase retry", "phase turn"],
        "model_call_start 2",
        "model_call_failed 2 RATE_LIMIT",
        *["retry_scheduled 2", "phase retry", "phase turn"],
        "model_call_start 3",
        "message_start assistant",
        "text_delta 'Whole.'",
        "message_end stop 'Whole.'",
        "turn_end 1 stop",
        *CLOSING,
        "agent_end stop",
    ]
    assert watched.took == 3
    ids = [event.message_id for event in watched.all(MessageStart)]
    assert len(set(ids)) == 2


async def test_a_listener_that_raises_ends_the_run_with_everything_in_its_place(autojump_clock: MockClock) -> None:
    async def listener(event: object) -> None:
        if isinstance(event, MessageEnd):
            raise RuntimeError("no")

    model = ScriptedModel(calls(call("work", seconds=5, id="a")), say("Never."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            watched.run.subscribe(listener)
            await watched.run.wait()
    told = watched.tale
    assert told[-8:] == [
        "end a interrupted",
        *["message_start a", "message_end a interrupted"],
        *["message_start assistant", "message_end error ''"],
        "turn_end 1 error",
        "phase idle",
        "agent_end error",
    ]
    assert watched.diagnostics() == ["LISTENER_FAILED"]
    assert watched.took == 0


async def test_every_event_tells_where_and_when(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=1)), say("Done.", delay=1))
    watched = await play(Agent(model, tools=[Gauge().tool()]))
    run_id = watched.events[0].run_id
    assert run_id
    assert {event.run_id for event in watched.events} == {run_id}
    assert {event.path for event in watched.events} == {()}
    assert [event.turn for event in watched.events] == sorted(event.turn for event in watched.events)
    assert watched.events[0].turn == 0
    assert watched.events[-1].turn == 2
    times = [event.time - watched.began for event in watched.events]
    assert times == sorted(times)
    assert times[-1] == 2
    assert [fact.seq for fact in watched.log] == list(range(1, len(watched.log) + 1))


async def test_no_observation_is_made_if_nobody_looks(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(calls(call("work")), say("Done.")), tools=[Gauge().tool()])
    with trio.fail_after(10):
        async with agent.run("go") as run:
            await run.wait()
            assert [event async for event in run.events()] == []
    assert run.result.text == "Done."
    assert [fact.kind for fact in run.log][-2:] == ["turn_end", "agent_end"]


async def test_a_stalled_model_can_only_be_cut(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(Agent(ScriptedModel(STALL))) as watched:
            await trio.sleep(50)
            watched.run.abort(0)
    assert watched.tale == [
        *OPENING,
        "abort 0",
        "model_call_failed 1 CANCELLED",
        "turn_end 1 cancelled",
        *CLOSING,
        "agent_end cancelled",
    ]
