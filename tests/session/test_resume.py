"""Going on after a crash, wherever it comes: what resume and prompt make of every prefix of a log."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, hooked, tale
from tests.session.scenes import World, checked_log, crashed, log_of, said, statuses
from trio_agent import (
    AbortRequested,
    Agent,
    AgentEnd,
    AgentResume,
    AgentStart,
    Block,
    Decoded,
    Event,
    Fact,
    Message,
    MessageEnd,
    ModelCallFailed,
    ModelRequest,
    NotResumable,
    Retry,
    RunResult,
    SessionCorrupt,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    Usage,
    tool,
)
from trio_agent._core._state import State, fold
from trio_agent.codecs import NativeCodec
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, check_order, fail, say

# ----------------------------------------------------------------------------------- a run with everything

USED: Final = Usage(input=10, output=1)
WHOLE: Final = {"a": "ok", "b": "ok", "c": "ok", "d": "ok", "e": "ok"}


class Picky(NativeCodec):
    """Cannot read ``garbage``."""

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        if message.text == "garbage":
            return Decoded(message, "MALFORMED_OUTPUT", "it is garbage")
        return Decoded(message)


def talk(request: ModelRequest, number: int) -> Answer:
    """The same conversation in each life, by what the history has already; each life begins with a failed call."""
    done = {result.call_id for message in request.messages for result in message.results}
    if number == 1:
        return attrs.evolve(fail(429), usage=Usage(input=1))
    if "a" not in done:
        return calls(
            call("once", id="a", seconds=2),
            call("idempotent", id="b", seconds=3),
            call("pure", id="c", seconds=1),
            text="To work.",
            usage=USED,
        )
    if not any(message.text.startswith("garbage") for message in request.messages):
        return say("garbage", usage=USED)
    if "d" not in done:
        return calls(call("once", id="d", seconds=1), call("idempotent", id="e", seconds=1), usage=USED)
    return say("All done.", usage=USED)


@attrs.define(eq=False)
class Life:
    """One process: it opens the session, and dies, or goes on to the end."""

    store: MemoryStore
    world: World = attrs.field(factory=World)
    options: dict[str, Any] = attrs.field(factory=dict)
    model: ScriptedModel = attrs.field(init=False, factory=lambda: ScriptedModel(talk))
    events: list[Event] = attrs.field(init=False, factory=list)
    hooks: list[str] = attrs.field(init=False, factory=list)

    def agent(self) -> Agent:
        async def before(ctx: Any) -> None:
            self.hooks.append(f"before {ctx.run_id}")

        async def after(ctx: Any) -> None:
            self.hooks.append(f"after {ctx.run_id}")

        return Agent(
            self.model,
            **{
                "tools": [
                    self.world.tool("once"),
                    self.world.tool("idempotent", "idempotent"),
                    self.world.tool("pure", "pure"),
                ],
                "codec": Picky(),
                "store": self.store,
                "middleware": [hooked(before_agent=before, after_agent=after)],
                **self.options,
            },
        )

    async def first(self, *, abort: float | None = None) -> None:
        """The run from its beginning, steered from the side, and perhaps aborted while its calls run."""
        with trio.fail_after(10_000):
            async with self.agent().session("s") as session, trio.open_nursery() as nursery:

                async def aside() -> None:
                    while not session.state.pending_tool_calls:
                        await trio.sleep(0.1)
                    await trio.sleep(0.5)
                    await session.steer("steered")
                    if abort is not None:
                        session.abort(abort)

                nursery.start_soon(aside)
                await session.prompt("go")

    async def go_on(self, verb: str, **options: Any) -> RunResult:
        """Open what is there, and resume or prompt; then there is nothing more to resume."""
        with trio.fail_after(10_000):
            async with self.agent().session("s") as session:
                run = session.resume_run() if verb == "resume" else session.run("again")
                async with run:
                    reader = run.events()
                    await run.wait()
                self.events = [event async for event in reader]
                if run.result.stop_reason == "stop":
                    assert session.state.queued == ()
                    with pytest.raises(NotResumable, match="the last run ended by itself"):
                        await session.resume()
                self.model.verify()
                return run.result


def lives(*steps: Any) -> Any:
    """Run an async function on a clock of its own."""
    return trio.run(*steps, clock=MockClock(autojump_threshold=0))


async def _first_log(abort: float | None = None, **options: Any) -> list[Fact]:
    life = Life(MemoryStore(), options=options)
    await life.first(abort=abort)
    return await log_of(life.store)


@functools.cache
def whole_log(abort: float | None = None) -> list[Fact]:
    """The log of the run that nobody disturbs (but for an abort)."""
    log: list[Fact] = lives(_first_log, abort)
    return log


def test_the_run_has_everything_in_it() -> None:
    kinds = Counter(fact.kind for fact in whole_log())
    assert kinds["turn_start"] == 3
    assert kinds["model_call_failed"] == 1
    assert kinds["message_queued"] == kinds["message_delivered"] == 2  # the steer and the repair
    assert kinds["tool_execution_start"] == kinds["tool_execution_end"] == 5
    effects = {fact.effect for fact in whole_log() if isinstance(fact, ToolExecutionStart)}
    assert effects == {"once", "idempotent", "pure"}
    assert len(whole_log()) > 25


@contextlib.contextmanager
def crashing_behind(kept: int, facts: Sequence[Fact]) -> Iterator[None]:
    """Say, with whatever fails, where the crash was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"after a crash behind fact {kept}, {tale(facts[kept - 1 : kept])}, of {len(facts)}")
        raise


