"""What a session shows: a frozen state, and the events of its runs to whoever listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, tale
from tests.session.scenes import runs_of, said
from trio_agent import (
    Agent,
    AgentEnd,
    Event,
    FatalToolError,
    Message,
    MessageQueued,
    Session,
    SessionState,
    ToolExecutionStart,
    Usage,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, check_order, fail, say, stall

STORES = pytest.mark.parametrize(
    "store", [None, MemoryStore, lambda: FakeStore(delay=1)], ids=["none", "quick", "slow"]
)
MakeStore = Callable[[], MemoryStore] | None


def idle(state: SessionState) -> bool:
    """Nothing is under way."""
    live = (state.phase, state.is_streaming, state.streaming_message, state.pending_tool_calls)
    return live == ("idle", False, None, ()) and state.run_id is None


# --------------------------------------------------------------------------------------------- the state


async def test_a_new_session_is_idle_and_knows_its_agent(autojump_clock: MockClock) -> None:
    agent = Agent(
        ScriptedModel(say("Yes."), model="large-1"), tools=[Gauge().tool()], system="Be brief.", reasoning="high"
    )
    with trio.fail_after(10):
        async with agent.session() as session:
            state = session.state
    assert idle(state)
    assert (state.model, state.system, state.reasoning, state.tools) == ("large-1", "Be brief.", "high", ("work",))
    assert (state.messages, state.queued, state.requests, state.pending) == ([], (), (), ())
    assert (state.turn, state.stop_reason, state.error_message, state.abort) == (0, None, None, None)


async def test_a_snapshot_is_frozen_and_never_changes(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=5, id="a"), text="Wait."), say("Done."), say("More."))
    taken: list[tuple[SessionState, dict[str, Any]]] = []

    def take() -> None:
        state = session.state
        taken.append((state, {field.name: getattr(state, field.name) for field in attrs.fields(SessionState)}))
        taken[-1][1]["messages"] = list(state.messages)

    async def listener(event: object) -> None:
        take()

    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()], listeners=[listener]).session() as session:
            take()
            await session.prompt("first")
            take()
            await session.steer("a note")
            take()
            await session.prompt("second")
            await session.configure(system="Be brief.")
            await session.rewind(0)
    assert len(taken) > 20
    for state, then in taken:
        for name, value in then.items():
            assert getattr(state, name) == value
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            state.phase = "turn"  # type: ignore[misc]
        with pytest.raises(AttributeError):
            state.messages.append(Message("user", "no"))  # type: ignore[attr-defined]
        with pytest.raises(TypeError):
            state.messages[0] = Message("user", "no")  # type: ignore[index]


async def test_the_phases_are_idle_turn_retry_turn_idle(autojump_clock: MockClock) -> None:
    seen: list[tuple[float, str]] = []

    async def look(session: Session) -> None:
        while True:
            phase = session.state.phase
            if not seen or seen[-1][1] != phase:
                seen.append((trio.current_time(), phase))
            await trio.sleep(0.5)

    model = ScriptedModel(fail(429, retry_after=10), calls(call("work", seconds=5), delay=5), say("Done.", delay=5))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()]).session() as session, trio.open_nursery() as nursery:
            nursery.start_soon(look, session)
            await trio.sleep(0.7)
            await session.prompt("go")
            assert session.state.phase == "idle"
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
    assert [phase for _, phase in seen] == ["idle", "retry", "turn", "idle"]
    assert [at for at, _ in seen] == [0, 1, 11, 26]


async def test_what_is_being_written_is_in_the_state(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("One two three.", chunks=["One ", "two ", "three."], delay=2, every=2))
    seen = []
    with trio.fail_after(100):
        async with Agent(model).session() as session, session.run("go") as run:
            for _ in range(3):
                await trio.sleep(1.9)
                state = session.state
                assert state.phase == "turn"
                message = state.streaming_message
                assert state.is_streaming is (message is not None)
                seen.append(message and message.text)
                assert message is None or message.finish_reason == "interrupted"
                assert said(state.messages) == ["go"]
            await run.wait()
            assert idle(session.state)
    assert seen == [None, "One ", "One two "]


async def test_calls_that_run_are_in_the_state_until_they_end(autojump_clock: MockClock) -> None:
    model = ScriptedModel(
        calls(call("work", seconds=2, id="a"), call("work", seconds=4, id="b"), call("work", seconds=2, id="c")),
        say("Done.", delay=2),
    )
    seen = []
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()], max_parallel_tools=2).session() as session:
            async with session.run("go") as run:
                for _ in range(3):
                    await trio.sleep(1)
                    state = session.state
                    running, pending = state.pending_tool_calls, state.pending
                    seen.append(([c.id for c in running], [c.id for c in pending]))
                    await trio.sleep(1)
                await run.wait()
            assert idle(session.state)
    assert seen == [(["a", "b"], ["a", "b", "c"]), (["b", "c"], ["b", "c"]), ([], [])]


class Fatal(FatalToolError):
    """Ends its run."""


@tool
async def fatal() -> str:
    """End the run."""
    await trio.sleep(1)
    raise Fatal("no more")


ENDS: dict[str, tuple[list[Any], Callable[[Session], Awaitable[None]] | None]] = {
    "stop": ([say("Done.", delay=5)], None),
    "error": ([fail(401)], None),
    "fatal": ([calls(call("work", seconds=50), call(fatal))], None),
    "aborted while it streams": ([stall(say("Half"))], None),
    "aborted while tools run": ([calls(call("work", seconds=50))], None),
    "cancelled while it streams": ([stall(say("Half"))], None),
    "cancelled while tools run": ([calls(call("work", seconds=50))], None),
    "aborted while it waits to retry": ([fail(429, retry_after=50)], None),
    "aborted while a person is asked": ([calls(call("gated"))], None),
}


@STORES
@pytest.mark.parametrize("how", ENDS)
async def test_what_is_live_is_reset_at_the_end_of_a_run_whatever_happens(
    autojump_clock: MockClock, how: str, store: MakeStore
) -> None:
    async def never(request: Any) -> Any:
        await trio.sleep_forever()

    gauge = Gauge()
    agent = Agent(
        ScriptedModel(*ENDS[how][0], say("Again.")),
        tools=[gauge.tool(), fatal, gauge.tool("gated", requires_approval=True)],
        approval=never,
        store=store and store(),
    )
    live = []
    with trio.fail_after(1000):
        async with agent.session("s") as session:

            async def disturb() -> None:
                await trio.sleep(20)
                live.append(not idle(session.state))
                if how.startswith("aborted"):
                    session.abort(0)
                else:
                    scope.cancel()

            async with trio.open_nursery() as nursery:
                if how.startswith(("aborted", "cancelled")):
                    nursery.start_soon(disturb)
                with trio.CancelScope() as scope:
                    await session.prompt("go")
                    assert idle(session.state)
            assert idle(session.state)
            assert session.state.stop_reason == ("error" if how == "fatal" else how.split()[0])
            assert live in ([], [True])
            assert (session.state.error_message is not None) is (how in ("error", "fatal"))
            assert (await session.prompt("again")).text == "Again."
            assert session.state.error_message is None
            assert idle(session.state)


async def test_queued_messages_usage_and_the_abort_are_in_the_state(autojump_clock: MockClock) -> None:
    used = Usage(input=10, output=5)
    model = ScriptedModel(say("Hm.", delay=5, usage=used), say("Ah.", usage=used))
    with trio.fail_after(100):
        async with Agent(model).session() as session:
            async with session.run("go") as run:
                await trio.sleep(1)
                await session.follow_up("later")
                await session.steer("now")
                assert [message.text for message in session.state.queued] == ["now", "later"]
                assert session.state.abort is None
                session.abort(reason="enough")
                abort = session.state.abort
                assert abort is not None
                assert abort.reason == "enough"
                await run.wait()
            assert [message.text for message in session.state.queued] == ["now", "later"]
            assert session.state.usage == used
            result = await session.prompt("again", max_turns=1)
            assert said(result.messages) == ["later", "now", "again", "assistant"]  # in order of arrival
            assert (session.state.queued, session.state.usage) == ((), used)


async def test_what_a_person_was_asked_is_in_the_state_also_between_runs(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    agent = Agent(
        ScriptedModel(calls(call("work", id="a", seconds=1), call("gated", id="b")), say("Fine.")),
        tools=[gauge.tool(), gauge.tool("gated", requires_approval=True)],
        approval=suspend,
    )
    with trio.fail_after(100):
        async with agent.session() as session:
            result = await session.prompt("go")
            assert result.stop_reason == "suspended"
            state = session.state
            assert state.requests == result.pending
            assert [request.call_id for request in state.requests] == ["b"]
            assert [call.id for call in state.pending] == ["b"]
            assert idle(state)
            await session.prompt("never mind")
            assert session.state.requests == ()
            assert session.state.pending == ()


async def test_the_state_can_be_read_in_every_event(autojump_clock: MockClock) -> None:
    phases = []

    async def listener(event: Event) -> None:
        phases.append((event.kind, session.state.phase))

    model = ScriptedModel(calls(call("work", seconds=1)), say("Done."))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()]).session() as session:
            session.subscribe(listener)
            await session.prompt("go")
            await session.steer("more")
            await session.wait_for_idle()
    assert phases[-1] == ("message_queued", "idle")
    assert ("agent_end", "idle") in phases


# ----------------------------------------------------------------------------------------- who hears what


@STORES
async def test_listeners_of_the_session_hear_all_runs_and_what_is_between_them_in_order(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    model = ScriptedModel(
        calls(call("work", seconds=2, id="a"), call("work", seconds=1, id="b")),
        fail(429),
        say("One.", chunks=3),
        say("Two."),
        say("Three."),
    )
    heard = Recorder()
    agents_own = Recorder(delay=0.1)
    agent = Agent(model, tools=[Gauge().tool()], store=store and store(), listeners=[agents_own])
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            session.subscribe(heard)
            await session.prompt("first")
            await session.steer("between")
            await session.follow_up("between, too")
            await session.configure(system="Be brief.")
            await session.prompt("second")
            await session.steer("at the end")
            await session.wait_for_idle()
    check_order(heard.events, session=True)
    assert heard.tale == agents_own.tale
    told = heard.tale
    first_end = told.index("agent_end stop")
    assert told[first_end + 1 : first_end + 5] == [
        "queued steer 'between'",
        "queued follow_up 'between, too'",
        "config_change",
        "agent_start",
    ]
    assert told[-1] == "queued steer 'at the end'"
    between = [event.run_id for event in heard.events[first_end + 1 : first_end + 4]]
    assert between == [""] * 3
    assert len([run for run in runs_of(heard.events) if run]) == 2
    seqs = [event.seq for event in heard.events]
    assert seqs == sorted(seqs)


@STORES
async def test_listeners_and_readers_of_a_run_hear_only_their_run(autojump_clock: MockClock, store: MakeStore) -> None:
    model = ScriptedModel(say("One."), say("Two."), say("Three."))
    agent = Agent(model, store=store and store())
    heard: list[Recorder] = []
    read: list[list[Event]] = []
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            await session.steer("before all")
            for text in ("first", "second", "third"):
                async with session.run(text) as run:
                    reader = run.events()
                    heard.append(Recorder())
                    run.subscribe(heard[-1])
                    await run.wait()
                await session.steer(f"behind {text}")
                read.append([event async for event in reader])
            await session.wait_for_idle()
    for recorder, events in zip(heard, read, strict=True):
        assert recorder.tale == tale(events)
        check_order(events)
        assert len(runs_of(events)) == 1
        assert (events[0].kind, events[-1].kind) == ("agent_start", "agent_end")


@STORES
async def test_what_is_said_while_a_run_begins_is_not_shown_as_part_of_it(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    agent = Agent(ScriptedModel(say("One."), say("Two.")), store=store and store())
    with trio.fail_after(1000):
        async with agent.session("s") as session, trio.open_nursery() as nursery:
            nursery.start_soon(session.steer, "just before")
            await wait_all_tasks_blocked()
            async with session.run("go") as run:
                heard = Recorder()
                run.subscribe(heard)
                reader = run.events()
                await run.wait()
                read = [event async for event in reader]
    assert heard.tale == tale(read)
    check_order(read)
    assert said(run.result.messages)[:2] == ["just before", "go"]


@STORES
@pytest.mark.parametrize("whose", ["the session's", "the run's"])
async def test_a_steer_while_the_end_is_shown_is_not_part_of_the_run(
    autojump_clock: MockClock, store: MakeStore, whose: str
) -> None:
    steered = []

    async def slow(event: Event) -> None:
        if isinstance(event, AgentEnd) and not steered:
            steered.append(event)
            await session.steer("late, and kept")
            await trio.sleep(1)

    agent = Agent(ScriptedModel(say("One."), say("Two.")), store=store and store())
    all_heard, heard = Recorder(), Recorder()
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            session.subscribe(all_heard)
            if whose == "the session's":
                session.subscribe(slow)
            async with session.run("first") as run:
                if whose == "the run's":
                    run.subscribe(slow)
                run.subscribe(heard)
                reader = run.events()
                await run.wait()
            assert [message.text for message in session.state.queued] == ["late, and kept"]
            assert said(run.result.messages) == ["first", "assistant"]
            assert run.result.undelivered == ()
            second = await session.prompt("second")
            read = [event async for event in reader]
    assert said(second.messages) == ["late, and kept", "second", "assistant"]
    for events in (read, heard.events):
        check_order(events)
        assert not [event for event in events if isinstance(event, MessageQueued)]
    check_order(all_heard.events, session=True)
    assert all_heard.tale.count("queued steer 'late, and kept'") == 1


@STORES
async def test_a_listener_that_raises_ends_only_the_run_that_it_raised_in(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    heard = Recorder()

    async def fragile(event: Event) -> None:
        if isinstance(event, ToolExecutionStart | MessageQueued):
            raise ValueError("too much")

    model = ScriptedModel(calls(call("work", seconds=5)), say("Fine."))
    agent = Agent(model, tools=[Gauge().tool()], store=store and store())
    with trio.fail_after(100):
        async with agent.session("s") as session:
            session.subscribe(heard)
            session.subscribe(fragile)
            failed = await session.prompt("first")
            assert (failed.stop_reason, failed.error.code) == ("error", "LISTENER_FAILED")  # type: ignore[union-attr]
            assert (await session.prompt("second")).stop_reason == "stop"
            session.subscribe(fragile)
            await session.steer("between runs it only loses its place")
            await session.wait_for_idle()
            assert idle(session.state)
    check_order(heard.events, session=True)


async def test_a_listener_may_be_let_go_and_may_come_late(autojump_clock: MockClock) -> None:
    early, late = Recorder(), Recorder()
    agent = Agent(ScriptedModel(say("One."), say("Two."), say("Three.")))
    with trio.fail_after(100):
        async with agent.session() as session:
            unsubscribe = session.subscribe(early)
            await session.prompt("first")
            session.subscribe(late, kinds=["agent_end", "message_queued"])
            unsubscribe()
            unsubscribe()
            await session.prompt("second")
            await session.steer("a note")
            await session.wait_for_idle()
    assert early.tale.count("agent_end stop") == 1
    assert early.tale[-1] == "agent_end stop"
    assert late.tale == ["agent_end stop", "queued steer 'a note'"]


async def test_a_listener_that_comes_while_a_run_is_under_way_hears_from_then_on(autojump_clock: MockClock) -> None:
    heard = Recorder()
    agent = Agent(ScriptedModel(say("One.", delay=5), say("Two.")))
    with trio.fail_after(100):
        async with agent.session() as session:
            async with session.run("go") as run:
                await trio.sleep(1)
                session.subscribe(heard)
                await run.wait()
            await session.prompt("again")
    assert heard.tale[0] == "message_start assistant"
    assert heard.tale.count("agent_start") == 1
    assert heard.tale[-1] == "agent_end stop"


@STORES
async def test_what_settles_an_earlier_run_is_shown_to_nobody(autojump_clock: MockClock, store: MakeStore) -> None:
    gauge = Gauge()
    agent = Agent(
        ScriptedModel(calls(call("gated", id="a")), say("Fine.")),
        tools=[gauge.tool("gated", requires_approval=True)],
        approval=suspend,
        store=store and store(),
    )
    heard = Recorder()
    with trio.fail_after(100):
        async with agent.session("s") as session:
            session.subscribe(heard)
            await session.prompt("go")
            async with session.run("never mind") as run:
                reader = run.events()
                await run.wait()
                read = [event async for event in reader]
    assert "end a not_run" not in tale(read)
    assert "end a not_run" not in heard.tale
    check_order(read)
