"""A run that is suspended and resumed, and a crash behind each of its facts.

Nothing that needs a permission runs without one, nor twice; nobody's answer is lost.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Recorder, tale
from tests.session.scenes import World, checked_log, crashed, log_of, said, statuses
from trio_agent import (
    Agent,
    Allow,
    ApprovalRequest,
    ApprovalResolved,
    Deny,
    Fact,
    InputRequest,
    InputResolved,
    ModelRequest,
    NotResumable,
    RunResult,
    Session,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent._core._state import State, fold
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, check_order, say

ANSWERS: Final[Mapping[str, Any]] = {"yes": Allow(), "no": Deny("not that"), "ask": "blue"}
IDS: Final = ("yes", "no", "ask", "once")


def talk(request: ModelRequest) -> Answer:
    """The same conversation in each life."""
    if any(message.results for message in request.messages):
        return say("All done.")
    return calls(
        call("gated", id="yes", seconds=2),
        call("gated", id="no"),
        call("ask", id="ask"),
        call("free", id="once", seconds=1),
    )


@attrs.define(eq=False)
class Life:
    """One process: it opens the session, and dies, or goes on to the end."""

    store: MemoryStore
    handler: Any = suspend
    world: World = attrs.field(factory=World)
    told: list[str] = attrs.field(factory=list)
    """The answers that the asking tool has got."""
    model: ScriptedModel = attrs.field(init=False, factory=lambda: ScriptedModel(talk))
    heard: Recorder = attrs.field(init=False, factory=Recorder)

    def agent(self) -> Agent:
        @tool(effect="idempotent")
        async def ask(ctx: ToolContext) -> str:
            """Ask for a colour."""
            self.world.done.append((ctx.call_id, ctx.idempotency_key))
            self.told.append(await ctx.ask("Which colour?"))
            await trio.sleep(1)
            return self.told[-1]

        return Agent(
            self.model,
            tools=[self.world.tool("gated", requires_approval=True), self.world.tool("free"), ask],
            approval=self.handler,
            input=self.handler,
            store=self.store,
        )

    async def first(self) -> None:
        """Suspended, resumed with one answer, suspended again, and resumed with the others."""
        async with self.agent().session("s") as session:
            await session.prompt("go")
            await session.resume({"yes": ANSWERS["yes"]})
            await session.resume({key: ANSWERS[key] for key in ("no", "ask")})

    async def answer(self) -> RunResult:
        """Resume with whatever answers are asked for, until the run is no more suspended."""
        async with self.agent().session("s") as session:
            session.subscribe(self.heard)
            return await answered(session)

    async def instead(self) -> RunResult:
        """Prompt instead."""
        async with self.agent().session("s") as session:
            session.subscribe(self.heard)
            return await session.prompt("never mind")


async def answered(session: Session) -> RunResult:
    for _ in range(6):
        asked = [request.call_id for request in session.state.requests]
        result = await session.resume({call_id: ANSWERS[call_id] for call_id in asked})
        if result.stop_reason != "suspended":
            return result
    raise AssertionError("suspended for ever")


def lives(*steps: Any) -> Any:
    return trio.run(*steps, clock=MockClock(autojump_threshold=0))


@functools.cache
def whole_log() -> list[Fact]:
    async def live() -> list[Fact]:
        life = Life(MemoryStore())
        with trio.fail_after(1000):
            await life.first()
        assert sorted(life.world.ids) == ["ask", "ask", "ask", "once", "yes"]
        await checked_log(life.store)
        return await log_of(life.store)

    log: list[Fact] = lives(live)
    return log


@contextlib.contextmanager
def crashing_behind(kept: int, facts: Sequence[Fact]) -> Iterator[None]:
    """Say, with whatever fails, where the crash was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"after a crash behind fact {kept}, {tale(facts[kept - 1 : kept])}, of {len(facts)}")
        raise


def check_gated(log: Sequence[Fact], kept: int, life: Life) -> None:
    """Each start of a gated call stands behind an Allow, and is the only one."""
    allowed: set[str] = set()
    for fact in log:
        if isinstance(fact, ApprovalResolved) and fact.verdict == "allow":
            allowed.add(fact.call_id)
        if isinstance(fact, ToolExecutionStart) and fact.name == "gated":
            assert fact.call_id in allowed
    before = {fact.call_id for fact in log[:kept] if isinstance(fact, ToolExecutionStart) and fact.effect == "once"}
    assert not before & set(life.world.ids), "a call that runs once may have run twice"
    assert "no" not in life.world.ids
    keys = {fact.call_id: fact.idempotency_key for fact in log if isinstance(fact, ToolExecutionStart)}
    assert dict(life.world.done).items() <= keys.items()


def state_after(facts: Sequence[Fact]) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


def test_the_runs_have_everything_in_them() -> None:
    log = whole_log()
    kinds = [fact.kind for fact in log]
    assert [line for line in tale(log) if line.startswith("agent_end")] == [
        "agent_end suspended",
        "agent_end suspended",
        "agent_end stop",
    ]
    assert kinds.count("approval_request") >= 2
    assert kinds.count("input_request") >= 1
    assert statuses(state_after(log).transcript) == {"yes": "ok", "no": "denied", "ask": "ok", "once": "ok"}
    assert said(state_after(log).transcript) == ["go", "assistant", "tool", "assistant"]


async def _second_life(
    facts: Sequence[Fact], kept: int, verb: str, handler: Any = suspend
) -> tuple[Life, Any, list[Fact]]:
    life = Life(await crashed(facts, kept), handler)
    with trio.fail_after(1000):
        result = await (life.answer() if verb == "answer" else life.instead())
    log = await log_of(life.store)
    assert log[:kept] == list(facts)[:kept]
    life.model.verify()
    check_order(life.heard.events, session=True)
    return life, result, log


