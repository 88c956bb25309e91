"""Runs with a store: what is durable when, and what happens when it is not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, Watched, play, tale, tell
from trio_agent import (
    Agent,
    AgentEnd,
    AgentStart,
    Event,
    Message,
    RunResult,
    SessionConflict,
    SessionCorrupt,
    StoreFailed,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, check_order, say

LOOKS = pytest.mark.parametrize("looks", ["nobody", "a reader", "a listener"])


async def watch(agent: Agent, looks: str, body: Any = None) -> RunResult:
    """A run that nobody, a reader or a listener looks at."""
    with trio.fail_after(10_000):
        async with agent.run("go", session="s") as run:
            if looks == "a reader":
                run.events()
            elif looks == "a listener":
                run.subscribe(Recorder(0.1))
            if body is not None:
                await body(run)
            await run.wait()
    return run.result


def an_agent(store: FakeStore, gauge: Gauge | None = None, **options: Any) -> Agent:
    model = ScriptedModel(
        calls(call("work", id="a", seconds=1), call("work", id="b")), calls(call("work", id="c")), say("Done.")
    )
    return Agent(model, tools=[(gauge or Gauge()).tool()], store=store, **options)


# ------------------------------------------------------------------------------------ what waits for what


@LOOKS
async def test_a_call_that_runs_once_begins_when_its_start_is_durable(autojump_clock: MockClock, looks: str) -> None:
    store = FakeStore(delay=1)
    seen = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look into the log."""
        seen.append([f.call_id for f in store.facts if isinstance(f, ToolExecutionStart)])
        return "looked"

    model = ScriptedModel(calls(call(look, id="a"), call(look, id="b")), calls(call(look, id="c")), say("Done."))
    result = await watch(Agent(model, tools=[look], store=store), looks)
    assert result.stop_reason == "stop"
    assert {*seen[0], *seen[1]} == {"a", "b"}
    assert seen[2] == ["a", "b", "c"]


@LOOKS
@pytest.mark.parametrize("cut", ["abort", "leave"])
async def test_a_call_that_is_cut_before_its_start_is_durable_has_not_run(
    autojump_clock: MockClock, looks: str, cut: str
) -> None:
    gauge, store = Gauge(), FakeStore(delay=1)
    agent = an_agent(store, gauge)
    with trio.fail_after(100):
        async with agent.run("go", session="s") as run:
            if looks == "a reader":
                run.events()
            elif looks == "a listener":
                run.subscribe(Recorder())
            while not run.state.pending:
                await trio.sleep(0.1)
            await wait_all_tasks_blocked()
            if cut == "abort":
                run.abort(0)
                await run.wait()
    assert gauge.begun == []
    assert [fact.result.status for fact in store.facts if isinstance(fact, ToolExecutionEnd)] == ["not_run"] * 2
    assert [fact.call_id for fact in store.facts if isinstance(fact, ToolExecutionStart)] == ["a", "b"]
    check_order(store.facts, facts_only=True)
    assert run.result.stop_reason == ("aborted" if cut == "abort" else "cancelled")


@pytest.mark.parametrize(("effect", "waits"), [("once", True), ("idempotent", True), ("pure", False)])
async def test_only_calls_that_are_not_pure_wait(autojump_clock: MockClock, effect: Any, waits: bool) -> None:
    store, gauge = FakeStore(delay=5), Gauge()
    began = []

    @tool(effect=effect)
    async def look() -> str:
        """Look at the clock."""
        began.append(trio.current_time())
        return "looked"

    await watch(Agent(ScriptedModel(calls(call(look), call(look)), say("Done.")), tools=[look], store=store), "nobody")
    assert began == ([5, 5] if waits else [0, 0])
    assert gauge.begun == []


async def test_while_nobody_looks_there_is_one_commit_a_barrier(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=1)
    await watch(an_agent(store), "nobody")
    assert store.batches == [
        ["agent_start", "turn_start 1", "message_end tool_use ''", "start a", "start b"],
        ["end b ok", "end a ok", "turn_end 1 tool_use", "turn_start 2", "message_end tool_use ''", "start c"],
        [
            "end c ok",
            "turn_end 2 tool_use",
            "turn_start 3",
            "message_end stop 'Done.'",
            "turn_end 3 stop",
            "agent_end stop",
        ],
    ]


async def test_what_comes_while_a_commit_is_open_goes_into_the_next(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=100)
    model = ScriptedModel(calls(*[call("work", seconds=n) for n in range(20)]), say("Done.", delay=50))
    result = await watch(
        Agent(model, tools=[Gauge().tool(effect="pure")], store=store, max_parallel_tools=20), "a reader"
    )
    assert result.stop_reason == "stop"
    assert len(store.batches) <= 3


