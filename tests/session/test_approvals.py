"""Calls that need a person's permission: allowed, denied, left out, or suspended until somebody answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, hooked, tale
from tests.session.scenes import World, checked_log, log_of, said, statuses
from trio_agent import (
    Agent,
    AgentStart,
    Allow,
    ApprovalRequest,
    ApprovalResolved,
    Block,
    ConfigError,
    Deny,
    HookContext,
    InvalidAnswer,
    Middleware,
    NotResumable,
    PreparedCall,
    Replace,
    RunResult,
    SessionBusy,
    Suspend,
    ToolCall,
    ToolExecutionEnd,
    TurnEnd,
    Usage,
)
from trio_agent.permissions import Gate, suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, check_order, say

STORES = pytest.mark.parametrize("store", [MemoryStore, lambda: FakeStore(delay=1)], ids=["quick", "slow"])
MakeStore = Callable[[], MemoryStore]
Handler = Callable[[ApprovalRequest], Awaitable[Any]]


@attrs.define(eq=False)
class Person:
    """Answers what it is told to, by call id; takes its time, and notes what it was asked."""

    answers: dict[str, Any] = attrs.field(factory=dict)
    seconds: float = 0
    asked: list[str] = attrs.field(factory=list)
    asking: int = 0
    peak: int = 0

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.asked.append(request.call_id)
        self.asking += 1
        self.peak = max(self.peak, self.asking)
        try:
            await trio.sleep(self.seconds)
            answer = self.answers.get(request.call_id, Allow())
            if isinstance(answer, BaseException):
                raise answer
            return answer
        finally:
            self.asking -= 1


def an_agent(world: World, *answers: Any, **options: Any) -> Agent:
    tools = [
        world.tool("gated", requires_approval=True),
        world.tool("free", "idempotent"),
        world.tool("last", requires_approval=True, terminal=True),
        world.tool("alone", requires_approval=True, exclusive=True),
        world.tool("laned", lane="one"),
        world.tool("gated_lane", requires_approval=True, lane="one"),
    ]
    return Agent(ScriptedModel(*answers), tools=tools, **options)


def texts(result: RunResult) -> dict[str, str]:
    """By call id: what the model reads."""
    return {each.call_id: each.text for message in result.messages for each in message.results}


THREE = calls(call("gated", id="a"), call("free", id="b"), call("gated", id="c"))


# ------------------------------------------------------------------------------------------- answering


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (Allow(), "ok", "gated done"),
        (Deny(), "denied", "a person did not allow it"),
        (Deny("too dear"), "denied", "too dear"),
        (ValueError("no terminal"), "denied", "the approval handler raised ValueError: no terminal"),
        (ExceptionGroup("g", [OSError("x"), OSError("y")]), "denied", "OSError: x; OSError: y"),
        (None, "denied", "expected Allow, Deny or Suspend from the approval handler, got NoneType"),
        (True, "denied", "expected Allow, Deny or Suspend from the approval handler, got bool"),
        (Allow, "denied", "expected Allow, Deny or Suspend from the approval handler, got type"),
    ],
)
async def test_what_the_person_says_is_done_and_all_else_denies(
    autojump_clock: MockClock, answer: Any, status: str, told: str
) -> None:
    world, person, store = World(), Person({"a": answer}), MemoryStore()
    agent = an_agent(
        world, calls(call("gated", id="a"), call("free", id="b")), say("Ah."), approval=person, store=store
    )
    with trio.fail_after(100):
        async with agent.session("s") as session:
            result = await session.prompt("go")
    assert result.stop_reason == "stop"
    assert statuses(result.messages) == {"a": status, "b": "ok"}
    assert told in texts(result)["a"]
    assert sorted(world.ids) == (["a", "b"] if status == "ok" else ["b"])
    facts = await log_of(store)
    asked = next(fact for fact in facts if isinstance(fact, ApprovalRequest))
    assert (asked.call_id, asked.index, asked.name, asked.input, asked.reason) == (
        "a",
        0,
        "gated",
        {},
        "gated requires approval",
    )
    resolved = next(fact for fact in facts if isinstance(fact, ApprovalResolved))
    assert resolved.verdict == ("allow" if status == "ok" else "deny")
    await checked_log(store)


async def test_without_a_handler_a_call_that_needs_permission_is_denied(autojump_clock: MockClock) -> None:
    world = World()
    with trio.fail_after(100):
        result = await an_agent(world, THREE, say("Ah.")).send("go")
    assert statuses(result.messages) == {"a": "denied", "b": "ok", "c": "denied"}
    assert "there is nobody to ask" in texts(result)["a"]
    assert world.ids == ["b"]
    assert result.pending == ()


async def test_people_are_asked_one_at_a_time_in_the_order_of_the_calls_and_before_anything_runs(
    autojump_clock: MockClock,
) -> None:
    world = World()

    class Watching(Person):
        async def __call__(self, request: ApprovalRequest) -> Any:
            assert world.done == []
            return await super().__call__(request)

    person = Watching({"c": Deny("no")}, seconds=5)
    wide = calls(*[call("gated", id=each) for each in "abcde"])
    with trio.fail_after(100):
        result = await an_agent(world, wide, say("Ah."), approval=person).send("go")
    assert person.asked == ["a", "b", "c", "d", "e"]
    assert person.peak == 1
    assert trio.current_time() == 25
    assert sorted(world.ids) == ["a", "b", "d", "e"]
    assert statuses(result.messages)["c"] == "denied"


async def test_an_invalid_call_is_nobodys_question(autojump_clock: MockClock) -> None:
    person = Person()
    answer = calls(call("gated", id="a", seconds="many"), call("nothing", id="b"))
    with trio.fail_after(100):
        result = await an_agent(World(), answer, say("Ah."), approval=person).send("go")
    assert person.asked == []
    assert statuses(result.messages) == {"a": "invalid", "b": "unknown_tool"}


async def test_the_gate_is_the_last_of_the_hooks_and_may_be_ones_own(autojump_clock: MockClock) -> None:
    class First(Middleware):
        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Any:
            return Block("not this one") if call.call.id == "a" else Replace({"seconds": 2})

    person, world = Person(), World()
    asked = []

    async def note(request: ApprovalRequest) -> Any:
        asked.append(request.input)
        return await person(request)

    with trio.fail_after(100):
        result = await an_agent(world, THREE, say("Ah."), middleware=[First()], approval=note).send("go")
        assert person.asked == ["c"]
        assert asked == [{"seconds": 2}]
        assert statuses(result.messages)["a"] == "denied"
        mine = an_agent(world, THREE, say("Ah."), middleware=[Gate(person)])
        await mine.send("go")
    assert person.asked == ["c", "a", "c"]


# --------------------------------------------------------------------------------------- nobody answers


@STORES
@pytest.mark.parametrize("grace", [float("inf"), 5, 0])
async def test_an_abort_ends_the_wait_for_a_person(autojump_clock: MockClock, grace: float, store: MakeStore) -> None:
    world, person, kept = World(), Person(seconds=1000), store()
    agent = an_agent(world, THREE, say("Fine."), approval=person, store=kept)
    with trio.fail_after(500):
        async with agent.session("s") as session:
            async with session.run("go") as run:
                reader = run.events()
                await trio.sleep(10)
                session.abort(grace)
                await run.wait()
                assert trio.current_time() <= 20
                events = [event async for event in reader]
            assert run.result.stop_reason == "aborted"
            assert run.result.pending == ()
            assert statuses(run.result.messages) == {
                "a": "not_run",
                "b": "ok" if grace == float("inf") else "not_run",
                "c": "not_run",
            }
            assert person.asked == ["a"]
            assert person.asking == 0
            check_order(events)
            assert (await session.prompt("and?")).text == "Fine."
    await checked_log(kept)
    assert "a" not in world.ids


@STORES
@pytest.mark.parametrize("how", ["cancel", "leave"])
async def test_a_cut_ends_the_wait_for_a_person(autojump_clock: MockClock, how: str, store: MakeStore) -> None:
    world, person, kept = World(), Person(seconds=1000), store()
    agent = an_agent(world, THREE, say("Fine."), approval=person, store=kept)
    with trio.fail_after(500):
        async with agent.session("s") as session:
            with trio.CancelScope() as scope:
                async with session.run("go") as run:
                    await trio.sleep(10)
                    if how == "cancel":
                        scope.cancel()
                        await run.wait()
            assert run.result.stop_reason == "cancelled"
            assert statuses(run.result.messages) == {"a": "not_run", "b": "not_run", "c": "not_run"}
            assert person.asking == 0
            assert (await session.prompt("and?")).text == "Fine."
    await checked_log(kept)
    assert world.done == []


async def test_one_call_that_waits_for_a_person_can_be_cancelled(autojump_clock: MockClock) -> None:
    world, person = World(), Person(seconds=20)
    with trio.fail_after(500):
        async with an_agent(world, THREE, say("Fine."), approval=person).session() as session:
            async with session.run("go") as run:
                await trio.sleep(10)
                assert session.cancel_call("c")  # not yet asked about
                await run.wait()
    assert statuses(run.result.messages) == {"a": "ok", "b": "ok", "c": "not_run"}
    assert person.asked == ["a"]


# ------------------------------------------------------------------------------------------ suspending


@STORES
async def test_a_suspended_run_runs_what_it_may_and_ends(autojump_clock: MockClock, store: MakeStore) -> None:
    world, kept = World(), store()
    agent = an_agent(world, THREE, approval=suspend, store=kept)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            async with session.run("go") as run:
                reader = run.events()
                result = await run.wait()
                events = [event async for event in reader]
            assert (result.stop_reason, result.error, result.text) == ("suspended", None, "")
            assert [request.call_id for request in result.pending] == ["a", "c"]
            assert result.raise_for_error() is result
            assert session.state.requests == result.pending
            assert session.state.stop_reason == "suspended"
            assert said(session.history()) == ["go", "assistant"]  # the results come together, later
    assert world.ids == ["b"]
    told = tale(events)
    assert told[-3:] == ["turn_end 1 suspended", "phase idle", "agent_end suspended"]
    check_order(events)
    assert not [line for line in told if line.startswith(("end a", "end c"))]
    facts = await log_of(kept)
    assert next(fact for fact in facts if isinstance(fact, TurnEnd)).reason == "suspended"
    verdicts = [fact.verdict for fact in facts if isinstance(fact, ApprovalResolved)]
    assert verdicts == ["suspend", "suspend"]
    await checked_log(kept)


@STORES
async def test_another_process_goes_on_with_the_answers(autojump_clock: MockClock, store: MakeStore) -> None:
    kept, before, after = store(), World(), World()
    used = Usage(input=7, output=1)
    first = an_agent(before, attrs.evolve(THREE, usage=used), approval=suspend, store=kept)
    second = an_agent(after, say("All told.", usage=used), store=kept)
    with trio.fail_after(100):
        async with first.session("s") as session:
            suspended = await session.prompt("go")
        async with second.session("s") as session:
            assert session.state.requests == suspended.pending
            async with session.resume_run({"c": Deny("not that"), "a": Allow()}) as run:
                events = [event async for event in run]
            history = list(session.history())
    result = run.result
    assert (result.stop_reason, result.text, result.pending) == ("stop", "All told.", ())
    assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "denied"}
    assert "not that" in texts(result)["c"]
    assert (before.ids, after.ids) == (["b"], ["a"])
    assert said(result.messages) == ["tool", "assistant"]
    assert said(history) == ["go", "assistant", "tool", "assistant"]
    assert [each.call_id for each in history[2].results] == ["a", "b", "c"]
    assert (result.usage, result.turns) == (Usage(input=14, output=2), 3)
    check_order(events)
    start = events[0]
    assert isinstance(start, AgentStart)
    assert start.messages == ()
    facts = await log_of(kept)
    assert start.resumes == facts[0].run_id != start.run_id
    assert [line for line in tale(events) if line.startswith("tool_use")] == ["tool_use a", "tool_use c"]
    assert [line for line in tale(events) if line.startswith("message_end") and line[12] in "abc"] == [
        "message_end a ok",
        "message_end b ok",
        "message_end c denied",
    ]
    assert [key for _, key in after.done] == [f"{start.run_id}.2.0"]
    await checked_log(kept)


async def test_a_volatile_session_resumes_too(autojump_clock: MockClock) -> None:
    world = World()
    with trio.fail_after(100):
        async with an_agent(world, THREE, say("Done."), approval=suspend).session() as session:
            await session.prompt("go")
            result = await session.resume({"a": Allow(), "c": Allow()})
    assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "ok"}
    assert sorted(world.ids) == ["a", "b", "c"]


async def test_of_a_run_without_a_session_the_requests_are_told(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        result = await an_agent(World(), THREE, approval=suspend).send("go")
    assert result.stop_reason == "suspended"
    assert [request.call_id for request in result.pending] == ["a", "c"]


@STORES
async def test_what_is_not_answered_stays_suspended_without_a_handler(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    kept, worlds = store(), [World(), World(), World()]
    with trio.fail_after(100):
        async with an_agent(worlds[0], THREE, approval=suspend, store=kept).session("s") as session:
            await session.prompt("go")
        async with an_agent(worlds[1], store=kept).session("s") as session:
            result = await session.resume({"a": Allow()})
            assert (result.stop_reason, [each.call_id for each in result.pending]) == ("suspended", ["c"])
            assert worlds[1].ids == ["a"]
            with pytest.raises(NotResumable, match=r"waits for answers about c"):
                await session.resume()
            with pytest.raises(NotResumable, match=r"waits for answers about c"):
                await session.resume({"a": Allow()})
        async with an_agent(worlds[2], say("Done."), store=kept).session("s") as session:
            result = await session.resume({"c": Allow()})
    assert worlds[2].ids == ["c"]
    assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "ok"}
    await checked_log(kept)


@STORES
async def test_what_is_not_answered_is_asked_again_if_somebody_can_be_asked(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    kept, world, person = store(), World(), Person({"c": Deny("no")}, seconds=3)
    with trio.fail_after(100):
        async with an_agent(World(), THREE, approval=suspend, store=kept).session("s") as session:
            await session.prompt("go")
        async with an_agent(world, say("Done."), approval=person, store=kept).session("s") as session:
            result = await session.resume({"a": Allow()})
    assert person.asked == ["c"]
    assert world.ids == ["a"]
    assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "denied"}
    await checked_log(kept)


async def test_a_run_may_be_suspended_again_and_again(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    world = World()
    with trio.fail_after(100):
        async with an_agent(world, THREE, say("Done."), approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
            for _ in range(3):
                result = await session.resume()
                assert [each.call_id for each in result.pending] == ["a", "c"]
                assert result.stop_reason == "suspended"
            assert (await session.resume({"a": Allow()})).stop_reason == "suspended"
            result = await session.resume({"c": Allow()})
    assert result.stop_reason == "stop"
    assert sorted(world.ids) == ["a", "b", "c"]
    state = await checked_log(store)
    assert said(state.transcript) == ["go", "assistant", "tool", "assistant"]


# -------------------------------------------------------------------------------------------- answers


async def test_the_same_answer_may_be_given_again_and_another_one_not(autojump_clock: MockClock) -> None:
    world, store = World(), MemoryStore()
    with trio.fail_after(100):
        async with an_agent(world, THREE, say("Done."), approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
            await session.resume({"a": Allow()})
            before = await log_of(store)
            for other in (Deny(), Deny("no"), "yes"):
                with pytest.raises(InvalidAnswer, match="call 'a' was answered before, by allow"):
                    await session.resume({"a": other, "c": Allow()})
            assert await log_of(store) == before
            result = await session.resume({"a": Allow(), "c": Deny("no")})
            assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "denied"}
            with pytest.raises(InvalidAnswer, match="by deny; got another answer"):
                await session.resume({"c": Deny("other")})
            with pytest.raises(NotResumable, match="ended by itself"):
                await session.resume({"a": Allow(), "c": Deny("no")})
    assert sorted(world.ids) == ["a", "b"]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"b": Allow()}, "nobody asked about call 'b'; waiting for an answer: 'a', 'c'"),
        ({"nobody": Allow()}, "nobody asked about call 'nobody'"),
        ({"a": Allow(), "nobody": Allow()}, "nobody asked about call 'nobody'"),
        ({"a": "yes"}, "call 'a' waits for a permission; expected Allow or Deny, got a str"),
        ({"a": True}, "call 'a' waits for a permission; expected Allow or Deny, got a bool"),
        ({"a": None}, "call 'a' waits for a permission; expected Allow or Deny, got a NoneType"),
        ({"a": Suspend()}, "call 'a' waits for a permission; expected Allow or Deny, got a Suspend"),
        ({"a": Allow}, "call 'a' waits for a permission"),
    ],
)
async def test_an_answer_that_fits_no_question_is_refused_and_nothing_happens(
    autojump_clock: MockClock, answers: dict[str, Any], told: str
) -> None:
    world, store = World(), MemoryStore()
    with trio.fail_after(100):
        async with an_agent(world, THREE, say("Done."), approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
            before = await log_of(store)
            with pytest.raises(InvalidAnswer) as caught:
                await session.resume(answers)
            assert caught.value.code == "INVALID_ANSWER"
            assert told in caught.value.message
            assert await log_of(store) == before
            assert world.ids == ["b"]
            await session.wait_for_idle()
            assert (await session.resume({"a": Allow(), "c": Allow()})).stop_reason == "stop"


async def test_answers_where_nothing_was_asked_are_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with an_agent(World(), say("Done.")).session() as session:
            await session.prompt("go")
            with pytest.raises(InvalidAnswer, match="nobody asked about call 'a'; waiting for an answer: none"):
                await session.resume({"a": Allow()})


async def test_an_answer_does_not_stand_for_another_input(autojump_clock: MockClock) -> None:
    class Price(Middleware):
        price = 1.0

        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Any:
            return Replace({"seconds": self.price}) if call.call.name == "gated" else None

    price, store, world = Price(), MemoryStore(), World()
    with trio.fail_after(100):
        options: dict[str, Any] = {"middleware": [price], "store": store}
        answer = calls(call("gated", id="a"))
        async with an_agent(world, answer, approval=suspend, **options).session("s") as session:
            suspended = await session.prompt("go")
            assert [request.input for request in suspended.pending] == [{"seconds": 1.0}]  # type: ignore[union-attr]
        price.price = 2.0
        async with an_agent(world, **options).session("s") as session:
            result = await session.resume({"a": Allow()})
            assert result.stop_reason == "suspended"
            assert world.done == []
            assert [request.input for request in result.pending] == [{"seconds": 2.0}]  # type: ignore[union-attr]
        async with an_agent(world, say("Done."), **options).session("s") as session:
            assert (await session.resume({"a": Allow()})).stop_reason == "stop"
    assert world.ids == ["a"]
    await checked_log(store)


async def test_an_answer_for_another_input_is_asked_for_anew(autojump_clock: MockClock) -> None:
    inputs = iter([1.0, 2.0])

    async def dearer(ctx: HookContext, call: PreparedCall) -> Any:
        return Replace({"seconds": next(inputs)})

    store, world, person = MemoryStore(), World(), Person({"a": Deny("too dear now")})
    with trio.fail_after(100):
        options: dict[str, Any] = {"middleware": [hooked(before_tool_call=dearer)], "store": store}
        async with an_agent(world, calls(call("gated", id="a")), approval=suspend, **options).session("s") as session:
            await session.prompt("go")
        async with an_agent(world, say("Ah."), approval=person, **options).session("s") as session:
            result = await session.resume({"a": Allow()})
    assert person.asked == ["a"]
    assert statuses(result.messages) == {"a": "denied"}
    assert world.done == []
    await checked_log(store)


# --------------------------------------------------------------------------------- instead of an answer


@STORES
async def test_a_prompt_instead_of_an_answer_settles_what_was_pending_first(
    autojump_clock: MockClock, store: MakeStore
) -> None:
    kept, world = store(), World()
    model = ScriptedModel(THREE, say("Never mind, then."))
    agent = an_agent(world, approval=suspend, store=kept).replace(model=model)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            await session.prompt("go")
            async with session.run("never mind") as run:
                events = [event async for event in run]
            assert session.state.requests == ()
            with pytest.raises(InvalidAnswer):
                await session.resume({"a": Allow()})
            history = list(session.history())
    model.verify()
    assert said(history) == ["go", "assistant", "tool", "never mind", "assistant"]
    assert statuses(history) == {"a": "not_run", "b": "ok", "c": "not_run"}
    assert said(run.result.messages) == ["never mind", "assistant"]
    assert run.result.turns == 1
    check_order(events)
    ends = {f.result.call_id: f.recovered for f in await log_of(kept) if isinstance(f, ToolExecutionEnd)}
    assert ends == {"a": True, "b": False, "c": True}
    await checked_log(kept)
    assert world.ids == ["b"]


async def test_a_resume_that_comes_too_early_is_refused(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with an_agent(World(), calls(call("gated", id="a")), say("Done."), approval=suspend).session() as session:
            await session.prompt("go")
            async with session.resume_run({"a": Allow()}) as run:
                with pytest.raises(SessionBusy):
                    await session.resume({"a": Allow()})
                await run.wait()


async def test_steers_wait_until_the_results_are_told(autojump_clock: MockClock) -> None:
    model = ScriptedModel(THREE, say("Ah."), say("Done."))
    agent = an_agent(World(), approval=suspend).replace(model=model)
    with trio.fail_after(100):
        async with agent.session() as session:
            await session.prompt("go")
            await session.steer("a word")
            await session.follow_up("a question")
            result = await session.resume({"a": Allow(), "c": Allow()})
            assert said(session.history())[2:] == [
                "tool",
                "a word",
                "assistant",
                "a question",
                "assistant",
            ]
    model.verify()
    assert result.stop_reason == "stop"


@pytest.mark.parametrize("how", ["abort", "cancel", "leave"])
async def test_answers_stand_when_the_resumed_run_is_cut_before_it_has_done_anything(
    autojump_clock: MockClock, how: str
) -> None:
    store, world = MemoryStore(), World()
    with trio.fail_after(100):
        async with an_agent(World(), THREE, approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
        async with an_agent(world, say("Done."), store=store).session("s") as session:
            with trio.CancelScope() as scope:
                async with session.resume_run({"a": Allow(), "c": Deny("no")}) as run:
                    if how == "abort":
                        session.abort(0)
                    elif how == "cancel":
                        scope.cancel()
                    if how != "leave":
                        await run.wait()
            assert run.result.stop_reason == ("aborted" if how == "abort" else "cancelled")
            assert world.done == []
            result = await session.resume()
    assert result.stop_reason == "stop"
    assert statuses((await checked_log(store)).transcript) == {"a": "ok", "b": "ok", "c": "denied"}


async def test_a_resumed_run_that_is_aborted_at_once_still_runs_what_was_allowed(autojump_clock: MockClock) -> None:
    """An abort without a limit lets the turn go on to its end, and no model is asked after it."""
    world = World()
    with trio.fail_after(100):
        async with an_agent(world, THREE, approval=suspend).session() as session:
            await session.prompt("go")
            async with session.resume_run({"a": Allow(), "c": Deny("no")}) as run:
                session.abort()
                await run.wait()
            assert run.result.stop_reason == "aborted"
            assert statuses(run.result.messages) == {"a": "ok", "b": "ok", "c": "denied"}


@pytest.mark.parametrize("grace", [float("inf"), 5, 0])
async def test_an_abort_of_a_run_whose_calls_are_suspended_already_settles_them(
    autojump_clock: MockClock, grace: float
) -> None:
    store, world = MemoryStore(), World()
    answer = calls(call("gated", id="a"), call("free", id="b", seconds=20))
    with trio.fail_after(100):
        async with an_agent(world, answer, say("Fine."), approval=suspend, store=store).session("s") as session:
            async with session.run("go") as run:
                await trio.sleep(5)
                session.abort(grace)
                await run.wait()
            assert run.result.stop_reason == "aborted"
            assert run.result.pending == ()
            told = {"a": "not_run", "b": "ok" if grace == float("inf") else "interrupted"}
            assert statuses(run.result.messages) == told
            with pytest.raises(InvalidAnswer):
                await session.resume({"a": Allow()})
            assert (await session.prompt("and?")).text == "Fine."
    await checked_log(store)


# ------------------------------------------------------------------------------------ with other options


async def test_a_hook_may_suspend_a_call(autojump_clock: MockClock) -> None:
    seen = []

    class Careful(Middleware):
        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Any:
            seen.append(f"careful {call.call.id}")
            return Suspend() if call.call.name == "free" else None

    async def behind(ctx: HookContext, call: PreparedCall) -> None:
        seen.append(f"behind {call.call.id}")

    store, world = MemoryStore(), World()
    options: dict[str, Any] = {"middleware": [Careful(), hooked(before_tool_call=behind)], "store": store}
    answer = calls(call("free", id="a"), call("laned", id="b"))
    with trio.fail_after(100):
        async with an_agent(world, answer, **options).session("s") as session:
            result = await session.prompt("go")
            (request,) = result.pending
            assert isinstance(request, ApprovalRequest)
            assert "Careful.before_tool_call" in request.reason
            assert world.ids == ["b"]
            assert seen == ["careful a", "careful b", "behind b"]
            seen.clear()
        async with an_agent(world, say("Done."), **options).session("s") as session:
            result = await session.resume({"a": Allow()})
    assert seen == ["careful a", "behind a"]
    assert statuses(result.messages) == {"a": "ok", "b": "ok"}
    await checked_log(store)


async def test_what_a_hook_has_suspended_may_be_denied(autojump_clock: MockClock) -> None:
    async def always(ctx: HookContext, call: PreparedCall) -> Suspend:
        return Suspend()

    world = World()
    agent = an_agent(world, calls(call("free", id="a")), say("Ah."), middleware=[hooked(before_tool_call=always)])
    with trio.fail_after(100):
        async with agent.session() as session:
            await session.prompt("go")
            result = await session.resume({"a": Deny("no")})
    assert statuses(result.messages) == {"a": "denied"}
    assert "no" in texts(result)["a"]
    assert world.done == []


async def test_a_terminal_call_that_was_suspended_ends_the_run_when_it_has_run(autojump_clock: MockClock) -> None:
    world = World()
    answer = calls(call("last", id="a"), call("free", id="b"))
    with trio.fail_after(100):
        async with an_agent(world, answer, approval=suspend).session() as session:
            await session.prompt("go")
            result = await session.resume({"a": Allow()})
            assert result.stop_reason == "stop"
            assert statuses(result.messages) == {"a": "ok", "b": "ok"}
            assert said(session.history()) == ["go", "assistant", "tool"]


async def test_a_terminal_call_ends_the_run_that_resumes_its_siblings(autojump_clock: MockClock) -> None:
    """It ended ok in the suspended run: no model is asked when the others have their results."""
    world = World()
    tools = [world.tool("gated", requires_approval=True), world.tool("last", terminal=True)]
    model = ScriptedModel(calls(call("last", id="a"), call("gated", id="b")))
    with trio.fail_after(100):
        async with Agent(model, tools=tools, approval=suspend).session() as session:
            assert (await session.prompt("go")).stop_reason == "suspended"
            result = await session.resume({"b": Allow()})
            assert result.stop_reason == "stop"
    assert len(model.requests) == 1


async def test_exclusive_calls_and_lanes_do_not_wait_for_what_is_suspended(autojump_clock: MockClock) -> None:
    world = World()
    answer = calls(
        call("free", id="a", seconds=1),
        call("alone", id="b", seconds=1),
        call("gated_lane", id="c", seconds=1),
        call("laned", id="d", seconds=1),
        call("laned", id="e", seconds=1),
    )
    with trio.fail_after(100):
        async with an_agent(world, answer, say("Done."), approval=suspend).session() as session:
            await session.prompt("go")
            assert world.ids == ["a", "d", "e"]
            assert trio.current_time() == 2
            result = await session.resume({"b": Allow(), "c": Allow()})
    assert world.ids[3:] == ["b", "c"]
    assert trio.current_time() == 4
    assert list(statuses(result.messages)) == ["a", "b", "c", "d", "e"]


async def test_after_approval_the_width_still_holds(autojump_clock: MockClock) -> None:
    world = World()
    wide = calls(*[call("gated", id=f"c{number}", seconds=1) for number in range(30)])
    with trio.fail_after(100):
        async with an_agent(world, wide, say("Done."), approval=suspend, max_parallel_tools=3).session() as session:
            result = await session.prompt("go")
            await session.resume({request.call_id: Allow() for request in result.pending})
    assert trio.current_time() == 10
    assert len(set(world.ids)) == 30


async def test_pending_calls_run_though_the_turns_are_used_up(autojump_clock: MockClock) -> None:
    world = World()
    with trio.fail_after(100):
        async with an_agent(world, THREE, approval=suspend, max_turns=1).session() as session:
            assert (await session.prompt("go")).stop_reason == "suspended"
            result = await session.resume({"a": Allow(), "c": Allow()})
            assert result.stop_reason == "max_turns"
            assert statuses(result.messages) == {"a": "ok", "b": "ok", "c": "ok"}
            assert session.state.run_id is None


async def test_answers_hold_also_where_nobody_would_have_asked(autojump_clock: MockClock) -> None:
    """Another agent opens the session, and its tools need no permission: what was asked is not run unanswered."""
    store, world = MemoryStore(), World()
    with trio.fail_after(100):
        async with an_agent(World(), THREE, approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
        free = Agent(ScriptedModel(say("Done.")), tools=[world.tool("gated"), world.tool("free")], store=store)
        async with free.session("s") as session:
            result = await session.resume({"a": Deny("no")})
            assert (result.stop_reason, [each.call_id for each in result.pending]) == ("suspended", ["c"])
            assert world.done == []
            result = await session.resume({"c": Allow()})
    assert world.ids == ["c"]
    assert statuses(result.messages) == {"a": "denied", "b": "ok", "c": "ok"}
    assert "no" in texts(result)["a"]
    await checked_log(store)


async def test_a_tool_that_is_gone_has_an_honest_result(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(World(), THREE, approval=suspend, store=store).session("s") as session:
            await session.prompt("go")
        bare = Agent(ScriptedModel(say("Done.")), store=store)
        async with bare.session("s") as session:
            result = await session.resume({"a": Allow(), "c": Allow()})
    assert statuses(result.messages) == {"a": "unknown_tool", "b": "ok", "c": "unknown_tool"}
    await checked_log(store)


async def test_tools_that_need_permission_cannot_come_to_a_session_without_a_gate(autojump_clock: MockClock) -> None:
    world = World()
    gated = world.tool("gated", requires_approval=True)
    with trio.fail_after(100):
        async with Agent(ScriptedModel(say("Done."))).session() as session:
            with pytest.raises(ConfigError, match="tools: gated requires approval; give the agent the option approval"):
                await session.configure(tools=[gated])
            assert session.state.tools == ()
        agent = Agent(ScriptedModel(calls(call("gated", id="a")), say("Done.")), approval=Person())
        async with agent.session() as session:
            await session.configure(tools=[gated])
            await session.prompt("go")
    assert world.ids == ["a"]


@pytest.mark.parametrize("bad", ["yes", 7, Allow()])
@pytest.mark.parametrize("option", ["approval", "input"])
def test_who_is_asked_must_be_callable(option: str, bad: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option}: expected a Callable"):
        Agent(ScriptedModel(say("Yes.")), **{option: bad})


async def test_a_context_asks_only_while_a_call_is_prepared(autojump_clock: MockClock) -> None:
    errors = []

    class Eager(Middleware):
        async def before_agent(self, ctx: HookContext) -> None:
            self.ctx = ctx

        async def after_agent(self, ctx: HookContext) -> None:
            prepared = PreparedCall(ToolCall("x", "gated", "{}"))
            try:
                await ctx.approval(prepared, Person())
            except RuntimeError as error:
                errors.append(str(error))

    with trio.fail_after(100):
        result = await an_agent(World(), say("Done."), middleware=[Eager()]).send("go")
    assert result.stop_reason == "stop"
    assert errors == ["ctx.approval belongs into before_tool_call, while its call is prepared"]