def test_wherever_a_crash_comes_the_answers_lead_to_the_same_end() -> None:
    whole = whole_log()
    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, result, log = lives(_second_life, whole, kept, "answer")
            before = whole[:kept]
            assert (result.stop_reason, result.text) == ("stop", "All done.")
            started = {f.call_id for f in before if isinstance(f, ToolExecutionStart) and f.effect == "once"}
            ended = {fact.result.call_id for fact in before if isinstance(fact, ToolExecutionEnd)}
            expected = {"yes": "ok", "no": "denied", "ask": "ok", "once": "ok"}
            history = state_after(log).transcript
            assert statuses(history) == expected | dict.fromkeys(started - ended, "interrupted")
            assert said(history) == ["go", "assistant", "tool", "assistant"]
            assert [result.call_id for result in history[2].results] == list(IDS)
            assert set(life.told) <= {"blue"}
            check_gated(log, kept, life)
            lives(check_log, log)


async def check_log(facts: Sequence[Fact]) -> None:
    await checked_log(await crashed(facts))


def test_wherever_a_crash_comes_a_prompt_may_come_instead() -> None:
    whole = whole_log()
    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, result, log = lives(_second_life, whole, kept, "prompt")
            state = state_after(whole[:kept])
            asked = bool(state.call_ids)
            assert result.stop_reason == ("stop" if asked else "suspended")
            told = {fact.result.call_id: fact.result for fact in log if isinstance(fact, ToolExecutionEnd)}
            for pending, start, end in zip(state.calls, state.started, state.results, strict=True):
                if end is None:
                    assert told[pending.id].status == ("not_run" if start is None else "interrupted")
            if asked:
                assert life.world.done == []
            check_gated(log, kept, life)
            lives(check_log, log)


def test_wherever_a_crash_comes_nothing_runs_unanswered_where_nobody_can_be_asked() -> None:
    whole = whole_log()

    async def live(kept: int) -> tuple[Life, list[Fact]]:
        life = Life(await crashed(whole, kept), None)
        with trio.fail_after(1000):
            async with life.agent().session("s") as session:
                try:
                    await session.resume()
                except NotResumable:
                    assert await log_of(life.store) == whole[:kept]
        await checked_log(life.store, open=True)
        return life, await log_of(life.store)

    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, log = lives(live, kept)
            check_gated(log, kept, life)
            given = {f.call_id for f in whole[:kept] if isinstance(f, ApprovalResolved) and f.verdict == "allow"}
            assert set(life.world.ids) <= given | {"once", "ask"}


@settings(max_examples=40)
@given(st.data())
def test_a_suspended_session_may_crash_again_and_again(data: st.DataObject) -> None:
    facts: Sequence[Fact] = whole_log()
    kept, accepted = 1, set[str]()
    for number in range(4):
        kept = data.draw(st.integers(kept, len(facts) - 1), label=f"crash {number}")
        accepted |= {f.call_id for f in facts[:kept] if isinstance(f, ToolExecutionStart) and f.effect == "once"}
        life, result, facts = lives(_second_life, facts, kept, "answer")
        assert not accepted & set(life.world.ids)
        assert result.stop_reason == "stop"
        check_gated(facts, kept, life)
        lives(check_log, facts)


def test_whatever_a_slow_store_had_written_the_answers_lead_to_the_same_end() -> None:
    """The first life itself is cut off, so that what it really did is known."""

    async def live(after: float) -> tuple[World, list[Fact]]:
        store = FakeStore(delay=0.4)
        life = Life(store)
        facts: list[Fact] = []
        with trio.fail_after(1000), trio.CancelScope() as scope:

            async def die() -> None:
                await trio.sleep(after)
                facts.extend(store.facts)
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(die)
                await life.first()
                nursery.cancel_scope.cancel()
        return life.world, facts

    crashes = 0
    for tenth in range(1, 120, 2):
        world, facts = lives(live, tenth / 10)
        if not facts or state_after(facts).stop_reason == "stop":
            continue
        crashes += 1
        life, result, _ = lives(_second_life, facts, len(facts), "answer")
        assert result.stop_reason == "stop"
        both = [*world.ids, *life.world.ids]
        assert both.count("yes") == 1
        assert both.count("once") == 1
        assert "no" not in both
        assert len({key for call_id, key in [*world.done, *life.world.done] if call_id == "ask"}) == 1
    assert crashes > 20


@pytest.mark.parametrize("order", [("yes", "no", "ask"), ("ask", "no", "yes"), ("no", "yes", "ask")])
def test_answers_may_come_one_by_one_in_any_order(order: Sequence[str]) -> None:
    async def live() -> tuple[Life, list[str], list[Fact]]:
        life, pending = Life(MemoryStore()), []
        with trio.fail_after(1000):
            async with life.agent().session("s") as session:
                result = await session.prompt("go")
                for each in order:
                    pending.append(" ".join(request.call_id for request in result.pending))
                    result = await session.resume({each: ANSWERS[each]})
                assert result.text == "All done."
        await checked_log(life.store)
        return life, pending, await log_of(life.store)

    life, pending, log = lives(live)
    left = [[each for each in IDS if each in order[number:]] for number in range(3)]
    assert pending == [" ".join(each) for each in left]
    assert statuses(state_after(log).transcript) == {"yes": "ok", "no": "denied", "ask": "ok", "once": "ok"}
    assert life.world.ids.count("yes") == 1
    asked = [fact for fact in log if isinstance(fact, ApprovalRequest | InputRequest)]
    resolved = [fact for fact in log if isinstance(fact, ApprovalResolved | InputResolved)]
    assert len(asked) <= len(resolved)