def state_after(facts: Sequence[Fact]) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


# -------------------------------------------------------------------------------------- every prefix


async def _second_life(
    facts: Sequence[Fact], kept: int, verb: str, **options: Any
) -> tuple[Life, RunResult, list[Fact]]:
    life = Life(await crashed(facts, kept), options=options)
    result = await life.go_on(verb)
    log = await log_of(life.store)
    assert log[:kept] == list(facts)[:kept]
    await checked_log(life.store)
    return life, result, log


def check_effects(before: Sequence[Fact], whole: Sequence[Fact], life: Life) -> None:
    """What had started and runs once does not run again; what runs again has the key that it had."""
    started = {fact.call_id: fact for fact in before if isinstance(fact, ToolExecutionStart)}
    ended = {fact.result.call_id for fact in before if isinstance(fact, ToolExecutionEnd)}
    keys = {fact.call_id: fact.idempotency_key for fact in whole if isinstance(fact, ToolExecutionStart)}
    asked = {call.id for fact in before if isinstance(fact, MessageEnd) for call in fact.message.calls}
    assert len(set(life.world.ids)) == len(life.world.ids)
    for call_id, key in life.world.done:
        assert call_id not in ended, f"{call_id} had ended"
        if call_id in started:
            assert started[call_id].effect != "once", f"{call_id} runs a second time"
        if call_id in asked:
            assert key == keys[call_id], f"{call_id} runs under another key"


def check_messages(before: Sequence[Fact], whole: Sequence[Fact], log: Sequence[Fact]) -> None:
    """No message id is used again, not even that of a message which the dead process may have shown."""
    shown = [fact.message.id for fact in whole if isinstance(fact, MessageEnd)]
    new = [fact.message.id for fact in log[len(before) :] if isinstance(fact, MessageEnd)]
    assert not set(new) & set(shown)
    assert len(set(new)) == len(new)


def check_usage(facts: Sequence[Fact]) -> None:
    """Within a run usage never shrinks, and its end tells the sum."""
    state, before = State(), 0
    for fact in facts:
        if isinstance(fact, AgentStart) and fact.resumes is None:
            before = 0
        fold(state, fact)
        used = state.usage.input or 0
        assert used >= before
        before = used
        if isinstance(fact, AgentEnd):
            assert fact.usage == state.usage
    spent = sum(fact.usage.input or 0 for fact in facts if isinstance(fact, MessageEnd | ModelCallFailed))
    told = sum(fact.usage.input or 0 for fact in facts if isinstance(fact, AgentEnd))
    assert spent == told


def test_resume_goes_on_with_the_run_wherever_the_crash_came() -> None:
    whole = whole_log()
    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, result, log = lives(_second_life, whole, kept, "resume")
            check_resumed(whole, kept, life, result, log)


