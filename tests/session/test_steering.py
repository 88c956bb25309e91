"""Steers and follow-ups of a session: durable on arrival, delivered once, in order, or reported as queued."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Recorder, hooked
from tests.session.scenes import checked_log, crashed, log_of, said
from trio_agent import (
    AbortRequested,
    Agent,
    AgentEnd,
    AgentStart,
    Fact,
    Message,
    MessageDelivered,
    MessageQueued,
    RequestError,
    Session,
    SessionClosed,
    StoreFailed,
)
from trio_agent._core._state import State
from trio_agent.sessions import MemoryStore
from trio_agent.testing import (
    ABORT,
    CANCEL,
    INTERRUPT,
    LAWS,
    Action,
    ScriptedModel,
    Seams,
    Trial,
    call,
    calls,
    explore_cancellation,
    say,
)

STORES = pytest.mark.parametrize(
    "store", [None, MemoryStore, lambda: FakeStore(delay=1)], ids=["none", "quick", "slow"]
)
MakeStore = Callable[[], MemoryStore] | None


def deliveries(facts: Sequence[Fact]) -> list[str]:
    """What was delivered, in the order of the log, as texts."""
    texts = {fact.id: fact.message.text for fact in facts if isinstance(fact, MessageQueued)}
    found = []
    for fact in facts:
        if isinstance(fact, MessageDelivered):
            found.append(texts[fact.id])
        elif isinstance(fact, AgentStart):
            found += [texts[each] for each in fact.delivered]
    return found


def waiting(session: Session) -> list[str]:
    return [message.text for message in session.state.queued]


# --------------------------------------------------------------------------------------------- durability


@pytest.mark.parametrize("verb", ["steer", "follow_up"])
@pytest.mark.parametrize("when", ["between runs", "in a run"])
async def test_a_message_is_durable_when_its_verb_returns(autojump_clock: MockClock, verb: str, when: str) -> None:
    store = FakeStore(delay=3)
    agent = Agent(ScriptedModel(say("Yes.", delay=20), repeat_last=True), store=store)

    async def tell(session: Session) -> None:
        began = trio.current_time()
        await (session.steer("a word") if verb == "steer" else session.follow_up("a word"))
        assert trio.current_time() - began == 3
        assert store.times[-1] == trio.current_time()
        written = [fact for fact in store.facts if isinstance(fact, MessageQueued)]
        assert [(fact.origin, fact.message.text, fact.message.origin) for fact in written] == [(verb, "a word", verb)]

    with trio.fail_after(1000):
        async with agent.session("s") as session:
            if when == "between runs":
                await tell(session)
            else:
                async with session.run("go") as run:
                    await trio.sleep(10)
                    await tell(session)
                    await run.wait()
    await checked_log(store)


async def test_what_is_no_message_is_refused_and_leaves_nothing(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(10):
        async with Agent(ScriptedModel(say("Yes.")), store=store).session("s") as session:
            for bad in ("", "  ", Message("assistant", "I say"), 7):
                for verb in (session.steer, session.follow_up):
                    with pytest.raises(RequestError, match="expected a user message that says something"):
                        await verb(bad)  # type: ignore[arg-type]
    assert await log_of(store) == []


# ---------------------------------------------------------------------------------------------- delivery


@STORES
async def test_between_runs_messages_wait_for_the_next_prompt_and_stand_before_it(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    model = ScriptedModel(say("One."), say("Two."), say("Three."))
    agent = Agent(model, store=store and store())
    with trio.fail_after(100):
        async with agent.session("s") as session:
            await session.steer("s1")
            await session.prompt("first")
            await session.follow_up("f1")
            await session.steer("s2")
            await session.follow_up(Message("user", "f2"))
            assert waiting(session) == ["s2", "f1", "f2"]
            second = await session.prompt("second")
            assert waiting(session) == []
            await session.prompt("third")
    assert said(second.messages) == ["f1", "s2", "f2", "second", "assistant"]
    assert [message.origin for message in second.messages] == ["follow_up", "steer", "follow_up", None, None]
    assert said(session.history())[:2] == ["s1", "first"]
    assert len(model.requests) == 3
    if agent.store is not None:
        await checked_log(agent.store)
        assert deliveries(await log_of(agent.store)) == ["s1", "f1", "s2", "f2"]


@STORES
@pytest.mark.parametrize(
    ("options", "history"),
    [
        ({}, ["go", "assistant", "tool", "s1", "assistant", "s2", "assistant", "f1", "assistant", "f2", "assistant"]),
        (
            {"steering": "all"},
            ["go", "assistant", "tool", "s1", "s2", "assistant", "f1", "assistant", "f2", "assistant"],
        ),
        (
            {"follow_up": "all"},
            ["go", "assistant", "tool", "s1", "assistant", "s2", "assistant", "f1", "f2", "assistant"],
        ),
    ],
)
async def test_in_a_run_steers_come_after_the_results_and_follow_ups_when_it_would_stop(
    autojump_clock: MockClock, store: MakeStore, options: dict[str, Any], history: list[str]
) -> None:
    model = ScriptedModel(calls(call("work", seconds=20)), *[say("Hm.")] * 4)
    agent = Agent(model, tools=[Gauge().tool()], store=store and store(), **options)
    with trio.fail_after(1000):
        async with agent.session("s") as session:

            async def tell() -> None:
                await trio.sleep(5)
                await session.follow_up("f1")
                await session.steer("s1")
                await session.steer("s2")
                await session.follow_up("f2")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(tell)
                result = await session.prompt("go")
    assert said(result.messages) == history
    if agent.store is not None:
        await checked_log(agent.store)


async def test_interrupt_cuts_the_calls_of_the_run_under_way(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", seconds=50, id="a")), say("As you say."))
    with trio.fail_after(100):
        async with Agent(model, tools=[gauge.tool()]).session() as session, trio.open_nursery() as nursery:

            async def tell() -> None:
                await trio.sleep(5)
                await session.steer("stop that", interrupt=True)

            nursery.start_soon(tell)
            result = await session.prompt("go")
            await session.steer("between runs it changes nothing", interrupt=True)
    assert gauge.cut == ["a"]
    assert said(result.messages) == ["go", "assistant", "tool", "stop that", "assistant"]
    assert trio.current_time() == 5


@STORES
@pytest.mark.parametrize("why", ["abort", "cancel", "error", "max_turns", "leave"])
async def test_what_no_turn_came_for_is_reported_and_comes_with_the_next_prompt(
    autojump_clock: MockClock, store: MakeStore, why: str
) -> None:
    broken = attrs.evolve(say("Half an ", delay=20), end=RuntimeError("broken"))
    answers = [broken if why == "error" else calls(call("work", seconds=20))]
    agent = Agent(ScriptedModel(*answers, say("Ah.")), tools=[Gauge().tool()], store=store and store())
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            async with session.run("go", max_turns=1) as run:
                await trio.sleep(5)
                await session.steer("s1")
                await session.follow_up("f1")
                if why == "abort":
                    session.abort(0)
                elif why == "cancel":
                    with trio.CancelScope() as scope:
                        scope.cancel()
                        await run.wait()
                if why not in ("cancel", "leave"):
                    await run.wait()
            assert run.result.undelivered == ()  # the session keeps them
            assert waiting(session) == ["s1", "f1"]
            if why == "leave":
                assert run.result.stop_reason == "cancelled"
            result = await session.prompt("again")
            assert said(result.messages) == ["s1", "f1", "again", "assistant"]
            assert waiting(session) == []


async def test_what_waits_survives_that_the_session_is_left_and_opened_again(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(say("One."), say("Two.")), store=store)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            await session.prompt("first")
            await session.steer("s1")
        async with agent.session("s") as session:
            assert waiting(session) == ["s1"]
            await session.follow_up("f1")
            assert [(fact.run_id, fact.turn) for fact in (await log_of(store))[-2:]] == [("", 1), ("", 1)]
        async with agent.session("s") as session:
            assert waiting(session) == ["s1", "f1"]
            assert said((await session.prompt("second")).messages) == ["s1", "f1", "second", "assistant"]
        async with agent.session("s") as session:
            assert waiting(session) == []
    await checked_log(store)


async def test_a_run_of_the_agent_takes_what_a_session_has_left(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(say("One.")), store=store)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            await session.steer("s1")
        assert said((await agent.send("go", session="s")).messages) == ["s1", "go", "assistant"]


async def test_resume_goes_on_with_what_waits_after_a_run_that_has_stopped(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Agent(ScriptedModel(say("One."), say("Two."))).session() as session:
            await session.prompt("go")
            await session.steer("s1")
            result = await session.resume()
    assert said(result.messages) == ["s1", "assistant"]


# ------------------------------------------------------------------------------------------- the seams


async def test_a_steer_while_the_model_writes_its_last_answer_revives_the_run(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("Done.", delay=5), say("Really."))
    with trio.fail_after(100):
        async with Agent(model).session() as session, trio.open_nursery() as nursery:

            async def tell() -> None:
                await trio.sleep(2)
                await session.steer("one more thing")

            nursery.start_soon(tell)
            result = await session.prompt("go")
    assert (said(result.messages)[2], result.text, result.turns) == ("one more thing", "Really.", 2)


@STORES
async def test_a_steer_at_any_moment_of_a_runs_end_is_in_this_run_or_in_the_next(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    """Every quarter of a second around the end of a run whose end takes its time."""
    for quarter in range(4, 60):
        model = ScriptedModel(lambda request: say(f"To {request.messages[-1].text}.", delay=1))

        async def last(ctx: Any) -> None:
            await trio.sleep(2)

        made = store and store()
        agent = Agent(model, store=made, middleware=[hooked(after_agent=last)], listeners=[Recorder(delay=0.5)])
        began = trio.current_time()
        with trio.fail_after(1000):
            async with agent.session("s") as session, trio.open_nursery() as nursery:
                first = []

                async def play(session: Session = session, first: list[Any] = first) -> None:
                    first.append(await session.prompt("first"))

                nursery.start_soon(play)
                await trio.sleep_until(began + quarter / 4)
                await session.steer("the word")
                await session.wait_for_idle()
                second = await session.prompt("second")
                (result,) = first
                together = [*result.messages, *second.messages]
                assert said(together).count("the word") == 1
                assert together == session.history()
                assert waiting(session) == []
        if made is not None:
            assert deliveries(await log_of(made)) == ["the word"]
            await checked_log(made)


async def test_a_steer_is_refused_when_the_block_is_being_left(autojump_clock: MockClock) -> None:
    told = []

    async def late() -> None:
        await trio.sleep(6)
        try:
            await session.steer("too late")
        except SessionClosed as error:
            told.append((error.code, trio.current_time()))

    async def slow(event: object) -> None:
        if isinstance(event, AgentEnd):
            await trio.sleep(3)

    store = MemoryStore()
    agent = Agent(ScriptedModel(say("One.", delay=50)), store=store, listeners=[slow])
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            async with agent.session("s") as session:
                nursery.start_soon(session.prompt, "go")
                nursery.start_soon(late)
                await trio.sleep(5)
            assert trio.current_time() == 8
    assert told == [("SESSION_CLOSED", 6)]
    assert not [fact for fact in await log_of(store) if isinstance(fact, MessageQueued)]


async def test_a_steer_that_was_cancelled_before_it_began_was_not_accepted(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        async with Agent(ScriptedModel(say("Done."))).session() as session:
            with trio.CancelScope() as scope:
                scope.cancel()
                await session.steer("never said")
            assert scope.cancelled_caught
            assert waiting(session) == []


async def test_a_steer_between_runs_that_is_cancelled_while_it_waits_comes_once(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=5)
    with trio.fail_after(100):
        async with Agent(ScriptedModel(say("Yes.")), store=store).session("s") as session:
            with trio.move_on_after(1) as scope:
                await session.steer("said once")
            assert scope.cancelled_caught
            assert waiting(session) == ["said once"]
            result = await session.prompt("go")
    assert said(result.messages) == ["said once", "go", "assistant"]
    assert deliveries(store.facts) == ["said once"]


async def test_many_tasks_may_steer_at_once_and_each_message_comes_once_in_order_of_arrival(
    autojump_clock: MockClock,
) -> None:
    store = FakeStore(delay=1)
    agent = Agent(ScriptedModel(say("Yes.", delay=30), say("Fine.")), store=store, steering="all")
    with trio.fail_after(1000):
        async with agent.session("s") as session, trio.open_nursery() as nursery:
            nursery.start_soon(session.prompt, "go")
            await trio.sleep(5)
            for number in range(20):
                nursery.start_soon(session.steer, str(number))
                await wait_all_tasks_blocked()
    queued = [fact.message.text for fact in store.facts if isinstance(fact, MessageQueued)]
    assert queued == [str(number) for number in range(20)]
    assert deliveries(store.facts) == queued
    assert len(store.batches) < 12, "messages that come at once share a commit"


# -------------------------------------------------------------------------------------- cut everywhere


@attrs.define(eq=False)
class TwoPrompts:
    """A session with two runs, steered from the side in the first and between the two."""

    store: MemoryStore = attrs.field(factory=MemoryStore)
    seams: Seams = attrs.field(factory=Seams)
    accepted: list[str] = attrs.field(factory=list)
    offered: list[str] = attrs.field(factory=list)
    session: Session | None = None

    @property
    def agent(self) -> Agent:
        return Agent(
            ScriptedModel(calls(call("work", seconds=2)), say("Hm.", delay=1), repeat_last=True),
            tools=[Gauge().tool()],
            store=self.store,
        )

    async def say(self, verb: Callable[[str], Awaitable[None]], text: str) -> None:
        self.offered.append(text)
        try:
            await verb(text)
        except (SessionClosed, StoreFailed):
            return
        self.accepted.append(text)

    async def play(self) -> None:
        async with self.agent.session("s") as session:
            self.session = session
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.aside, session)
                await session.prompt("first")
            await self.say(session.steer, "s2")
            await session.prompt("second")
            await self.say(session.steer, "s3")

    async def aside(self, session: Session) -> None:
        await trio.sleep(1)
        await self.say(session.steer, "s1")
        await self.say(session.follow_up, "f1")

    def abort(self, grace: float) -> None:
        if self.session is not None:
            self.session.abort(grace)

    def before_cut(self) -> None: ...

    def parts(self) -> Sequence[str]:
        return ()

    def leave_out(self, parts: Sequence[str]) -> None: ...


def every_message_that_was_accepted_comes_once_or_is_queued(trial: Trial[TwoPrompts]) -> None:
    async def look() -> tuple[list[Fact], State]:
        return await log_of(trial.world.store), await checked_log(trial.world.store)

    if trial.world.session is None or not trio.run(log_of, trial.world.store):
        return
    facts, state = trio.run(look)
    queued = [each.message.text for each in state.queue.values()]
    told = [*deliveries(facts), *queued]
    assert len(set(told)) == len(told), f"twice: {told}"
    assert set(trial.world.accepted) <= set(told) <= set(trial.world.offered)
    assert [text for text in ("s1", "s2", "s3") if text in told] == [text for text in told if text[0] == "s"]


@pytest.mark.parametrize(
    "action", [CANCEL, ABORT(0), ABORT(), INTERRUPT], ids=["cancel", "abort(0)", "abort()", "interrupt"]
)
def test_wherever_a_session_is_cut_every_accepted_message_comes_once_or_is_queued(action: Action) -> None:
    report = explore_cancellation(
        TwoPrompts,
        TwoPrompts.play,
        laws=(*LAWS, every_message_that_was_accepted_comes_once_or_is_queued),
        action=action,
    )
    report.raise_for_findings()
    assert report.tried == report.met > 60


async def _lived(kept: int | None = None, facts: Sequence[Fact] = ()) -> tuple[list[Fact], list[Message], State]:
    """A session that is steered, or what a crash behind fact ``kept`` has left of it and one more prompt."""
    store = await crashed(facts, kept)
    model = ScriptedModel(calls(call("work", seconds=2)), say("Hm.", delay=1), repeat_last=True)
    agent = Agent(model, tools=[Gauge().tool()], store=store)
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            if kept is None:
                world = TwoPrompts(store)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(world.aside, session)
                    await session.prompt("first")
                await session.steer("s2")
            await session.prompt("last")
            history = list(session.history())
    return await log_of(store), history, await checked_log(store)


def test_wherever_a_crash_comes_what_was_accepted_comes_once_and_in_order() -> None:
    whole, *_ = trio.run(_lived, clock=MockClock(autojump_threshold=0))
    for kept in range(len(whole) + 1):
        accepted = [fact.message.text for fact in whole[:kept] if isinstance(fact, MessageQueued)]
        facts, history, state = trio.run(_lived, kept, whole, clock=MockClock(autojump_threshold=0))
        assert deliveries(facts) == accepted
        assert sorted(text for text in said(history) if text in ("s1", "s2", "f1")) == sorted(accepted)
        assert not state.queue


# ------------------------------------------------------------------------------------------ whatever comes


async def _chat(plan: list[tuple[str, float]], delay: float, mode: str) -> None:
    store = FakeStore(delay=delay)
    model = ScriptedModel(
        lambda request: calls(call("work", seconds=1)) if request.messages[-1].text == "0" else say("Hm.", delay=1)
    )
    options: dict[str, Any] = {"steering": mode, "follow_up": mode}
    agent = Agent(model, tools=[Gauge().tool()], store=store, **options)
    accepted: list[str] = []
    with trio.fail_after(10_000):
        async with agent.session("s", on_busy="queue") as session, trio.open_nursery() as nursery:

            async def do(verb: str, text: str) -> None:
                if verb == "prompt":
                    await session.prompt("0")
                elif verb == "abort":
                    session.abort(0)
                elif verb == "steer":
                    await session.steer(text)
                    accepted.append(text)
                else:
                    await session.follow_up(text)
                    accepted.append(text)

            for number, (verb, pause) in enumerate(plan, 1):
                nursery.start_soon(do, verb, str(number))
                await trio.sleep(pause)
            await trio.sleep(50)
            await session.wait_for_idle()
            left = waiting(session)
    delivered = deliveries(store.facts)
    assert sorted([*delivered, *left]) == sorted(accepted)
    assert len([fact for fact in store.facts if isinstance(fact, AbortRequested)]) <= len(plan)
    await checked_log(store)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["prompt", "steer", "follow_up", "abort"]), st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
        ),
        max_size=8,
    ),
    st.sampled_from([0.0, 0.3, 2.0]),
    st.sampled_from(["one", "all"]),
)
def test_whatever_is_said_and_done_every_accepted_message_comes_once_or_is_queued(
    plan: list[tuple[str, float]], delay: float, mode: str
) -> None:
    trio.run(_chat, plan, delay, mode, clock=MockClock(autojump_threshold=0))