@LOOKS
async def test_the_end_is_durable_before_the_run_is_done(autojump_clock: MockClock, looks: str) -> None:
    store = FakeStore(delay=1)
    result = await watch(an_agent(store), looks)
    assert isinstance(store.facts[-1], AgentEnd)
    assert result.stop_reason == "stop"
    check_order(store.facts, facts_only=True)


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
@LOOKS
async def test_a_message_is_durable_when_its_verb_returns(autojump_clock: MockClock, looks: str, verb: str) -> None:
    store = FakeStore(delay=1)

    async def body(run: Any) -> None:
        await trio.sleep(0.5)
        await getattr(run, verb)("hear, hear")
        assert [line for line in tale(store.facts) if line.startswith("queued")] == [f"queued {verb} 'hear, hear'"]

    model = ScriptedModel(say("Hm.", delay=9), say("Ah."))
    await watch(Agent(model, store=store), looks, body)


async def test_a_slow_listener_does_not_delay_commits(autojump_clock: MockClock) -> None:
    alone, store = FakeStore(), FakeStore()
    await watch(an_agent(alone), "a reader")
    began = trio.current_time()
    with trio.fail_after(10_000):
        await an_agent(store, listeners=[Recorder(100)]).send("go", session="s")
    assert trio.current_time() - began > 1_000
    assert store.times[-1] - began == alone.times[-1] == 1
    assert tale(store.facts) == tale(alone.facts)


async def test_facts_are_shown_only_after_they_are_durable(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=1)
    early: list[str] = []

    async def listener(event: Event) -> None:
        if event.seq > len(store.facts):
            early.append(tell(event))

    with trio.fail_after(1000):
        async with Watched(an_agent(store)) as watched:
            watched.run.subscribe(listener)
            async for event in watched.run:
                await listener(event)
    assert early == []
    assert len(store.facts) == watched.events[-1].seq


# --------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
async def test_a_failing_commit_ends_the_run_and_the_log_can_be_gone_on_with(
    autojump_clock: MockClock, at: int, takes_effect: bool
) -> None:
    store, gauge, recorder = FakeStore(delay=0.5, fail_at=at, takes_effect=takes_effect), Gauge(), Recorder()
    with trio.fail_after(100):
        async with Watched(an_agent(store, gauge), session="s") as watched:
            watched.run.subscribe(recorder)
            await watched.run.wait()
    assert store.failed
    assert store.appends == at, "nothing more is logged"
    error = watched.result.error
    assert isinstance(error, StoreFailed)
    assert (watched.result.stop_reason, error.code) == ("error", "STORE_FAILED")
    assert "disk full" in error.message
    for events in (watched.events, recorder.events):
        check_order(events)
        assert tale(events).count("diagnostic STORE_FAILED") == 1
        assert tell(events[-1]) == "agent_end error"
    logged = [f.call_id for f in store.facts if isinstance(f, ToolExecutionStart)]
    assert set(gauge.begun) <= set(logged)

    store.failed, store.fail_at = False, 0
    again = await play(Agent(ScriptedModel(say("Going on.")), store=store), "and now?", session="s")
    assert again.result.text == "Going on."


@LOOKS
async def test_whoever_waits_for_a_commit_that_fails_is_told(autojump_clock: MockClock, looks: str) -> None:
    store = FakeStore(delay=1, fail_on="queued")
    raised = []

    async def body(run: Any) -> None:
        with pytest.raises(StoreFailed) as caught:
            await run.steer("lost")
        raised.append(caught.value)

    result = await watch(Agent(ScriptedModel(say("Hm.", delay=9)), store=store), looks, body)
    assert result.error is raised[0]


async def test_an_error_of_the_store_is_the_result_as_it_is(autojump_clock: MockClock) -> None:
    error = StoreFailed("read-only")
    result = await watch(an_agent(FakeStore(fail_at=1, error=lambda: error)), "nobody")
    assert result.error is error


@LOOKS
async def test_a_commit_that_hangs_is_left_at_the_settle_deadline(autojump_clock: MockClock, looks: str) -> None:
    gauge, recorder = Gauge(), Recorder()
    agent = an_agent(FakeStore(hang_at=1), gauge, settle_timeout=4)
    run = agent.run("go", session="s")
    with trio.fail_after(1000):
        with trio.move_on_after(10) as scope:
            async with run:
                readers = [run.events()] if looks == "a reader" else []
                if looks == "a listener":
                    run.subscribe(recorder)
                await run.wait()
        for reader in readers:
            recorder.events = [event async for event in reader]
    assert scope.cancelled_caught
    assert trio.current_time() == 14
    assert isinstance(run.result.error, StoreFailed)
    assert run.result.stop_reason == "error"
    assert gauge.begun == []
    if looks != "nobody":
        assert recorder.tale[-1] == "agent_end error"
        assert "diagnostic STORE_FAILED" in recorder.tale


@pytest.mark.parametrize("error", [OSError("no disk"), SessionCorrupt("record 3 cannot be read")])
async def test_a_log_that_cannot_be_read_is_an_error_of_whoever_enters(
    autojump_clock: MockClock, error: Exception
) -> None:
    class Unreadable(FakeStore):
        async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Any:
            raise error

    run = an_agent(Unreadable()).run("go", session="s")
    with pytest.raises(StoreFailed) as caught:
        async with run:
            raise AssertionError("the block must not be entered")
    assert caught.value is error or caught.value.__cause__ is error