def check_resumed(whole: Sequence[Fact], kept: int, life: Life, result: RunResult, log: Sequence[Fact]) -> None:
    before, run_id = whole[:kept], whole[0].run_id
    assert (result.stop_reason, result.text) == ("stop", "All done.")
    assert said(result.messages)[0] == "go"
    assert [type(fact) for fact in log].count(AgentStart) == 1
    assert isinstance(log[kept], AgentResume)
    assert {fact.run_id for fact in log} == {run_id}
    assert life.hooks == [f"before {run_id}", f"after {run_id}"]
    assert life.events[0].kind == "agent_resume"
    check_order(life.events)
    if state_after(before).turn_open:
        first = next(fact for fact in log[kept:] if isinstance(fact, TurnStart | TurnEnd))
        assert isinstance(first, TurnEnd), "the turn that was open is not begun again"
    started = {f.call_id for f in before if isinstance(f, ToolExecutionStart) and f.effect == "once"}
    cut = started - {fact.result.call_id for fact in before if isinstance(fact, ToolExecutionEnd)}
    assert statuses(result.messages) == {**WHOLE, **dict.fromkeys(cut, "interrupted")}
    recovered = {f.result.call_id for f in log[kept:] if isinstance(f, ToolExecutionEnd) and f.recovered}
    assert recovered == cut
    check_effects(before, whole, life)
    check_messages(before, whole, log)
    check_usage(log)


def test_prompt_settles_the_run_and_begins_another_wherever_the_crash_came() -> None:
    whole = whole_log()
    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, result, log = lives(_second_life, whole, kept, "prompt")
            check_prompted(whole, kept, life, result, log)


def check_prompted(whole: Sequence[Fact], kept: int, life: Life, result: RunResult, log: Sequence[Fact]) -> None:
    before, state = whole[:kept], state_after(whole[:kept])
    assert (result.stop_reason, result.text) == ("stop", "All done.")
    ends = [fact for fact in log if isinstance(fact, AgentEnd)]
    assert [end.reason for end in ends] == ["interrupted", "stop"]
    assert ends[0].run_id == whole[0].run_id
    assert life.events[0].kind == "agent_start"
    assert {event.run_id for event in life.events} == {ends[1].run_id}
    check_order(life.events)
    waiting = ["steered"] if any(queued.origin == "steer" for queued in state.queue.values()) else []
    assert said(result.messages)[: len(waiting) + 1] == [*waiting, "again"]
    told = {fact.result.call_id: fact.result.status for fact in log if isinstance(fact, ToolExecutionEnd)}
    for asked, start, end in zip(state.calls, state.started, state.results, strict=True):
        if end is None:
            assert told[asked.id] == ("not_run" if start is None else "interrupted")
    started = {fact.call_id for fact in before if isinstance(fact, ToolExecutionStart)}
    assert not started & set(life.world.ids), "prompt runs nothing again"
    check_effects(before, whole, life)
    check_messages(before, whole, log)
    check_usage(log)


@settings(max_examples=40)
@given(st.data(), st.lists(st.sampled_from(["resume", "prompt"]), min_size=2, max_size=4))
def test_a_session_may_crash_again_and_again(data: st.DataObject, verbs: list[str]) -> None:
    facts: Sequence[Fact] = whole_log()
    kept = 1
    accepted: set[str] = set()
    for number, verb in enumerate(verbs):
        kept = data.draw(st.integers(kept, len(facts) - 1), label=f"crash {number}")
        accepted |= {f.call_id for f in facts[:kept] if isinstance(f, ToolExecutionStart) and f.effect == "once"}
        over = state_after(facts[:kept]).run_id is None
        life, result, facts = lives(_second_life, facts, kept, "prompt" if over else verb)
        assert (result.stop_reason, result.text) == ("stop", "All done.")
        assert not accepted & set(life.world.ids), "a call that runs once may have run twice"
        check_usage(facts)
        ids = [fact.message.id for fact in facts if isinstance(fact, MessageEnd)]
        assert len(set(ids)) == len(ids)


