"""What a running tool asks a person: answered at once, or later and in another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, tale
from tests.session.scenes import checked_log, crashed, log_of, said, statuses
from trio_agent import (
    Agent,
    Allow,
    Effect,
    Fact,
    InputRequest,
    InputResolved,
    InvalidAnswer,
    NotResumable,
    RunCancelled,
    RunResult,
    Suspend,
    Tool,
    ToolContext,
    ToolExecutionStart,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, check_order, say

STORES = pytest.mark.parametrize("store", [MemoryStore, lambda: FakeStore(delay=1)], ids=["quick", "slow"])
MakeStore = Callable[[], MemoryStore]


@attrs.define(eq=False)
class Person:
    """Answers questions by what they are; takes its time."""

    answers: dict[str, Any] = attrs.field(factory=dict)
    seconds: float = 0
    asked: list[str] = attrs.field(factory=list)
    asking: int = 0
    peak: int = 0

    async def __call__(self, request: InputRequest) -> Any:
        self.asked.append(request.question)
        self.asking += 1
        self.peak = max(self.peak, self.asking)
        try:
            await trio.sleep(self.seconds)
            answer = self.answers.get(request.question, "yes")
            if isinstance(answer, BaseException):
                raise answer
            return answer
        finally:
            self.asking -= 1


@attrs.define(eq=False)
class Desk:
    """A tool that asks, and what it did: each invocation, its key, and the answers that it has got."""

    begun: list[tuple[str, str]] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)
    finished: list[str] = attrs.field(factory=list)
    raised: list[BaseException] = attrs.field(factory=list)

    def tool(self, effect: Effect = "idempotent", name: str = "ask", **options: Any) -> Tool:
        async def asks(ctx: ToolContext, questions: list[str], seconds: float = 0) -> str:
            """Ask."""
            self.begun.append((ctx.call_id, ctx.idempotency_key))
            answers = []
            for question in questions:
                await trio.sleep(seconds)
                try:
                    answers.append(await ctx.ask(question))
                except Exception as error:
                    self.raised.append(error)
                    raise
                self.told.append(answers[-1])
            self.finished.append(ctx.call_id)
            return ", ".join(answers)

        return tool(name=name, effect=effect, **options)(asks)


@tool(effect="idempotent")
async def work(seconds: float = 0) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


def an_agent(desk: Desk, *answers: Any, effect: Effect = "idempotent", **options: Any) -> Agent:
    return Agent(ScriptedModel(*answers), tools=[desk.tool(effect), work], **options)


def texts(result: RunResult) -> dict[str, str]:
    return {each.call_id: each.text for message in result.messages for each in message.results}


ONE = calls(call("ask", id="a", questions=["one?"]), call("work", id="b", seconds=2))
TWO = calls(call("ask", id="a", questions=["one?", "two?"]), call("work", id="b", seconds=2))

# ---------------------------------------------------------------------------------------------- answered


@STORES
@pytest.mark.parametrize("effect", ["once", "idempotent", "pure"])
async def test_a_question_is_answered_while_the_tool_waits(
    autojump_clock: MockClock, effect: Effect, store: MakeStore
) -> None:
    desk, kept, person = Desk(), store(), Person({"one?": "1", "two?": "2"}, seconds=5)
    with trio.fail_after(100):
        async with an_agent(desk, TWO, say("Ah."), effect=effect, input=person, store=kept).session("s") as session:
            async with session.run("go") as run:
                events = [event async for event in run]
    assert texts(run.result) == {"a": "1, 2", "b": "worked"}
    assert person.asked == ["one?", "two?"]
    check_order(events)
    facts = [fact for fact in await log_of(kept) if isinstance(fact, InputRequest | InputResolved)]
    assert facts == [
        InputRequest("a", 0, 1, "one?"),
        InputResolved("a", 0, 1, "1"),
        InputRequest("a", 0, 2, "two?"),
        InputResolved("a", 0, 2, "2"),
    ]
    await checked_log(kept)


async def test_send_can_be_asked_too(autojump_clock: MockClock) -> None:
    desk, person = Desk(), Person({"one?": "1"})
    with trio.fail_after(100):
        result = await an_agent(desk, ONE, say("Ah."), input=person).send("go")
        assert texts(result)["a"] == "1"
        alone = calls(call("ask", id="a", questions=["one?"]))
        suspended = await an_agent(desk, alone, input=suspend).send("go")
    assert suspended.stop_reason == "suspended"
    assert [request.call_id for request in suspended.pending] == ["a"]


async def test_tools_may_ask_at_the_same_time(autojump_clock: MockClock) -> None:
    desk, person = Desk(), Person(seconds=5)
    answer = calls(*[call("ask", id=each, questions=[f"{each}?"]) for each in "abc"])
    with trio.fail_after(100):
        result = await an_agent(desk, answer, say("Ah."), input=person).send("go")
    assert trio.current_time() == 5
    assert person.peak == 3
    assert set(texts(result).values()) == {"yes"}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ValueError("nobody is here"), "ValueError: nobody is here"),
        (None, "expected a str or Suspend from the input handler, got NoneType"),
        (7, "expected a str or Suspend from the input handler, got int"),
        (Suspend, "expected a str or Suspend from the input handler, got type"),
    ],
)
async def test_what_the_handler_raises_is_raised_in_the_tool(autojump_clock: MockClock, answer: Any, told: str) -> None:
    desk, store = Desk(), MemoryStore()
    agent = an_agent(desk, ONE, say("Ah."), input=Person({"one?": answer}), store=store)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            result = await session.prompt("go")
            assert session.state.requests == ()
    assert result.stop_reason == "stop"
    assert statuses(result.messages) == {"a": "error", "b": "ok"}
    assert told in texts(result)["a"]
    assert len(desk.raised) == 1
    await checked_log(store)


async def test_without_a_handler_a_question_is_an_error_of_the_call(autojump_clock: MockClock) -> None:
    desk = Desk()
    with trio.fail_after(100):
        result = await an_agent(desk, ONE, say("Ah.")).send("go")
    assert statuses(result.messages) == {"a": "error", "b": "ok"}
    assert "the agent has nobody to answer it" in texts(result)["a"]
    assert result.stop_reason == "stop"


# --------------------------------------------------------------------------------------------- aborted


@STORES
@pytest.mark.parametrize("grace", [float("inf"), 5, 0])
@pytest.mark.parametrize("alone", [False, True], ids=["beside another", "alone"])
async def test_an_abort_ends_the_wait_for_an_answer(
    autojump_clock: MockClock, grace: float, alone: bool, store: MakeStore
) -> None:
    desk, kept, person = Desk(), store(), Person(seconds=1000)
    answer = calls(call("ask", id="a", questions=["one?"])) if alone else ONE
    agent = an_agent(desk, answer, say("Fine."), input=person, store=kept)
    with trio.fail_after(500):
        async with agent.session("s") as session:
            async with session.run("go") as run:
                await trio.sleep(10)
                session.abort(grace)
                await run.wait()
            assert trio.current_time() <= 15
            assert run.result.stop_reason == "aborted"
            assert person.asking == 0
            told = statuses(run.result.messages)
            if grace:
                assert told["a"] == "error"
                assert isinstance(desk.raised[0], RunCancelled)
            else:
                assert told["a"] == "interrupted"
            assert session.state.requests == ()
            assert (await session.prompt("and?")).text == "Fine."
    await checked_log(kept)


async def test_after_an_abort_nobody_is_asked_any_more(autojump_clock: MockClock) -> None:
    desk, person = Desk(), Person()
    answer = calls(call("ask", id="a", questions=["one?"], seconds=10), call("work", id="b", seconds=20))
    with trio.fail_after(500):
        async with an_agent(desk, answer, input=person).session() as session, session.run("go") as run:
            await trio.sleep(5)
            session.abort()
            await run.wait()
    assert person.asked == []
    assert statuses(run.result.messages) == {"a": "error", "b": "ok"}


@pytest.mark.parametrize("how", ["cancel_call", "leave", "steer"])
async def test_a_cut_ends_the_wait_for_an_answer(autojump_clock: MockClock, how: str) -> None:
    desk, person, store = Desk(), Person(seconds=1000), MemoryStore()
    with trio.fail_after(500):
        async with an_agent(desk, ONE, say("Fine."), input=person, store=store).session("s") as session:
            async with session.run("go") as run:
                await trio.sleep(10)
                if how == "cancel_call":
                    assert session.cancel_call("a")
                elif how == "steer":
                    await session.steer("never mind", interrupt=True)
                if how != "leave":
                    await run.wait()
            assert statuses(run.result.messages) == {"a": "interrupted", "b": "ok"}
            assert person.asking == 0
            assert session.state.requests == ()
    await checked_log(store)


# --------------------------------------------------------------------------------------------- suspended


@STORES
@pytest.mark.parametrize("alone", [False, True], ids=["beside another", "alone"])
async def test_a_call_whose_answer_comes_later_is_cut_and_runs_again_in_another_process(
    autojump_clock: MockClock, alone: bool, store: MakeStore
) -> None:
    kept, before, after = store(), Desk(), Desk()
    answer = calls(call("ask", id="a", questions=["one?"])) if alone else ONE
    with trio.fail_after(100):
        async with an_agent(before, answer, input=suspend, store=kept).session("s") as session:
            async with session.run("go") as run:
                events = [event async for event in run]
            result = run.result
            assert (result.stop_reason, result.error) == ("suspended", None)
            assert result.pending == (InputRequest("a", 0, 1, "one?"),)
            assert said(session.history()) == ["go", "assistant"]
            check_order(events)
            assert tale(events)[-3:] == ["turn_end 1 suspended", "phase idle", "agent_end suspended"]
        assert before.finished == []
        async with an_agent(after, say("Thanks."), store=kept).session("s") as session:
            assert session.state.requests == result.pending
            async with session.resume_run({"a": "1"}) as run:
                events = [event async for event in run]
            assert said(session.history()) == ["go", "assistant", "tool", "assistant"]
    assert texts(run.result) == ({"a": "1"} if alone else {"a": "1", "b": "worked"})
    check_order(events)
    assert before.begun == after.begun  # the same call under the same key
    assert after.finished == ["a"]
    starts = [fact for fact in await log_of(kept) if isinstance(fact, ToolExecutionStart) and fact.call_id == "a"]
    assert len(starts) == 2
    assert starts[0].idempotency_key == starts[1].idempotency_key
    await checked_log(kept)


async def test_what_runs_once_cannot_wait_for_an_answer_that_comes_later(autojump_clock: MockClock) -> None:
    desk, store = Desk(), MemoryStore()
    agent = an_agent(desk, ONE, say("Ah."), effect="once", input=suspend, store=store)
    with trio.fail_after(100):
        async with agent.session("s") as session:
            result = await session.prompt("go")
            assert session.state.requests == ()
    assert result.stop_reason == "stop"
    assert statuses(result.messages) == {"a": "error", "b": "ok"}
    assert isinstance(desk.raised[0], NotResumable)
    assert "its effect is 'once'" in texts(result)["a"]
    await checked_log(store)


async def test_the_answers_that_were_given_are_given_again_in_order(autojump_clock: MockClock) -> None:
    store, desks = MemoryStore(), [Desk(), Desk(), Desk()]
    answer = calls(call("ask", id="a", questions=["one?", "two?", "three?"]))
    first = Person({"one?": "1", "two?": Suspend()})
    with trio.fail_after(100):
        async with an_agent(desks[0], answer, input=first, store=store).session("s") as session:
            await session.prompt("go")
            assert [request.question for request in session.state.requests] == ["two?"]  # type: ignore[union-attr]
        async with an_agent(desks[1], input=suspend, store=store).session("s") as session:
            result = await session.resume({"a": "2"})
            assert result.stop_reason == "suspended"
            assert [request.question for request in result.pending] == ["three?"]  # type: ignore[union-attr]
        third = Person({"three?": "3"})
        async with an_agent(desks[2], say("Thanks."), input=third, store=store).session("s") as session:
            result = await session.resume()
    assert texts(result) == {"a": "1, 2, 3"}
    assert (first.asked, third.asked) == (["one?", "two?"], ["three?"])
    assert [desk.told for desk in desks] == [["1"], ["1", "2"], ["1", "2", "3"]]
    assert len({key for desk in desks for _, key in desk.begun}) == 1
    await checked_log(store)


async def test_an_answer_is_not_given_to_another_question(autojump_clock: MockClock) -> None:
    """A tool that asks otherwise when it runs again is asked again, and not answered wrongly."""
    numbers = iter(range(10))

    @tool(effect="idempotent", name="ask")
    async def moody(ctx: ToolContext, questions: list[str]) -> str:
        """Ask something else each time."""
        return await ctx.ask(f"question {next(numbers)}?")

    store = MemoryStore()
    person = Person({"question 1?": "1"})
    answer = calls(call("ask", id="a", questions=[]))
    with trio.fail_after(100):
        agent = Agent(ScriptedModel(answer, say("Ah.")), tools=[moody], store=store, input=suspend)
        async with agent.session("s") as session:
            await session.prompt("go")
        async with agent.replace(input=person).session("s") as session:
            result = await session.resume({"a": "0"})
    assert texts(result) == {"a": "1"}
    assert person.asked == ["question 1?"]


async def test_unanswered_questions_are_asked_again_or_stay_suspended(autojump_clock: MockClock) -> None:
    store, desks = MemoryStore(), [Desk(), Desk(), Desk()]
    answer = calls(call("ask", id="a", questions=["a?"]), call("ask", id="b", questions=["b?"]))
    with trio.fail_after(100):
        async with an_agent(desks[0], answer, input=suspend, store=store).session("s") as session:
            await session.prompt("go")
            assert [request.call_id for request in session.state.requests] == ["a", "b"]
        async with an_agent(desks[1], store=store).session("s") as session:
            with pytest.raises(NotResumable, match=r"waits for answers about a \(a\?\), b \(b\?\)"):
                await session.resume()
            result = await session.resume({"b": "B"})
            assert result.stop_reason == "suspended"
            assert [call_id for call_id, _ in desks[1].begun] == ["b"], "a call that would only ask again is not run"
        person = Person({"a?": "A"})
        async with an_agent(desks[2], say("Thanks."), input=person, store=store).session("s") as session:
            result = await session.resume()
    assert person.asked == ["a?"]
    assert texts(result) == {"a": "A", "b": "B"}
    await checked_log(store)


@pytest.mark.parametrize("bad", [Allow(), 7, None, ["1"]])
async def test_an_answer_to_a_question_is_a_text(autojump_clock: MockClock, bad: Any) -> None:
    with trio.fail_after(100):
        async with an_agent(Desk(), ONE, say("Ah."), input=suspend).session() as session:
            await session.prompt("go")
            with pytest.raises(InvalidAnswer, match="call 'a' waits for the answer to a question; expected a str"):
                await session.resume({"a": bad})
            assert (await session.resume({"a": ""})).stop_reason == "stop"


async def test_the_same_text_may_be_given_again_and_another_one_not(autojump_clock: MockClock) -> None:
    answer = calls(call("ask", id="a", questions=["a?"]), call("ask", id="b", questions=["b?"]))
    with trio.fail_after(100):
        async with an_agent(Desk(), answer, say("Ah."), input=suspend).session() as session:
            await session.prompt("go")
            await session.resume({"a": "A"})
            with pytest.raises(InvalidAnswer, match="call 'a' was answered before, by a text"):
                await session.resume({"a": "other", "b": "B"})
            result = await session.resume({"a": "A", "b": "B"})
    assert texts(result) == {"a": "A", "b": "B"}


async def test_a_prompt_instead_tells_the_truth_of_a_call_that_had_begun(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(100):
        async with an_agent(Desk(), ONE, say("Fine."), input=suspend, store=store).session("s") as session:
            await session.prompt("go")
            await session.prompt("never mind")
            assert statuses(session.history()) == {"a": "interrupted", "b": "ok"}
    await checked_log(store)


async def test_a_permission_stands_when_the_call_then_asks_a_question(autojump_clock: MockClock) -> None:
    """The call was allowed before it began: nobody is asked about it again because it asks something."""
    desk, store, asked = Desk(), MemoryStore(), []

    async def once_only(request: Any) -> Allow:
        asked.append(request.call_id)
        return Allow()

    gated = desk.tool("idempotent", requires_approval=True)
    answer = calls(call("ask", id="a", questions=["one?"]))
    options: dict[str, Any] = {"tools": [gated], "store": store}
    with trio.fail_after(100):
        first = Agent(ScriptedModel(answer), approval=once_only, input=suspend, **options)
        async with first.session("s") as session:
            result = await session.prompt("go")
            assert result.pending == (InputRequest("a", 0, 1, "one?"),)
        second = Agent(ScriptedModel(say("Thanks.")), **options)
        async with second.session("s") as session:
            result = await session.resume({"a": "1"})
    assert result.stop_reason == "stop"
    assert texts(result) == {"a": "1"}
    assert asked == ["a"]
    await checked_log(store)


async def test_a_tool_that_ignores_that_it_was_cut_keeps_its_result(autojump_clock: MockClock) -> None:
    @tool(effect="idempotent", name="ask")
    async def stubborn(ctx: ToolContext, questions: list[str]) -> str:
        """Ask, and do without the answer."""
        with trio.CancelScope() as scope:
            await ctx.ask("one?")
        return "done without" if scope.cancelled_caught else "never"

    @tool(effect="idempotent", name="ask")
    async def swallowing(ctx: ToolContext, questions: list[str]) -> str:
        """Ask, and swallow the cut."""
        try:
            await ctx.ask("one?")
        except BaseException:
            return "done without"
        return "never"

    answer = calls(call("ask", id="a", questions=[]), call("ask", id="b", questions=[]))
    for made, status in ((swallowing, "ok"), (stubborn, None)):
        with trio.fail_after(100):
            result = await Agent(ScriptedModel(answer, say("Ah.")), tools=[made], input=suspend).send("go")
        if status is None:
            assert result.stop_reason == "suspended"
        else:
            assert (result.stop_reason, statuses(result.messages)) == ("stop", {"a": "ok", "b": "ok"})


# -------------------------------------------------------------------------------------------- crashes


async def _asked(store: MemoryStore, desk: Desk, person: Any, verb: str, *script: Any) -> RunResult:
    agent = an_agent(desk, *script, input=person, store=store)
    with trio.fail_after(1000):
        async with agent.session("s") as session:
            return await (session.resume() if verb == "resume" else session.prompt("go"))


def lives(*steps: Any) -> Any:
    return trio.run(*steps, clock=MockClock(autojump_threshold=0))


def whole(person: Any) -> list[Fact]:
    async def live() -> list[Fact]:
        store = MemoryStore()
        await _asked(store, Desk(), person, "prompt", TWO, say("Thanks."))
        return await log_of(store)

    log: list[Fact] = lives(live)
    return log


def test_wherever_a_crash_comes_no_question_is_asked_again_that_was_answered() -> None:
    log = whole(Person({"one?": "1", "two?": "2"}, seconds=1))

    async def again(kept: int) -> tuple[Person, Desk, RunResult]:
        person, desk = Person({"one?": "1 again", "two?": "2 again"}), Desk()
        done = any(fact.kind == "message_end" for fact in log[:kept])
        store = await crashed(log, kept)
        result = await _asked(store, desk, person, "resume", *([] if done else [TWO]), say("Thanks."))
        await checked_log(store)
        return person, desk, result

    for kept in range(1, len(log) - 3):
        person, desk, result = lives(again, kept)
        given = {fact.number: fact.answer for fact in log[:kept] if isinstance(fact, InputResolved)}
        ended = any(fact.kind == "tool_execution_end" and fact.index == 0 for fact in log[:kept])
        if not ended:
            assert person.asked == [q for number, q in ((1, "one?"), (2, "two?")) if number not in given]
            expected = [given.get(1, "1 again"), given.get(2, "2 again")]
            assert texts(result)["a"] == ", ".join(expected)
            keys = {f.idempotency_key for f in log if isinstance(f, ToolExecutionStart) and f.call_id == "a"}
            assert {key for _, key in desk.begun} == keys
        assert result.stop_reason == "stop"


# -------------------------------------------------------------------------------------------- threads


@pytest.fixture
def threads() -> Iterator[list[str]]:
    """What tools in threads have come to; each has ended when the test has."""
    ended: list[str] = []
    before = threading.active_count()
    yield ended
    assert threading.active_count() <= before + 1  # Trio keeps idle threads for ten seconds


def threaded(ended: list[str], effect: Effect = "idempotent") -> Tool:
    @tool(effect=effect, name="ask")
    def asks(ctx: ToolContext, questions: list[str]) -> str:
        """Ask from a thread."""
        try:
            answers = [trio.from_thread.run(ctx.ask, question) for question in questions]
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        ended.append("returned")
        return ", ".join(answers)

    return asks


ALONE = calls(call("ask", id="a", questions=["one?"]))
BOTH = calls(call("ask", id="a", questions=["one?"]), call("ask", id="b", questions=["one?"]))


@pytest.mark.parametrize("answer", [ALONE, BOTH], ids=["alone", "two"])
async def test_a_tool_in_a_thread_may_ask(threads: list[str], answer: Any) -> None:
    person = Person({"one?": "1"})
    with trio.fail_after(30):
        result = await Agent(ScriptedModel(answer, say("Ah.")), tools=[threaded(threads)], input=person).send("go")
    assert set(texts(result).values()) == {"1"}
    assert set(threads) == {"returned"}


@pytest.mark.parametrize("answer", [ALONE, BOTH], ids=["alone", "two"])
async def test_a_tool_in_a_thread_may_be_suspended(threads: list[str], answer: Any) -> None:
    agent = Agent(ScriptedModel(answer, say("Ah.")), tools=[threaded(threads)], input=suspend, settle_timeout=2)
    with trio.fail_after(30):
        async with agent.session() as session:
            result = await session.prompt("go")
            assert result.stop_reason == "suspended"
            asked = [request.call_id for request in result.pending]
            assert len(threads) == len(asked), "no thread is left behind"
            result = await session.resume(dict.fromkeys(asked, "1"))
    assert result.stop_reason == "stop"
    assert set(texts(result).values()) == {"1"}
    assert threads[len(asked) :] == ["returned"] * len(asked)


@pytest.mark.parametrize("grace", [float("inf"), 0])
async def test_an_abort_ends_the_wait_of_a_tool_in_a_thread(threads: list[str], grace: float) -> None:
    person = Person(seconds=1000)
    agent = Agent(ScriptedModel(ALONE), tools=[threaded(threads)], input=person, settle_timeout=2)
    with trio.fail_after(30):
        async with agent.session() as session, session.run("go") as run:
            while not person.asking:
                await trio.sleep(0.01)
            session.abort(grace)
            await run.wait()
    assert person.asking == 0
    assert run.result.stop_reason == "aborted"
    assert threads == ["RunCancelled"]


@pytest.mark.parametrize("how", ["leave", "cancel", "cancel_call"])
async def test_a_cut_ends_the_wait_of_a_tool_in_a_thread(threads: list[str], how: str) -> None:
    person = Person(seconds=1000)
    agent = Agent(ScriptedModel(ALONE, say("Ah.")), tools=[threaded(threads)], input=person, settle_timeout=2)
    with trio.fail_after(30):
        async with agent.session() as session:
            with trio.CancelScope() as scope:
                async with session.run("go") as run:
                    while not person.asking:
                        await trio.sleep(0.01)
                    if how == "cancel":
                        scope.cancel()
                    elif how == "cancel_call":
                        assert session.cancel_call("a")
                    if how != "leave":
                        await run.wait()
    assert person.asking == 0
    assert len(threads) == 1, "the thread has ended"