@LOOKS
async def test_a_stale_writer_conflicts_before_any_effect(autojump_clock: MockClock, looks: str) -> None:
    store, gauge = FakeStore(), Gauge()

    async def body(run: Any) -> None:
        other = await an_agent(store).send("me first", session="s")
        assert other.stop_reason == "stop"

    result = await watch(
        Agent(ScriptedModel(calls(call("work"))), tools=[gauge.tool()], store=SlowToWrite(store)), looks, body
    )
    assert isinstance(result.error, SessionConflict)
    assert result.error.code == "SESSION_CONFLICT"
    assert gauge.begun == []
    check_order(store.facts, facts_only=True)


class SlowToWrite:
    """The same log, to which this writer gets a moment later."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.read, self.head, self.list = store.read, store.head, store.list
        self.delete, self.fork = store.delete, store.fork

    async def append(self, session: str, facts: Any, *, expected_head: int) -> int:
        await trio.sleep(5)
        return await self.store.append(session, facts, expected_head=expected_head)


# ---------------------------------------------------------------------------------------- one log, many runs


async def test_a_second_run_goes_on_with_the_history(autojump_clock: MockClock) -> None:
    store = FakeStore()
    await play(an_agent(store), session="s")
    model = ScriptedModel(calls(call("work", id="a")), say("Again."))
    second = await play(Agent(model, tools=[Gauge().tool()], store=store), "once more", session="s")
    roles = [message.role for message in model.requests[0].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    assert second.result.messages[0] == Message("user", "once more")
    assert [event.turn for event in second.events if event.kind == "turn_start"] == [4, 5]
    assert (
        second.the(AgentStart).seq
        == second.the(AgentEnd).seq - len([f for f in store.facts if f.run_id == second.the(AgentStart).run_id]) + 1
    )
    (new_id,) = second.statuses
    assert new_id not in "abc", "an id that the session has seen is not used again"


async def test_what_one_run_left_queued_comes_with_the_next(autojump_clock: MockClock) -> None:
    store = FakeStore()
    with trio.fail_after(100):
        async with Watched(Agent(ScriptedModel(say("Hm.", delay=5)), store=store), session="s") as watched:
            await watched.run.follow_up("later")
            await watched.run.steer("sooner")
            watched.run.abort()
            await watched.run.wait()
    assert watched.result.undelivered == (), "the session keeps them"
    model = ScriptedModel(say("All of it."))
    second = await play(Agent(model, store=store), "now", session="s")
    start = second.the(AgentStart)
    assert len(start.delivered) == 2
    assert [message.text for message in second.result.messages] == ["later", "sooner", "now", "All of it."]


async def test_a_log_that_stops_anywhere_is_settled_by_the_next_run(autojump_clock: MockClock) -> None:
    whole = FakeStore()
    await play(an_agent(whole), session="s")
    for length in range(1, len(whole.facts)):
        store = FakeStore(facts=whole.facts[:length])
        started = {f.call_id for f in store.facts if isinstance(f, ToolExecutionStart)}
        ended = {f.result.call_id for f in store.facts if isinstance(f, ToolExecutionEnd)}
        model = ScriptedModel(say("Where were we?"))
        again = await play(Agent(model, store=store), "hello?", session="s")
        assert again.result.text == "Where were we?"
        settled = store.facts[length:]
        assert tell(next(f for f in settled if isinstance(f, AgentEnd))) == "agent_end interrupted"
        recovered = [f for f in settled if isinstance(f, ToolExecutionEnd)]
        assert all(fact.recovered for fact in recovered)
        assert {(f.result.call_id, f.result.status) for f in recovered} >= {
            (call_id, "interrupted") for call_id in started - ended
        }
        assert {f.result.status for f in recovered if f.result.call_id not in started} <= {"not_run"}
        assert tell(again.events[0]) == "agent_start", "what was before is not shown as this run's"


@pytest.mark.parametrize("how", ["abort", "leave"])
async def test_what_a_tool_has_shielded_for_long_is_written_all_the_same(autojump_clock: MockClock, how: str) -> None:
    @tool
    async def shielded() -> str:
        """Take no notice."""
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
        return "done"

    agent = Agent(ScriptedModel(calls(call(shielded, id="a"))), tools=[shielded], store=FakeStore(), settle_timeout=5)
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await trio.sleep(1)
            if how == "abort":
                watched.run.abort(0)
                await watched.run.wait()
    assert watched.took == 10
    assert watched.statuses == {"a": "ok"}
    assert watched.log[-1].kind == "agent_end"


async def test_a_log_that_cannot_have_happened_is_corrupt(autojump_clock: MockClock) -> None:
    store = FakeStore()
    agent = Agent(ScriptedModel(calls(call("work")), say("Done.")), tools=[Gauge().tool()], store=store)
    await play(agent, session="s")
    store.facts = [fact for fact in store.facts if fact.kind != "message_end"]
    with trio.fail_after(100), pytest.raises(SessionCorrupt, match=r"fact 3 .* tool_execution_start"):
        await agent.send("go", session="s")