def test_what_a_slow_store_has_not_written_was_not_done_either() -> None:
    """The first life itself is cut off, so that what it really did is known."""

    async def live(after: float) -> tuple[World, list[Fact]]:
        store, world = FakeStore(delay=0.7), World()
        life = Life(store, world)
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
        return world, facts

    crashes = 0
    for tenth in range(1, 130, 2):
        world, facts = lives(live, tenth / 10)
        if not facts or isinstance(facts[-1], AgentEnd):
            continue
        crashes += 1
        life, result, _ = lives(_second_life, facts, len(facts), "resume")
        assert result.stop_reason == "stop"
        both = Counter([*world.ids, *life.world.ids])
        assert (both["a"], both["d"]) in {(1, 1), (1, 0), (0, 1)}
        assert both["a"] == both["d"] == 1
        for call_id in ("b", "e"):
            assert len({key for done, key in [*world.done, *life.world.done] if done == call_id}) == 1
    assert crashes > 20


# ----------------------------------------------------------------------------------------------- aborted


@pytest.mark.parametrize("grace", [0.0, 5.0, math.inf])
def test_a_run_that_crashed_after_an_abort_resumes_as_aborted(grace: float) -> None:
    whole = whole_log(grace)
    asked = next(number for number, fact in enumerate(whole, 1) if isinstance(fact, AbortRequested))
    assert asked < len(whole) - 3
    for kept in range(asked, len(whole)):
        with crashing_behind(kept, whole):
            life, result, log = lives(_second_life_aborted, whole, kept)
            assert result.stop_reason == "aborted"
            assert life.model.requests == []
            before = whole[:kept]
            started = {fact.call_id for fact in before if isinstance(fact, ToolExecutionStart)}
            ended = {fact.result.call_id: fact.result.status for fact in before if isinstance(fact, ToolExecutionEnd)}
            again = "ok" if grace == math.inf else "interrupted"  # the turn goes on to its end, or is cut
            assert started == {"a", "b", "c"}
            assert statuses(result.messages) == {"a": "interrupted", "b": again, "c": again} | ended
            assert set(life.world.ids) == (set() if grace < math.inf else {"b", "c"} - ended.keys())
            check_effects(before, whole, life)
            check_usage(log)


async def _second_life_aborted(facts: Sequence[Fact], kept: int) -> tuple[Life, RunResult, list[Fact]]:
    life = Life(await crashed(facts, kept))
    with trio.fail_after(1000):
        async with life.agent().session("s") as session:
            result = await session.resume()
            assert [message.text for message in session.state.queued] == ["steered"]
    await checked_log(life.store)
    return life, result, await log_of(life.store)


async def test_a_resumed_run_can_be_aborted_cancelled_and_resumed_again(autojump_clock: MockClock) -> None:
    whole = await _first_log()
    kept = 1 + next(n for n, fact in enumerate(whole) if isinstance(fact, ToolExecutionStart) and fact.call_id == "b")
    life = Life(await crashed(whole, kept))
    with trio.fail_after(1000):
        async with life.agent().session("s") as session:
            with trio.move_on_after(1) as scope:
                await session.resume()
            assert scope.cancelled_caught
            assert session.state.stop_reason == "cancelled"
            async with session.resume_run() as run:
                session.abort()
                await run.wait()
            assert run.result.stop_reason == "aborted"
            result = await session.resume()
    assert result.text == "All done."
    state = await checked_log(life.store)
    told = statuses(state.transcript)
    assert (told["a"], told["b"], told["d"], told["e"]) == ("interrupted", "interrupted", "ok", "ok")


@pytest.mark.parametrize("how", ["a gate", "no such tool", "other arguments"])
async def test_a_call_that_had_begun_and_is_refused_now_is_told_as_interrupted(
    autojump_clock: MockClock, how: str
) -> None:
    """Whether it took effect is unknown: that it was denied would be a lie."""
    whole = await _first_log()
    kept = 1 + next(n for n, line in enumerate(tale(whole)) if line == "start b")

    async def gate(ctx: Any, call: Any) -> Block | None:
        return Block("not any more") if call.call.id == "b" else None

    world = World()
    tools = [world.tool("once"), world.tool("pure", "pure")]
    if how == "a gate":
        tools.append(world.tool("idempotent", "idempotent"))
    elif how == "other arguments":
        tools.append(tool(name="idempotent", effect="idempotent")(other))
    options = {"tools": tools, "middleware": [hooked(before_tool_call=gate)] if how == "a gate" else []}
    life = Life(await crashed(whole, kept), options=options)
    result = await life.go_on("resume")
    assert statuses(result.messages)["b"] == "interrupted"
    (told,) = [each.text for message in result.messages for each in message.results if each.call_id == "b"]
    assert "It cannot run again" in told
    assert "b" not in world.ids
    await checked_log(life.store)


