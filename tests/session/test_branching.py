"""Going back, branching off, and going on otherwise: rewind, fork, configure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, Recorder, tale
from tests.session.scenes import World, checked_log, crashed, log_of, said, statuses
from trio_agent import (
    Agent,
    AgentEnd,
    Allow,
    ConfigChange,
    ConfigError,
    Fact,
    InvalidAnswer,
    NotResumable,
    Rewind,
    SessionBusy,
    SessionConflict,
    StoreFailed,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    Usage,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, check_order, say

USED = Usage(input=10, output=1)


def two_turns(*more: Any) -> tuple[Any, ...]:
    """A run with a call, then a run without one."""
    return (calls(call("work", id="a", seconds=1), usage=USED), say("One.", usage=USED), say("Two.", usage=USED), *more)


def ends(facts: Sequence[Fact]) -> list[int]:
    """Where turns and runs end."""
    return [fact.seq for fact in facts if isinstance(fact, TurnEnd | AgentEnd)]


def an_agent(store: MemoryStore | None, *answers: Any, world: World | None = None, **options: Any) -> Agent:
    return Agent(ScriptedModel(*answers), tools=[(world or World()).tool("work")], store=store, **options)


# ----------------------------------------------------------------------------------------------- rewind


@pytest.mark.parametrize("store", [None, MemoryStore, lambda: FakeStore(delay=1)], ids=["none", "quick", "slow"])
async def test_rewind_goes_on_from_an_earlier_place_and_keeps_the_log(autojump_clock: MockClock, store: Any) -> None:
    model = ScriptedModel(*two_turns(say("Two, otherwise.")))
    heard = Recorder()
    kept = store and store()
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()], store=kept).session("s") as session:
            session.subscribe(heard)
            await session.prompt("first")
            old, there = session.history(), session.state
            end = heard.events[-1].seq
            await session.prompt("second")
            newer = session.history()
            await session.rewind(end)
            assert said(session.history()) == ["first", "assistant", "tool", "assistant"]
            assert (said(old), said(newer)[4:]) == (said(session.history()), ["second", "assistant"])
            assert session.state.messages == there.messages
            assert session.state.turn == 3
            await session.prompt("second, otherwise")
            assert said(session.history())[4:] == ["second, otherwise", "assistant"]
            assert said(old) == ["first", "assistant", "tool", "assistant"]
            assert said(newer)[4:] == ["second", "assistant"], "a view of what was rewound does not change"
    assert said(model.requests[-1].messages) == ["first", "assistant", "tool", "assistant", "second, otherwise"]
    check_order(heard.events, session=True)
    turns = [event.number for event in heard.events if isinstance(event, TurnStart)]
    assert turns == [1, 2, 3, 4]
    if kept is not None:
        facts = await log_of(kept)
        assert [(fact.to, fact.run_id, fact.turn) for fact in facts if isinstance(fact, Rewind)] == [(end, "", 3)]
        assert tale(facts).count("agent_start") == 3
        state = await checked_log(kept)
        assert list(state.transcript) == list(session.history())


async def test_rewind_to_the_end_of_a_turn_and_to_the_beginning(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    model = ScriptedModel(*two_turns(say("From the results."), say("From nothing.")))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()], store=store).session("s") as session:
            await session.prompt("first")
            turn, *_ = ends(await log_of(store))
            await session.prompt("second")
            await session.rewind(turn)
            assert said(session.history()) == ["first", "assistant", "tool"]
            resumed = await session.resume()  # a model has the results to look at
            assert resumed.text == "From the results."
            await session.rewind(0)
            assert session.history() == []
            with pytest.raises(NotResumable, match="no history yet"):
                await session.resume()
            assert (await session.prompt("anew")).text == "From nothing."
            assert said(session.history()) == ["anew", "assistant"]
    model.verify()
    await checked_log(store)


async def test_what_was_rewound_is_no_place_to_go_to_any_more(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, *two_turns()).session("s") as session:
            await session.prompt("first")
            first = ends(await log_of(store))
            await session.prompt("second")
            second = ends(await log_of(store))[len(first) :]
            await session.rewind(first[0])
            here = (await log_of(store))[-1].seq
            for gone in (*first[1:], *second):
                with pytest.raises(ValueError, match=f"at fact {gone} something was under way"):
                    await session.rewind(gone)
            await session.rewind(here)
            await session.rewind(first[0])
            assert said(session.history()) == ["first", "assistant", "tool"]
    await checked_log(store)


async def test_only_boundaries_are_places_and_the_error_names_the_nearest(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, *two_turns()).session("s") as session:
            with pytest.raises(ValueError, match="the nearest: none yet"):
                await session.rewind(1)
            await session.prompt("first")
            facts = await log_of(store)
            places = ends(facts)
            for seq in [*range(1, len(facts) + 3), -1]:
                if seq in places:
                    continue
                for verb in (session.rewind, session.fork):
                    with pytest.raises(ValueError, match="something was under way") as caught:
                        await verb(seq)
                    nearest = [int(each) for each in str(caught.value).rpartition(":")[2].split(",")]
                    assert set(nearest) == set(places)
            assert await log_of(store) == facts
            await session.wait_for_idle()
            assert (await store.list())[0].head == len(facts)


async def test_a_session_with_a_run_under_way_is_not_rewound(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with an_agent(None, say("One.", delay=5)).session() as session, session.run("go") as run:
            with pytest.raises(SessionBusy, match="can be rewound when that is over"):
                await session.rewind(0)
            await run.wait()
            assert said(session.history()) == ["go", "assistant"]


async def test_a_rewind_keeps_the_queue_the_usage_and_the_configuration(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, *two_turns(say("Three."))).session("s") as session:
            await session.prompt("first")
            await session.steer("kept")
            await session.configure(system="Be brief.")
            spent = session.state.usage
            await session.rewind(0)
            assert session.state.usage == spent == Usage(input=20, output=2)
            assert said(session.state.queued) == ["kept"]
            assert session.state.system == "Be brief."
            assert session.state.stop_reason is None
        async with an_agent(store, say("Four.")).session("s") as session:
            assert said(session.state.queued) == ["kept"]
            assert said((await session.prompt("anew")).messages) == ["kept", "anew", "assistant"]
    await checked_log(store)


async def test_ids_of_calls_that_were_rewound_are_not_used_again(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    answer = calls(call("work", id="a"))
    with trio.fail_after(100):
        async with an_agent(store, answer, say("One."), answer, say("Two."), world=world).session("s") as session:
            await session.prompt("first")
            await session.rewind(0)
            await session.prompt("again")
    ids, keys = zip(*world.done, strict=True)
    assert len(set(ids)) == len(set(keys)) == 2
    await checked_log(store)


async def test_what_a_crash_has_left_is_settled_before_a_rewind(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(1000):
        async with an_agent(store, *two_turns()).session("s") as session:
            await session.prompt("first")
            await session.prompt("second")
        whole = await log_of(store)
        for kept in range(1, len(whole) + 1):
            places = ends(whole[:kept])
            for to in (0, *places):
                again = await crashed(whole, kept)
                async with an_agent(again, say("Otherwise.")).session("s") as session:
                    await session.rewind(to)
                    assert (await log_of(again))[-1].run_id == ""
                    assert session.state.run_id is None
                    before = said(session.history())
                    assert (await session.prompt("otherwise")).text == "Otherwise."
                    assert said(session.history()) == [*before, "otherwise", "assistant"]
                await checked_log(again)


async def test_a_rewind_that_is_refused_settles_nothing(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    gated = world.tool("gated", requires_approval=True)
    model = ScriptedModel(calls(call("gated", id="a")), say("Done."))
    with trio.fail_after(100):
        async with Agent(model, tools=[gated], store=store, approval=suspend).session("s") as session:
            await session.prompt("go")
            before = await log_of(store)
            with pytest.raises(ValueError, match="something was under way"):
                await session.rewind(2)
            assert await log_of(store) == before
            assert (await session.resume({"a": Allow()})).text == "Done."
    assert world.ids == ["a"]


async def test_a_suspended_session_may_be_rewound(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    gated = world.tool("gated", requires_approval=True)
    model = ScriptedModel(say("One."), calls(call("gated", id="a")), say("Two."))
    with trio.fail_after(100):
        async with Agent(model, tools=[gated], store=store, approval=suspend).session("s") as session:
            await session.prompt("first")
            place = ends(await log_of(store))[-1]
            await session.prompt("second")
            await session.rewind(place)
            assert said(session.history()) == ["first", "assistant"]
            assert (session.state.requests, session.state.pending) == ((), ())
            with pytest.raises(InvalidAnswer):
                await session.resume({"a": Allow()})
            assert (await session.prompt("otherwise")).text == "Two."
    model.verify()
    assert world.done == []
    await checked_log(store)


# -------------------------------------------------------------------------------------------------- fork


async def test_a_fork_goes_on_by_itself(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    more = [calls(call("work", id="b")), say("Done.")]
    with trio.fail_after(100):
        async with an_agent(store, *two_turns(*more), world=world).session("s") as session:
            await session.prompt("first")
            place = ends(await log_of(store))[-1]
            await session.prompt("second")
            before = await log_of(store)
            fork = await session.fork(place)
            assert await log_of(store) == before
            assert fork != session.id
            async with an_agent(store, *more, world=world).session(fork) as other:
                assert said(other.history()) == ["first", "assistant", "tool", "assistant"]
                assert other.state.turn == 2
                await other.prompt("otherwise")
                assert said(session.history())[4:] == ["second", "assistant"]
                await session.prompt("third")
                assert said(other.history())[4:] == ["otherwise", "assistant", "tool", "assistant"]
    assert len({key for _, key in world.done}) == len(world.done) == 3
    assert {info.session for info in await store.list()} == {"s", fork}
    await checked_log(store)
    forked = await log_of(store, fork)
    assert forked[:place] == before[:place]
    assert [fact.seq for fact in forked] == list(range(1, len(forked) + 1))
    await checked_log(store, fork)


async def test_without_a_place_all_is_forked_that_is_not_under_way(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, *two_turns(say("Three."))).session("s") as session:
            with pytest.raises(ValueError, match="none yet"):
                await session.fork()
            await session.prompt("first")
            await session.steer("on both sides")
            await session.configure(system="Be brief.")
            fork = await session.fork()
            assert await log_of(store, fork) == await log_of(store)
            async with session.run("second") as run:
                in_mid_run = await session.fork()
                await run.wait()
            fork_of_all = await session.fork()
    assert len(await log_of(store, fork_of_all)) == len(await log_of(store))
    assert said((await checked_log(store, in_mid_run)).transcript)[-1] == "assistant"
    async with an_agent(store, say("There.")).session(fork) as other:
        assert other.state.system == "Be brief."
        assert said((await other.prompt("go")).messages) == ["on both sides", "go", "assistant"]
    await checked_log(store, fork)


async def test_a_fork_in_the_middle_of_a_run_ends_that_run_there(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    with trio.fail_after(100):
        answers = (calls(call("work", id="a", seconds=1)), say("One.", delay=5))
        async with an_agent(store, *answers, world=world).session("s") as session:
            async with session.run("first") as run:
                await trio.sleep(3)
                assert (session.state.turn, session.state.run_id) == (2, (await log_of(store))[0].run_id)
                fork = await session.fork()
                await run.wait()
            turn = ends(await log_of(store))[0]
            later = await session.fork(turn)
    for each in (fork, later):
        facts = await log_of(store, each)
        assert tale(facts)[-2:] == ["turn_end 1 tool_use", "agent_end interrupted"]
        assert facts[-1].seq == len(facts)
        state = await checked_log(store, each)
        assert said(state.transcript) == ["first", "assistant", "tool"]
        assert (state.run_id, state.stop_reason) == (None, "interrupted")
        async with an_agent(store, say("From the results."), world=world).session(each) as other:
            assert (await other.resume()).text == "From the results."
        await checked_log(store, each)
    assert world.ids == ["a"]
    assert run.result.text == "One."
    await checked_log(store)


async def test_a_fork_shares_no_idempotency_keys_with_what_it_was_forked_from(autojump_clock: MockClock) -> None:
    """Branches off everywhere, and both go on with calls of the same ids."""
    store, world = MemoryStore(), World()
    count = itertools.count(1)

    def talk(request: Any) -> Any:
        last = request.messages[-1]
        return say("Done.") if last.role == "tool" and next(count) % 2 else calls(call("work", id="same"))

    agent = Agent(ScriptedModel(talk), tools=[world.tool("work")], store=store, max_turns=3)
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            await session.prompt("first")
            forks = [await session.fork(place) for place in ends(await log_of(store))]
            await session.prompt("second")
        for fork in forks:
            async with agent.session(fork) as other:
                await other.prompt("otherwise")
                with_resume = await other.fork()
            async with agent.session(with_resume) as third:
                await third.prompt("and again")
    keys = [key for _, key in world.done]
    assert len(keys) == len(set(keys)) > 6
    for info in await store.list():
        await checked_log(store, info.session)


async def test_a_suspended_or_crashed_run_is_not_forked_with_what_was_under_way(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    tools = [world.tool("gated", requires_approval=True), world.tool("work")]
    model = ScriptedModel(calls(call("work", id="a")), calls(call("gated", id="b")), say("Done."))
    with trio.fail_after(1000):
        agent = Agent(model, tools=tools, store=store, approval=suspend)
        async with agent.session("s") as session:
            assert (await session.prompt("go")).stop_reason == "suspended"
            places = ends(await log_of(store))
            fork = await session.fork()
            with pytest.raises(ValueError, match=f"the nearest: {places[0]}"):
                await session.fork(places[-1])
            await session.resume({"b": Allow()})
        state = await checked_log(store, fork)
        assert said(state.transcript) == ["go", "assistant", "tool"]
        assert (state.missing, state.stop_reason) == (0, "interrupted")
        whole = await log_of(store)
        for kept in range(1, len(whole) + 1):
            again = await crashed(whole, kept)
            async with agent.replace(store=again, model=ScriptedModel(say("There."))).session("s") as session:
                if not session.state.turn or not any(isinstance(fact, TurnEnd) for fact in whole[:kept]):
                    continue
                fork = await session.fork()
            state = await checked_log(again, fork)
            assert (state.run_id, state.missing) == (None, 0)
            async with agent.replace(store=again, model=ScriptedModel(say("There."))).session(fork) as other:
                assert (await other.prompt("go on")).text == "There."
            await checked_log(again, fork)
    started = [fact.idempotency_key for fact in whole if isinstance(fact, ToolExecutionStart)]
    assert sorted(key for _, key in world.done) == sorted(started)


async def test_a_fork_needs_a_store_and_can_fail(autojump_clock: MockClock) -> None:
    class Full(MemoryStore):
        async def fork(self, session: str, to: str, *, at: int) -> None:
            raise StoreFailed("disk full")

    with trio.fail_after(100):
        async with an_agent(None, say("One.")).session() as session:
            await session.prompt("go")
            with pytest.raises(ConfigError, match="store: a fork is kept in a store, and this session has none"):
                await session.fork()
            assert session.state.phase == "idle"
        async with an_agent(Full(), say("One."), say("Two.")).session("s") as session:
            await session.prompt("go")
            with pytest.raises(StoreFailed, match="disk full"):
                await session.fork()
            assert (await session.prompt("and?")).text == "Two."


async def test_a_fork_never_writes_over_another_session(autojump_clock: MockClock) -> None:
    store, next_ids, count = MemoryStore(), [], itertools.count(1)
    options: dict[str, Any] = {"ids": lambda: next_ids.pop() if next_ids else f"id{next(count)}"}
    with trio.fail_after(100):
        async with an_agent(store, say("Mine.")).session("taken") as session:
            await session.prompt("mine")
        mine = await log_of(store, "taken")
        async with an_agent(store, *two_turns(), **options).session("s") as session:
            await session.prompt("go")
            for place in ends(await log_of(store)):
                next_ids.append("taken")
                with pytest.raises(SessionConflict):
                    await session.fork(place)
            assert (await session.prompt("and?")).text == "Two."
    assert await log_of(store, "taken") == mine


async def test_a_fork_that_is_cancelled_leaves_nothing(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, *two_turns()).session("s") as session:
            await session.prompt("go")
            for place in (None, *ends(await log_of(store))):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await session.fork(place)
                assert scope.cancelled_caught
            assert [info.session for info in await store.list()] == ["s"]


# --------------------------------------------------------------------------------------------- configure


async def test_between_runs_a_change_holds_from_the_next_prompt_on(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    first, second = ScriptedModel(say("One."), model="one"), ScriptedModel(say("Two."), model="two")
    tools = [Gauge().tool("a"), Gauge().tool("b")]
    with trio.fail_after(100):
        async with Agent(first, tools=tools[:1], system="Old.", store=store).session("s") as session:
            await session.prompt("first")
            await session.configure(model=second, tools=tools, system=None, reasoning="high")
            state = session.state
            assert (state.model, state.tools, state.system, state.reasoning) == ("two", ("a", "b"), None, "high")
            await session.prompt("second")
    assert (first.requests[0].system, second.requests[0].system) == ("Old.", None)
    assert [spec.name for spec in second.requests[0].tools] == ["a", "b"]
    assert (first.requests[0].reasoning, second.requests[0].reasoning) == (None, "high")
    (change,) = [fact for fact in await log_of(store) if isinstance(fact, ConfigChange)]
    assert change == ConfigChange("two", None, ("a", "b"), "high")
    assert change.run_id == ""
    await checked_log(store)


async def test_in_mid_run_a_change_holds_from_the_next_turn_on(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    old, new = World(), World()
    first = ScriptedModel(calls(call("work", id="a", seconds=5), call("work", id="b", seconds=1)), model="one")
    second = ScriptedModel(calls(call("work", id="c"), call("more", id="d")), say("Done."), model="two")
    with trio.fail_after(100):
        async with Agent(first, tools=[old.tool("work")], store=store).session("s") as session:

            async def change() -> None:
                await trio.sleep(2)
                await session.configure(model=second, tools=[new.tool("work"), new.tool("more")], system="New.")
                assert session.state.model == "two"

            async with trio.open_nursery() as nursery:
                nursery.start_soon(change)
                result = await session.prompt("go")
    assert result.text == "Done."
    assert (sorted(old.ids), sorted(new.ids)) == (["a", "b"], ["c", "d"])
    assert [request.system for request in second.requests] == ["New.", "New."]
    assert len(first.requests) == 1
    assert statuses(result.messages) == dict.fromkeys("abcd", "ok")
    await checked_log(store)


async def test_a_run_goes_on_under_its_own_limits_when_the_session_is_configured(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=5)), say("Never."), say("Done."))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()]).session() as session:

            async def change() -> None:
                await trio.sleep(2)
                await session.configure(system="New.")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(change)
                result = await session.prompt("go", max_turns=1)
    assert result.stop_reason == "max_turns"


async def test_texts_are_remembered_and_models_and_tools_are_the_agents(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(model="one"), tools=[Gauge().tool("a")], system="Old.", reasoning="low", store=store)
    other = ScriptedModel(say("Two."), model="two")
    with trio.fail_after(100):
        async with agent.session("s") as session:
            await session.configure(model=other, tools=[], system="New.", reasoning=None)
        third = ScriptedModel(say("Three."), model="three")
        async with agent.replace(model=third, system="Another.").session("s") as session:
            state = session.state
            assert (state.model, state.tools, state.system, state.reasoning) == ("three", ("a",), "New.", None)
            await session.prompt("go")
        async with agent.session("t") as session:
            assert session.state.system == "Old."
    assert (third.requests[0].system, third.requests[0].reasoning) == ("New.", None)


async def test_a_crashed_run_is_resumed_with_the_texts_that_it_had(autojump_clock: MockClock) -> None:
    store, world = MemoryStore(), World()
    with trio.fail_after(1000):
        async with an_agent(store, *two_turns(), world=world, system="Old.").session("s") as session:
            await session.configure(system="New.")
            await session.prompt("go")
        whole = await log_of(store)
        for kept in range(2, len(whole)):
            again = await crashed(whole, kept)
            model = ScriptedModel(lambda request: say("Here."))
            agent = Agent(model, tools=[world.tool("work")], system="Old.", store=again)
            async with agent.session("s") as session:
                await session.resume()
            assert {request.system for request in model.requests} <= {"New."}
            assert {request.system for request in model.requests} or kept > len(whole) - 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "gpt"}, "model: expected a ModelProvider, got a str"),
        ({"model": None}, "model: expected a ModelProvider, got a NoneType"),
        ({"system": 7}, "system: expected a str or None, got a int"),
        ({"reasoning": True}, "reasoning: expected a str or None, got a bool"),
        ({"tools": ["work"]}, "tools"),
        ({"tools": "work"}, "tools"),
        ({"tools": None}, "tools"),
        ({"max_turns": 3}, "a session cannot change 'max_turns'; expected model, tools, system or reasoning"),
        ({"dispatcher": None}, "a session cannot change 'dispatcher'"),
    ],
)
async def test_what_cannot_be_used_is_refused_and_nothing_changes(
    autojump_clock: MockClock, changes: dict[str, Any], told: str
) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(store, say("Yes."), system="Old.").session("s") as session:
            with pytest.raises(ConfigError) as caught:
                await session.configure(**changes)
            assert told in caught.value.message
            assert await log_of(store) == []
            assert (session.state.system, session.state.tools) == ("Old.", ("work",))
            assert (await session.prompt("go")).text == "Yes."


async def test_a_required_tool_cannot_be_taken_away(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work")), say("Yes."))
    with trio.fail_after(100):
        async with Agent(model, tools=[Gauge().tool()], tool_choice="work").session() as session:
            for tools in ([], [Gauge().tool("other")]):
                with pytest.raises(ConfigError, match="tool_choice"):
                    await session.configure(tools=tools)
            assert (await session.prompt("go")).text == "Yes."


async def test_a_change_is_durable_when_the_verb_returns(autojump_clock: MockClock) -> None:
    store = FakeStore(delay=2)
    with trio.fail_after(100):
        async with an_agent(store, say("Yes.")).session("s") as session:
            await session.configure(system="New.")
            assert trio.current_time() == 2
            assert tale(store.facts) == ["config_change"]
            await session.prompt("go")
            await session.rewind(0)
            assert tale(store.facts)[-1] == "rewind"
