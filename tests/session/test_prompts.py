"""A session's verbs: prompts one after the other on one log, and what ends them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, hooked
from tests.session.scenes import checked_log, said, statuses
from trio_agent import (
    Agent,
    AgentEnd,
    ConfigError,
    Event,
    ModelRequest,
    ProviderError,
    RequestError,
    RunCancelled,
    Session,
    SessionBusy,
    SessionClosed,
    ToolExecutionStart,
    tool,
)
from trio_agent._kernel._journal import Journal
from trio_agent.sessions import MemoryStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, fail, say

STORES = pytest.mark.parametrize(
    "store", [None, MemoryStore, lambda: FakeStore(delay=1)], ids=["none", "quick", "slow"]
)
MakeStore = Callable[[], MemoryStore] | None


def slow_agent(**options: Any) -> Agent:
    """Each of its answers takes ten seconds."""
    return Agent(ScriptedModel(say("Yes.", delay=10), repeat_last=True), **options)


# ------------------------------------------------------------------------------------------- prompting


@STORES
async def test_prompts_go_on_with_one_history(autojump_clock: MockClock, store: MakeStore) -> None:
    model = ScriptedModel(say("One."), calls(call("work", seconds=2, id="a")), say("Two."))
    agent = Agent(model, tools=[Gauge().tool()], store=store and store())
    with trio.fail_after(100):
        async with agent.session("s") as session:
            first = await session.prompt("first")
            second = await session.prompt("second")
            assert (session.id, first.text, second.text) == ("s", "One.", "Two.")
            assert (first.stop_reason, first.turns, first.error) == ("stop", 1, None)
            assert said(first.messages) == ["first", "assistant"]
            assert said(second.messages) == ["second", "assistant", "tool", "assistant"]
            assert session.history() == [*first.messages, *second.messages]
            assert session.state.messages == session.history()
    assert said(model.requests[1].messages) == ["first", "assistant", "second"]
    if agent.store is not None:
        assert list((await checked_log(agent.store)).transcript) == [*first.messages, *second.messages]


async def test_a_run_of_a_session_can_be_read_while_it_goes(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(say("Hello.", chunks=3), say("Again.")))
    kinds = []
    with trio.fail_after(10):
        async with agent.session() as session:
            async with session.run("hi") as run:
                async for event in run:
                    kinds.append(event.kind)
            assert run.result.text == "Hello."
            assert run.session_id == session.id
            async with session.run("and?") as again:
                await again.wait()
    assert kinds[0] == "agent_start"
    assert kinds[-1] == "agent_end"
    assert run.log[0].run_id != again.log[0].run_id
    assert said(again.result.messages) == ["and?", "assistant"]


async def test_a_run_keeps_its_result_log_and_state_when_others_have_followed(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(say("One."), say("Two.")))
    with trio.fail_after(10):
        async with agent.session() as session:
            async with session.run("first") as run:
                await run.wait()
            then = (run.result, run.log, run.state.messages)
            await session.prompt("second")
            assert (run.result, run.log, run.state.messages) == then
            assert said(run.state.messages) == ["first", "assistant"]


async def test_what_fails_inside_is_in_the_result_and_the_session_goes_on(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(fail(401), say("Now it works.")))
    with trio.fail_after(10):
        async with agent.session() as session:
            failed = await session.prompt("first")
            assert (failed.stop_reason, type(failed.error)) == ("error", ProviderError)
            result = await session.prompt("second")
    assert (result.stop_reason, result.text) == ("stop", "Now it works.")


async def test_options_of_one_prompt_hold_for_its_run_only(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work")), calls(call("work")), say("Done."))
    with trio.fail_after(10):
        async with Agent(model, tools=[Gauge().tool()]).session() as session:
            first = await session.prompt("first", max_turns=1, tool_choice="work")
            second = await session.prompt("second")
    assert (first.stop_reason, second.stop_reason) == ("max_turns", "stop")
    assert [request.tool_choice for request in model.requests] == ["work", "auto", "auto"]


async def test_what_ended_one_run_does_not_end_the_next(autojump_clock: MockClock) -> None:
    """A terminal call, a limit that was reached, an abort, an error: each is the end of its own run only."""
    gauge = Gauge()
    model = ScriptedModel(
        calls(call("last")),
        *[calls(call("work")), say("Two.")],
        calls(call("work")),
        *[calls(call("work")), say("Four.")],
        fail(401),
        *[calls(call("work")), say("Six.")],
    )
    tools = [gauge.tool(), gauge.tool("last", terminal=True)]
    with trio.fail_after(100):
        async with Agent(model, tools=tools).session() as session:
            ended = [(await session.prompt("1")).stop_reason, (await session.prompt("2")).text]
            ended += [(await session.prompt("3", max_turns=1)).stop_reason, (await session.prompt("4")).text]
            ended += [(await session.prompt("5")).stop_reason, (await session.prompt("6")).text]
    assert ended == ["stop", "Two.", "max_turns", "Four.", "error", "Six."]
    model.assert_exhausted()


async def test_a_bad_input_claims_nothing(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        async with Agent(ScriptedModel(say("Yes."))).session() as session:
            with pytest.raises(RequestError):
                await session.prompt("")
            with pytest.raises(ConfigError, match="max_turns"):
                await session.prompt("go", max_turns=0)
            session.run("made, and never entered")
            await session.wait_for_idle()
            assert (await session.prompt("go")).text == "Yes."


async def test_a_run_that_cannot_begin_lets_the_next_one_in(autojump_clock: MockClock) -> None:
    class Unwilling(ScriptedModel):
        willing = True

        @property
        def context_window(self) -> int | None:
            if not self.willing:
                raise ValueError("no window today")
            return None

    model = Unwilling(say("Yes."))
    with trio.fail_after(10):
        async with Agent(model).session() as session:
            model.willing = False
            with pytest.raises(ValueError, match="no window today"):
                await session.prompt("go")
            assert session.history() == []
            model.willing = True
            assert (await session.prompt("go")).text == "Yes."


# ----------------------------------------------------------------------------------------- abort and cuts


async def test_abort_ends_the_run_and_between_runs_it_does_nothing(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", seconds=5, id="a"), call("work", seconds=50, id="b")), say("Fine."))
    with trio.fail_after(100):
        async with Agent(model, tools=[gauge.tool()]).session() as session:
            session.abort(0, "nothing to abort")
            async with trio.open_nursery() as nursery:

                async def stop() -> None:
                    await trio.sleep(10)
                    session.abort(0, "enough")

                nursery.start_soon(stop)
                result = await session.prompt("go")
            assert (result.stop_reason, type(result.error)) == ("aborted", RunCancelled)
            assert "enough" in str(result.error)
            assert statuses(result.messages) == {"a": "ok", "b": "interrupted"}
            session.abort()
            assert (await session.prompt("and now?")).text == "Fine."


async def test_one_call_can_be_cancelled(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=5, id="a"), call("work", seconds=50, id="b")), say("Fine."))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()]).session() as session, trio.open_nursery() as nursery:
            assert not session.cancel_call("b")

            async def cut() -> None:
                await trio.sleep(1)
                assert session.cancel_call("b")
                assert not session.cancel_call("nobody")

            nursery.start_soon(cut)
            result = await session.prompt("go")
            assert not session.cancel_call("b")
    assert statuses(result.messages) == {"a": "ok", "b": "interrupted"}
    assert result.stop_reason == "stop"


@STORES
async def test_cancelling_the_caller_cancels_the_run_only(autojump_clock: MockClock, store: MakeStore) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", seconds=50, id="a")), say("I see."))
    agent = Agent(model, tools=[gauge.tool()], store=store and store())
    with trio.fail_after(100):
        async with agent.session("s") as session:
            with trio.move_on_after(10) as scope:
                await session.prompt("go")
            assert scope.cancelled_caught
            assert session.state.stop_reason == "cancelled"
            assert statuses(session.history()) == {"a": "interrupted"}
            assert session.state.run_id is None
            assert (await session.prompt("and?")).text == "I see."
    assert gauge.cut == ["a"]
    if agent.store is not None:
        await checked_log(agent.store)


# ------------------------------------------------------------------------------------------ one at a time


async def test_a_second_run_is_refused_and_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with slow_agent(store=store).session("s") as session:
            async with session.run("first") as run:
                refused: list[Callable[[], Awaitable[Any]]] = [
                    lambda: session.prompt("second"),
                    lambda: session.run("second").__aenter__(),
                    session.resume,
                    lambda: session.resume_run().__aenter__(),
                    lambda: session.rewind(0),
                ]
                for verb in refused:
                    with pytest.raises(SessionBusy) as caught:
                        await verb()
                    assert caught.value.code == "SESSION_BUSY"
                    assert "'s'" in caught.value.message
                await run.wait()
            assert said(session.history()) == ["first", "assistant"]
            await session.prompt("third")
    assert said((await checked_log(store)).transcript) == ["first", "assistant", "third", "assistant"]


@STORES
async def test_queued_prompts_run_first_come_first_served(autojump_clock: MockClock, store: MakeStore) -> None:
    agent = slow_agent(store=store and store())
    order = []
    with trio.fail_after(1000):
        async with agent.session("s", on_busy="queue") as session:

            async def ask(name: str) -> None:
                result = await session.prompt(name)
                assert said(result.messages) == [name, "assistant"]
                order.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abcd":
                    nursery.start_soon(ask, name)
                    await wait_all_tasks_blocked()
            assert order == ["a", "b", "c", "d"]
            assert said(session.history())[::2] == order
            await session.wait_for_idle()
    if agent.store is not None:
        await checked_log(agent.store)


async def test_one_that_waits_may_give_up_its_place(autojump_clock: MockClock) -> None:
    scopes = {name: trio.CancelScope() for name in "abc"}
    done = []
    with trio.fail_after(1000):
        async with slow_agent().session(on_busy="queue") as session:

            async def ask(name: str) -> None:
                with scopes[name]:
                    await session.prompt(name)
                    done.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(ask, name)
                    await wait_all_tasks_blocked()
                scopes["b"].cancel()
            assert done == ["a", "c"]
            assert trio.current_time() == 20
            assert said(session.history())[::2] == ["a", "c"]
            await session.wait_for_idle()


async def test_queued_runs_see_what_was_configured_while_they_waited(autojump_clock: MockClock) -> None:
    first, second = ScriptedModel(say("Yes.", delay=10)), ScriptedModel(calls(call("work")), say("No."))
    gauge = Gauge()
    with trio.fail_after(1000):
        async with Agent(first).session(on_busy="queue") as session, trio.open_nursery() as nursery:
            nursery.start_soon(session.prompt, "a")
            await wait_all_tasks_blocked()
            nursery.start_soon(session.prompt, "b")
            await wait_all_tasks_blocked()
            await session.configure(model=second, tools=[gauge.tool()], system="Be brief.")
    assert [request.system for request in first.requests] == [None]
    assert [request.system for request in second.requests] == ["Be brief."] * 2
    assert len(gauge.returned) == 1


@STORES
async def test_leaving_the_block_sends_away_all_who_wait(autojump_clock: MockClock, store: MakeStore) -> None:
    agent = slow_agent(store=store and store())
    told = []

    async def ask(session: Session, name: str) -> None:
        try:
            told.append((name, (await session.prompt(name)).stop_reason))
        except SessionClosed as error:
            told.append((name, error.code))

    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            async with agent.session("s", on_busy="queue") as session:
                for name in "abc":
                    nursery.start_soon(ask, session, name)
                    await wait_all_tasks_blocked()
                await trio.sleep(3)
    assert sorted(told) == [("a", "cancelled"), ("b", "SESSION_CLOSED"), ("c", "SESSION_CLOSED")]
    assert said(session.history()) == ["a"]
    if agent.store is not None:
        await checked_log(agent.store)


async def test_who_waits_is_sent_away_at_once_while_the_run_is_still_settled(autojump_clock: MockClock) -> None:
    async def slow(event: Event) -> None:
        if isinstance(event, AgentEnd):
            await trio.sleep(4)

    told = []

    async def wait(session: Session) -> None:
        with pytest.raises(SessionClosed):
            await session.prompt("never")
        told.append(trio.current_time())

    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            async with slow_agent(listeners=[slow]).session(on_busy="queue") as session:
                nursery.start_soon(session.prompt, "go")
                await wait_all_tasks_blocked()
                nursery.start_soon(wait, session)
                await trio.sleep(3)
            assert trio.current_time() == 7
    assert told == [3]


async def test_when_the_store_fails_all_who_wait_are_sent_away(autojump_clock: MockClock) -> None:
    agent = slow_agent(store=FakeStore(fail_on="message_end"))
    told = []
    with trio.fail_after(1000):
        async with agent.session("s", on_busy="queue") as session:

            async def ask(name: str) -> None:
                try:
                    result = await session.prompt(name)
                    told.append((name, getattr(result.error, "code", "")))
                except SessionClosed as error:
                    told.append((name, error.code))

            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(ask, name)
                    await wait_all_tasks_blocked()
    assert sorted(told) == [("a", "STORE_FAILED"), ("b", "SESSION_CLOSED"), ("c", "SESSION_CLOSED")]


@STORES
async def test_a_run_in_one_task_is_cut_when_another_leaves_the_session(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", seconds=50, id="a"), call("work", seconds=1, id="b")))
    agent = Agent(model, tools=[gauge.tool()], store=store and store())
    events = []

    async def read(session: Session) -> None:
        async with session.run("go") as run:
            async for event in run:
                events.append(event)
            await trio.sleep(1000)  # the session does not wait for this body
        assert run.result.stop_reason == "cancelled"
        assert statuses(run.result.messages) == {"a": "interrupted", "b": "ok"}

    with trio.fail_after(10_000):
        async with trio.open_nursery() as nursery:
            async with agent.session("s") as session:
                nursery.start_soon(read, session)
                await trio.sleep(10)
                left = trio.current_time()
            assert trio.current_time() - left <= 3
            assert (gauge.running, gauge.cut) == (0, ["a"])
            assert session.state.phase == "idle"
            assert session.state.stop_reason == "cancelled"
    assert events[-1].kind == "agent_end"
    if agent.store is not None:
        await checked_log(agent.store)


# ------------------------------------------------------------------------------------------ from inside


async def _refused(session: Session, refused: list[str]) -> None:
    verbs: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("prompt", lambda: session.prompt("within")),
        ("run", lambda: session.run("within").__aenter__()),
        ("resume", session.resume),
        ("wait_for_idle", session.wait_for_idle),
    ]
    for name, verb in verbs:
        with pytest.raises(RuntimeError, match="would wait for itself"):
            await verb()
        refused.append(name)


@pytest.mark.parametrize("on_busy", ["refuse", "queue"])
@pytest.mark.parametrize("nested", [False, True], ids=["itself", "a nursery of its own"])
@pytest.mark.parametrize(
    "place", ["a tool", "a hook", "a session's listener", "a run's listener", "the agent's listener"]
)
async def test_inside_nothing_waits_for_the_session_itself(
    autojump_clock: MockClock, place: str, nested: bool, on_busy: Any
) -> None:
    refused: list[str] = []

    async def inside(*args: Any) -> Any:
        if nested:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_refused, session, refused)
        else:
            await _refused(session, refused)
        await session.steer("a steer")
        await session.follow_up("a follow-up")

    async def listener(event: object) -> None:
        if isinstance(event, ToolExecutionStart):
            await inside()

    @tool
    async def probe() -> str:
        """Try it."""
        await trio.sleep(1)
        if place == "a tool":
            await inside()
        return "tried"

    agent = Agent(
        ScriptedModel(calls(call(probe)), say("Ah."), say("Done.")),
        tools=[probe],
        middleware=[hooked(before_tool_call=inside)] if place == "a hook" else [],
        listeners=[listener] if place == "the agent's listener" else [],
    )
    with trio.fail_after(100):
        async with agent.session(on_busy=on_busy) as session:
            if place == "a session's listener":
                session.subscribe(listener)
            async with session.run("go") as run:
                if place == "a run's listener":
                    run.subscribe(listener)
                await run.wait()
    assert run.result.raise_for_error().stop_reason == "stop"
    assert refused == ["prompt", "run", "resume", "wait_for_idle"]
    assert said(run.result.messages) == ["go", "assistant", "tool", "a steer", "assistant", "a follow-up", "assistant"]


async def test_a_tool_may_prompt_another_session_of_its_agent(autojump_clock: MockClock) -> None:
    @tool
    async def delegate() -> str:
        """Ask another."""
        return (await other.prompt("yours")).text

    agent = Agent(ScriptedModel(calls(call(delegate)), say("Mine."), say("Done.")), tools=[delegate])
    with trio.fail_after(100):
        async with agent.session() as session, agent.session() as other:
            result = await session.prompt("go")
    assert result.text == "Done."
    assert said(other.history()) == ["yours", "assistant"]


# ----------------------------------------------------------------------------------------- waiting for idle


async def test_wait_for_idle_waits_for_runs_those_that_wait_and_listeners(autojump_clock: MockClock) -> None:
    heard = Recorder(delay=1)
    with trio.fail_after(1000):
        async with slow_agent().session(on_busy="queue") as session:
            await session.wait_for_idle()
            assert trio.current_time() == 0
            session.subscribe(heard)
            async with trio.open_nursery() as nursery:
                for name in "ab":
                    nursery.start_soon(session.prompt, name)
                    await wait_all_tasks_blocked()
                await session.wait_for_idle()
                assert heard.tale[-1] == "agent_end stop"
                assert heard.tale.count("agent_end stop") == 2
                assert (session.state.phase, session.state.run_id) == ("idle", None)
            for number in range(3):  # between runs, too, a listener's time counts
                await session.steer(f"note {number}")
            await session.wait_for_idle()
            assert len(heard.events) == len(heard.times)
            assert heard.tale[-3:] == [f"queued steer 'note {number}'" for number in range(3)]


async def test_leaving_the_block_lets_those_go_who_wait_for_idle(autojump_clock: MockClock) -> None:
    ended = []

    async def wait(session: Session) -> None:
        await session.wait_for_idle()
        ended.append(trio.current_time())

    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            async with slow_agent().session() as session, session.run("go"):
                nursery.start_soon(wait, session)
                await trio.sleep(1)
    assert ended == [1]


# --------------------------------------------------------------------------------------- what leaves


@STORES
@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt(), ExceptionGroup("mine", [OSError()])])
async def test_an_exception_of_either_body_leaves_as_that_very_object(
    autojump_clock: MockClock, store: MakeStore, raised: BaseException
) -> None:
    with trio.fail_after(1000):
        agent = slow_agent(store=store and store())
        for where in ("run", "session"):
            with pytest.raises(type(raised)) as caught:  # noqa: PT012  # what is raised inside leaves two blocks
                async with agent.session("s") as session:
                    async with session.run("go") as run:
                        await trio.sleep(5)
                        if where == "run":
                            raise raised
                        session.abort(0)
                        await run.wait()
                    await session.steer("kept")
                    raise raised
            assert caught.value is raised
            assert run.result.stop_reason == ("cancelled" if where == "run" else "aborted")
            assert session.state.run_id is None
        if agent.store is not None:
            state = await checked_log(agent.store)
            assert [queued.message.text for queued in state.queue.values()] == ["kept"]


async def test_a_body_that_handles_the_exception_of_a_run_goes_on(autojump_clock: MockClock) -> None:
    with trio.fail_after(1000):
        async with slow_agent().session() as session:
            try:
                async with session.run("go"):
                    await trio.sleep(5)
                    raise LookupError
            except LookupError:
                assert session.state.stop_reason == "cancelled"
            assert (await session.prompt("again")).text == "Yes."


# ------------------------------------------------------------------------------------- the block of a session


async def test_several_sessions_of_one_agent_and_one_store_go_on_at_once(autojump_clock: MockClock) -> None:
    store, gauge = MemoryStore(), Gauge()

    def answer(request: ModelRequest) -> Answer:
        if request.messages[-1].role == "user":
            return calls(call("work", seconds=5))
        return say(f"To {request.messages[0].text}.", delay=5)

    agent = Agent(ScriptedModel(answer), tools=[gauge.tool()], store=store)
    texts: dict[str, str] = {}
    with trio.fail_after(100):

        async def talk(name: str) -> None:
            async with agent.session(name) as session:
                await session.prompt(name)
                texts[name] = (await session.prompt("and?")).text

        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(talk, name)
    assert trio.current_time() == 20
    assert gauge.peak == 3
    assert texts == {name: f"To {name}." for name in ("a", "b", "c")}
    assert {info.session for info in await store.list()} == {"a", "b", "c"}
    for name in ("a", "b", "c"):
        assert said((await checked_log(store, name)).transcript)[0] == name


async def test_a_session_is_open_once_in_a_process(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(say("Yes."), repeat_last=True), store=store)
    same_store = agent.replace(name="another")
    with trio.fail_after(100):
        async with agent.session("s") as session:
            for opened in (agent.session("s"), same_store.session("s"), agent.run("go", session="s")):
                with pytest.raises(SessionBusy) as caught:
                    await opened.__aenter__()
                assert "'s' is open in this process" in caught.value.message
            async with agent.session("t"), agent.replace(store=MemoryStore()).session("s"):
                pass
            await session.prompt("first")
        await agent.send("second", session="s")
        async with same_store.session("s") as session:
            assert said(session.history()) == ["first", "assistant", "second", "assistant"]


async def test_a_session_that_could_not_be_read_can_be_opened_later(autojump_clock: MockClock) -> None:
    class Moody(MemoryStore):
        mood = "bad"

        async def read(self, *args: Any, **options: Any) -> Any:
            if self.mood == "bad":
                raise OSError("not now")
            return await super().read(*args, **options)

    store = Moody()
    agent = Agent(ScriptedModel(say("Yes.")), store=store)
    with trio.fail_after(10):
        with pytest.raises(Exception, match="STORE_FAILED: session 's' cannot be read: OSError: not now"):
            await agent.session("s").__aenter__()
        store.mood = "good"
        async with agent.session("s") as session:
            assert (await session.prompt("go")).text == "Yes."


async def test_a_log_that_was_dropped_without_being_left_is_open_no_more(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(say("Yes.")), store=store)
    with trio.fail_after(10):
        agent.session("s")  # made, and never entered
        journal = Journal("s", store, "dropped")
        await journal.open()
        with pytest.raises(SessionBusy):
            await agent.session("s").__aenter__()
        del journal
        async with agent.session("s") as session:
            assert (await session.prompt("go")).text == "Yes."


async def test_a_session_is_entered_once_and_left_by_the_task_that_entered_it(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(say("Yes.")))
    with trio.fail_after(10):
        never = agent.session()
        with pytest.raises(RuntimeError, match="must be left once"):
            await never.__aexit__(None, None, None)
        async with agent.session() as session:
            with pytest.raises(RuntimeError, match="entered once"):
                await session.__aenter__()

            async def leave() -> None:
                with pytest.raises(RuntimeError, match="by the task that entered it"):
                    await session.__aexit__(None, None, None)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(leave)
            assert (await session.prompt("go")).text == "Yes."
        with pytest.raises(RuntimeError, match="must be left once"):
            await session.__aexit__(None, None, None)
        with pytest.raises(RuntimeError, match="entered once"):
            await session.__aenter__()


def _verbs(session: Session) -> dict[str, Callable[[], Any]]:
    async def listener(event: object) -> None: ...

    return {
        "prompt": lambda: session.prompt("go"),
        "run": lambda: session.run("go").__aenter__(),
        "resume": session.resume,
        "steer": lambda: session.steer("left"),
        "follow_up": lambda: session.follow_up("left"),
        "configure": lambda: session.configure(system="x"),
        "rewind": lambda: session.rewind(0),
        "fork": session.fork,
        "wait_for_idle": session.wait_for_idle,
        "subscribe": lambda: session.subscribe(listener),
    }


async def _called(verb: Callable[[], Any]) -> None:
    made = verb()
    if isinstance(made, Awaitable):
        await made


async def test_verbs_need_an_open_session(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(say("Yes.")), store=MemoryStore())
    session = agent.session("s")
    with trio.fail_after(10):
        for verb in _verbs(session).values():
            with pytest.raises(RuntimeError, match="not open: use it inside"):
                await _called(verb)
        async with session:
            await session.prompt("go")
        for verb in _verbs(session).values():
            with pytest.raises(SessionClosed, match="its block was left") as caught:
                await _called(verb)
            assert caught.value.code == "SESSION_CLOSED"
        session.abort()
        assert not session.cancel_call("a")
    assert said(session.history()) == ["go", "assistant"]
    assert session.state.stop_reason == "stop"
    assert said((await checked_log(agent.store)).transcript) == ["go", "assistant"]


@pytest.mark.parametrize("bad", ["", 7, b"s"])
def test_an_id_is_a_text_that_is_not_empty(bad: Any) -> None:
    with pytest.raises(ConfigError, match="id: "):
        Agent(ScriptedModel(say("Yes."))).session(bad)


def test_on_busy_is_one_of_two_words() -> None:
    with pytest.raises(ConfigError, match="on_busy: expected 'refuse' or 'queue'"):
        Agent(ScriptedModel(say("Yes."))).session(on_busy="wait")  # type: ignore[arg-type]