async def other(colour: str) -> str:
    """Take something else."""
    return colour


# ------------------------------------------------------------------------------------- limits and choices


def test_the_limits_of_a_resumed_run_are_those_that_it_began_under() -> None:
    whole = lives(functools.partial(_first_log, max_turns=2))
    for kept in range(1, len(whole)):
        with crashing_behind(kept, whole):
            life, result, _ = lives(functools.partial(_second_life, max_turns=50), whole, kept, "resume")
            assert (result.stop_reason, result.turns) == ("max_turns", 2)
            assert tale(life.events)[-1] == "agent_end max_turns"


async def test_a_tool_choice_holds_for_the_first_answer_of_a_run_also_if_another_process_gets_it(
    autojump_clock: MockClock,
) -> None:
    whole = await _first_log(tool_choice="required")
    choices = {}
    for kept in range(1, len(whole)):
        life = Life(await crashed(whole, kept))
        await life.go_on("resume")
        choices[kept] = [request.tool_choice for request in life.model.requests][:1]
    answered = next(number for number, fact in enumerate(whole, 1) if isinstance(fact, MessageEnd))
    assert all(choice == ["required"] for kept, choice in choices.items() if kept < answered)
    assert all(choice != ["required"] for kept, choice in choices.items() if kept >= answered)


# -------------------------------------------------------------------------- after a run that has an end


async def _ended(*answers: Any, stop_reason: str, **options: Any) -> RunResult:
    """The result of resuming a run that ended like that."""
    model = ScriptedModel(*answers)
    agent = Agent(model, tools=[Gauge().tool()], retry=Retry(attempts=1), **options)
    with trio.fail_after(1000):
        async with agent.session() as session:
            with trio.move_on_after(10):
                async with session.run("go") as run:
                    if stop_reason == "aborted":
                        await trio.sleep(5)
                        session.abort(0)
                    await run.wait()
            assert session.state.stop_reason == stop_reason
            async with session.resume_run(None) as again:
                events = [event async for event in again]
            start = events[0]
            assert isinstance(start, AgentStart)
            assert (start.messages, start.resumes) == ((), None)
            check_order(events)
            model.verify()
            assert session.state.messages[-1].role == "assistant"
            return again.result


@pytest.mark.parametrize(
    ("stop_reason", "answers", "options"),
    [
        ("error", [fail(401)], {}),
        ("error", [calls(call("work")), fail(500)], {}),
        ("error", [RuntimeError("broken")], {}),
        ("aborted", [calls(call("work", seconds=50))], {}),
        ("aborted", [say("", delay=50)], {}),
        ("cancelled", [calls(call("work", seconds=50))], {}),
        ("max_turns", [calls(call("work"))], {"max_turns": 1}),
    ],
)
async def test_after_a_run_that_did_not_stop_by_itself_resume_is_a_run_without_input(
    autojump_clock: MockClock, stop_reason: str, answers: list[Any], options: dict[str, Any]
) -> None:
    result = await _ended(*answers, say("There."), stop_reason=stop_reason, **options)
    assert (result.stop_reason, result.text) == ("stop", "There.")
    assert said(result.messages) == ["assistant"]
    assert result.turns == 1


@pytest.mark.parametrize(
    ("answers", "how", "reason"),
    [
        ([say("Done.")], "stop", "the last run ended by itself; prompt() goes on"),
        ([say("Half", finish="length")], "length", "the last run ended (length) and the history ends with an answer"),
        ([say("No.", finish="refusal")], "refusal", "the last run ended (refusal) and the history ends with an answer"),
        ([say("Hm.", delay=1)], "aborted", "the last run ended (aborted) and the history ends with an answer"),
    ],
)
async def test_where_a_model_has_nothing_to_answer_there_is_nothing_to_resume(
    autojump_clock: MockClock, answers: list[Any], how: str, reason: str
) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with Agent(ScriptedModel(*answers), store=store).session("s") as session:
            async with session.run("go") as run:
                if how == "aborted":
                    await trio.sleep(0.5)
                    session.abort()
                await run.wait()
            assert run.result.stop_reason == how
            before = await log_of(store)
            for _ in range(2):
                with pytest.raises(NotResumable) as caught:
                    await session.resume()
                assert caught.value.code == "NOT_RESUMABLE"
                assert reason in caught.value.message
                assert "prompt() goes on" in caught.value.message
            assert await log_of(store) == before
            assert session.state.phase == "idle"
            await session.wait_for_idle()


async def test_a_session_without_history_has_nothing_to_resume(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Agent(ScriptedModel(say("Yes."))).session() as session:
            with pytest.raises(NotResumable, match="has no history yet"):
                await session.resume()
            assert (await session.prompt("go")).text == "Yes."


async def test_a_run_that_waits_for_answers_is_not_resumed_without_any_if_nobody_can_be_asked(
    autojump_clock: MockClock,
) -> None:
    store, world = MemoryStore(), World()
    gated = world.tool("gated", requires_approval=True)
    model = ScriptedModel(calls(call("gated", id="a")), say("Fine."))
    with trio.fail_after(100):
        async with Agent(model, tools=[gated], store=store, approval=suspend).session("s") as session:
            await session.prompt("go")
        async with Agent(model, tools=[gated], store=store).session("s") as session:
            with pytest.raises(NotResumable, match=r"waits for answers about a \(may gated run\?\)"):
                await session.resume()
            assert [request.call_id for request in session.state.requests] == ["a"]
    assert world.done == []


async def test_a_repair_that_was_never_delivered_is_nothing_to_go_on_with(autojump_clock: MockClock) -> None:
    whole = await _first_log()
    kept = 1 + next(n for n, line in enumerate(tale(whole)) if line.startswith("queued repair"))
    life = Life(await crashed(whole, kept))
    with trio.fail_after(100):
        async with life.agent().session("s") as session:
            async with session.resume_run() as run:
                session.abort(0)
                await run.wait()
            assert run.result.stop_reason == "aborted"
            with pytest.raises(NotResumable, match="history ends with an answer"):
                await session.resume()
            assert (await session.prompt("again")).text == "All done."
    life.model.verify()
    await checked_log(life.store)


# ------------------------------------------------------------------------------------------- what is there


async def test_opening_leaves_what_a_crash_has_left_exactly_there(autojump_clock: MockClock) -> None:
    whole = await _first_log()
    for kept in range(1, len(whole)):
        life = Life(await crashed(whole, kept))
        async with life.agent().session("s") as session:
            then = state_after(whole[:kept])
            assert session.state.run_id == then.run_id == whole[0].run_id
            assert list(session.history()) == list(then.transcript)
            assert session.state.phase == "idle"
            assert session.state.pending_tool_calls == ()
        assert await log_of(life.store) == whole[:kept]


async def test_messages_that_come_before_a_crashed_run_is_resumed_are_delivered_in_it(
    autojump_clock: MockClock,
) -> None:
    whole = await _first_log()
    for kept in range(1, len(whole)):
        life = Life(await crashed(whole, kept))
        with trio.fail_after(1000):
            async with life.agent().session("s") as session:
                await session.steer("by the way")
                result = await session.resume()
        told = said(result.messages)
        assert told.count("by the way") == 1
        life.model.verify()
        await checked_log(life.store)


async def test_a_log_that_cannot_have_happened_is_refused(autojump_clock: MockClock) -> None:
    whole = await _first_log()
    end = next(number for number, fact in enumerate(whole) if isinstance(fact, ToolExecutionEnd))
    life = Life(await crashed([whole[0], *whole[end:]]))
    with trio.fail_after(10):
        for _ in range(2):
            with pytest.raises(SessionCorrupt, match="fact 2 of session 's'"):
                await life.agent().session("s").__aenter__()


async def test_a_run_of_the_agent_settles_what_a_session_has_left(autojump_clock: MockClock) -> None:
    whole = await _first_log()
    for kept in range(1, len(whole), 3):
        life = Life(await crashed(whole, kept))
        with trio.fail_after(1000):
            result = await life.agent().send("again", session="s")
        assert result.text == "All done."
        await checked_log(life.store)
