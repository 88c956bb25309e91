"""A session told again from its log, and run again to see whether the same comes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.cli.children import PATIENCE, Child
from tests.cli.stores import agent, made
from tests.exploration.conversations import CONVERSATIONS
from tests.exploration.worlds import WORLDS
from trio_agent import (
    Agent,
    Allow,
    Block,
    Fact,
    Failure,
    FatalToolError,
    HookContext,
    Limits,
    Middleware,
    NativeBlock,
    PreparedCall,
    Retry,
    Run,
    SessionStore,
    ToolContext,
    Usage,
    tool,
)
from trio_agent._facts import (
    AbortRequested,
    AgentEnd,
    AgentResume,
    AgentStart,
    MessageEnd,
    Place,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    stamp,
)
from trio_agent._messages import Message, Text, ToolCall, ToolResult
from trio_agent._model import NativeChunk, ReasoningChunk, TextChunk, UsageReport
from trio_agent._written import write_fact
from trio_agent.cli.__main__ import main
from trio_agent.cli._replay_check import Checked, check_log
from trio_agent.sessions import JSONLStore, MemoryStore, SQLiteStore
from trio_agent.testing import (
    ABORT,
    CANCEL,
    Action,
    ScriptedModel,
    Trial,
    call,
    calls,
    chunks,
    cut,
    explore_cancellation,
    explore_crashes,
    fail,
    say,
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.db")


def virtually(work: Callable[[], Awaitable[Any]]) -> Any:
    """Await it on a clock that jumps, for no longer than its hour."""

    async def limited() -> Any:
        with trio.fail_after(3_600):
            return await work()

    return trio.run(limited, clock=MockClock(autojump_threshold=0))


def checked(facts: Sequence[Fact], session: str = "s") -> Checked:
    return trio.run(check_log, facts, session, clock=MockClock(autojump_threshold=0))


def log_of(session: str, store: SessionStore) -> list[Fact]:
    async def read() -> list[Fact]:
        return list(await store.read(session))

    return trio.run(read)


def stamped(facts: Sequence[Fact], run: str = "r") -> list[Fact]:
    """Facts as a log has them; those that have a stamp keep their run and their turn."""
    turn = 0
    copies: list[Fact] = []
    for seq, fact in enumerate(facts, 1):
        copy = attrs.evolve(fact)
        turn = fact.number if isinstance(fact, TurnStart) else turn
        place = getattr(fact, "place", None) or Place(run, turn)
        stamp(copy, seq, float(seq), place)
        copies.append(copy)
    return copies


# ------------------------------------------------------------------------------------------ the door


def test_a_session_that_is_run_again_comes_to_the_same(path: str, capsys: Capture) -> None:
    trio.run(made, Path(path), "ended", "failed", "waiting", "crashed")
    told = {}
    for name in ("ended", "failed", "waiting", "crashed"):
        assert main(["replay", name, "--check", "--store", path]) == 0
        told[name] = capsys.readouterr().out
    assert told == {
        "ended": "10 facts, 2 turns, 1 call: the same\n",
        "failed": "5 facts, 1 turn, 0 calls: the same\n",
        "waiting": "12 facts, 1 turn, 3 calls: the same\n",
        "crashed": "6 facts, 1 turn, 3 calls: the same\n",
    }


def test_a_check_changes_nothing_and_takes_a_folder_too(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "logs"

    async def make() -> None:
        async with JSONLStore(folder) as store, agent(ScriptedModel("Yes."), store).session("a") as session:
            await session.prompt("Go.")

    trio.run(make)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    assert main(["replay", "a", "--check", "--store", str(folder)]) == 0
    assert capsys.readouterr().out == "5 facts, 1 turn, 0 calls: the same\n"
    assert {file: file.read_bytes() for file in folder.iterdir() if file in before} == before


def test_a_difference_is_told_with_its_place_and_is_exit_code_1(path: str, capsys: Capture) -> None:
    trio.run(made, Path(path), "ended")

    async def spoil() -> None:
        async with SQLiteStore(path) as store:
            facts = list(await store.read("ended"))
            first = next(fact for fact in facts if isinstance(fact, MessageEnd))
            facts = changed(MessageEnd, message=attrs.evolve(first.message, id="another"))(facts)
            await store.append("spoiled", facts, expected_head=0)

    trio.run(spoil)
    assert main(["replay", "spoiled", "--check", "--store", path]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "10 facts, 2 turns, 1 call: NOT the same"
    assert second.startswith('  fact 3 (message_end): data.message.id: expected "another", got "')


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--check", "--json"], "--check: it tells nothing again"),
        (["--check", "--speed", "2"], "--check: it tells nothing again"),
        (["--speed", "0"], "--speed: expected a number > 0, got 0"),
        (["--store", "nowhere.db"], "there is no store at nowhere.db"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], told: str, path: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIO_AGENT_STORE", path)
    trio.run(made, Path(path), "ended")
    assert main(["replay", "ended", *words]) == 2
    assert told in capsys.readouterr().err
    assert main(["replay", "endet"]) == 2
    assert "did you mean 'ended'?" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- telling


def test_a_session_is_told_as_it_ran(path: str, capsys: Capture) -> None:
    trio.run(made, Path(path), "ended", "failed", "waiting")
    assert main(["replay", "ended", "--store", path]) == 0
    told = capsys.readouterr()
    assert told.out == "Let me see.\nThree.\n"
    lines = told.err.splitlines()
    assert lines[0] == "> What is 1 + 2?"
    assert lines[1].startswith('add {"a": 1, "b": 2}: ok in ')
    assert main(["replay", "failed", "--store", path]) == 0
    assert capsys.readouterr().err.splitlines() == ["> Go.", "error INVALID_REQUEST: no such luck"]
    assert main(["replay", "waiting", "--store", path, "--speed", "1000000"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "the run did not stop by itself: suspended"


def test_what_was_queued_is_told_where_it_was_delivered(path: str, capsys: Capture) -> None:
    async def make() -> None:
        async with SQLiteStore(path) as store, agent(ScriptedModel("One.", "Two."), store).session("a") as session:
            await session.steer("Quickly.")
            async with session.run("Go.") as run:
                await run.follow_up("And \x1b[2J then?")

    trio.run(make)  # a store with a thread wants a real clock
    assert main(["replay", "a", "--store", path]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == ["> Quickly.", "> Go.", "> And [2J then?"]


def kept(path: str, session: str, facts: Sequence[Fact]) -> None:
    async def keep() -> None:
        async with SQLiteStore(path) as store:
            await store.append(session, facts, expected_head=0)

    trio.run(keep)


def test_pauses_are_those_of_the_log_but_not_between_the_clocks_of_two_runs(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin: list[Fact] = [AgentStart((Message("user", "Go."),)), TurnStart(1)]
    kept(path, "slow", [*stamped(begin), *stamped([*begin, AgentResume()], "r2")[2:]])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(trio, "sleep", sleep)
    assert main(["replay", "slow", "--store", path, "--speed", "4"]) == 0
    assert slept == [0.25]


async def test_ctrl_c_ends_it(path: str, tmp_path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.append("slow", stamped([AgentStart((Message("user", "Go."),)), TurnStart(1)]), expected_head=0)
    with trio.fail_after(PATIENCE):
        async with Child("replay", "slow", "--store", path, "--speed", "0.0001", cwd=tmp_path) as child:
            await child.err.until("> Go.")
            child.interrupt()
            code, _, _ = await child.end()
    assert code == 130


def test_as_json_each_fact_is_a_line(path: str, capsys: Capture) -> None:
    trio.run(made, Path(path), "ended")
    assert main(["replay", "ended", "--store", path, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 11))
    assert json.loads(lines[-1])["kind"] == "agent_end"


# ------------------------------------------------------------------------- what came from outside


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return f"waited {seconds}"


@tool(effect="pure")
async def boom() -> str:
    """Fail."""
    raise ValueError("boom")


def turn(*seconds: float) -> Any:
    return calls(*(call("wait", seconds=each) for each in seconds))


async def aborted(run: Run) -> None:
    await trio.sleep(1)
    run.abort(reason="enough")


async def aborted_at_once(run: Run) -> None:
    await trio.sleep(1)
    run.abort(grace=0)


async def aborted_in_time(run: Run) -> None:
    await trio.sleep(1)
    run.abort(grace=2)


async def aborted_twice(run: Run) -> None:
    await trio.sleep(1)
    run.abort()
    await trio.sleep(0.5)
    run.abort(grace=0)


async def steered(run: Run) -> None:
    await run.steer("One.")
    await trio.sleep(1)
    await run.steer("Two.")
    await run.follow_up("Three.")


async def interrupted(run: Run) -> None:
    await trio.sleep(1)
    await run.steer("Stop that.", interrupt=True)


async def one_cancelled(run: Run) -> None:
    await trio.sleep(1)
    run.cancel_call("call_1")


async def left(run: Run) -> None:
    await trio.sleep(1)


BODIES = [aborted, aborted_at_once, aborted_in_time, aborted_twice, steered, interrupted, one_cancelled, left]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("width", [1, 2, 10])
def test_what_came_from_outside_comes_again_at_its_place(body: Any, width: int) -> None:
    store = MemoryStore()

    async def make() -> None:
        model = ScriptedModel(turn(2, 5, 2, 0.5), say("Well.", chunks=3, every=1), "Yes.", "Yes.", repeat_last=True)
        maker = Agent(model, tools=[wait], store=store, max_parallel_tools=width)
        async with maker.session("s") as session:
            async with session.run("Go.") as run:
                await body(run)
                if body is not left:
                    await run.wait()
            await session.prompt("And now?")

    virtually(make)
    facts = log_of("s", store)
    assert checked(facts) == Checked(_counts(facts))


def _counts(facts: Sequence[Fact]) -> str:
    turns = sum(isinstance(fact, TurnStart) for fact in facts)
    number = sum(len(fact.message.calls) for fact in facts if isinstance(fact, MessageEnd))
    return f"{len(facts)} facts, {turns} turn{'s' * (turns != 1)}, {number} call{'s' * (number != 1)}"


def test_a_session_that_was_suspended_answered_configured_and_rewound_is_the_same() -> None:
    store = MemoryStore()

    async def make() -> None:
        asked = calls(call("pay", amount=20, id="c1"), call("add", a=1, b=1, id="c2"), call("order", id="c3"))
        model = ScriptedModel(asked, "Paid.", "Well.", call("pay", amount=3, id="c4"), "Never mind.")
        async with agent(model, store).session("s") as session:
            await session.prompt("Pay and order.")
            await session.resume({"c1": Allow(), "c3": "soup"})
            end = await store.head("s")
            await session.configure(system="Be brief.")
            await session.prompt("Well?")
            await session.rewind(end)
            await session.prompt("Pay again.")
        async with agent(model, store).session("s") as session:
            await session.prompt("Forget it.")

    virtually(make)
    facts = log_of("s", store)
    assert {"rewind", "config_change", "approval_request", "input_resolved"} <= {fact.kind for fact in facts}
    result = checked(facts)
    assert (result.difference, result.not_led) == (None, ())


def test_what_hooks_and_the_stream_have_added_is_taken_as_it_is_and_told() -> None:
    store = MemoryStore()

    async def make() -> None:
        model = ScriptedModel(turn(1), say("Well.", chunks=3, every=1))
        async with Agent(model, tools=[wait], store=store, log_stream=True).session("s") as session:
            await session.prompt("Go.")

    virtually(make)
    facts = log_of("s", store)
    drafts = sum(fact.kind == "message_draft" for fact in facts)
    assert drafts
    assert (
        next(checked(facts).lines())
        == f"{drafts} fact{'s' * (drafts != 1)} of hooks and of the caller: taken as they are"
    )


async def aborted_while_it_fails(run: Run) -> None:
    await trio.sleep(1)
    run.abort()


def test_whatever_a_model_says_and_however_it_fails_is_said_again() -> None:
    store = MemoryStore()
    sealed = chunks(
        ReasoningChunk("Hm.", "seal"), NativeChunk(NativeBlock("v", "{}")), TextChunk("So."), UsageReport(Usage(5, 2))
    )

    async def make() -> None:
        model = ScriptedModel(
            fail(503, after=say("Half an")),
            attrs.evolve(sealed, end="finish"),
            fail("AUTHENTICATION", "no key", after=say("Half of it")),
            fail(500, after=say("Half an answer", chunks=2, every=3)),
        )
        async with Agent(model, store=store).session("s") as session:
            for _ in range(2):
                await session.prompt("Go.")
            async with session.run("Go.") as run:
                await aborted_while_it_fails(run)
                await run.wait()

    virtually(make)
    facts = log_of("s", store)
    assert [fact.reason for fact in facts if isinstance(fact, AgentEnd)] == ["stop", "error", "aborted"]
    assert checked(facts) == Checked(_counts(facts))


class Telling(Middleware):
    """Tells of each turn, asks the model something of its own, and refuses a call."""

    async def before_model(self, ctx: HookContext) -> None:
        ctx.emit("turn", {"number": ctx.turn})
        await ctx.call_model([Message("user", "Is it late?")], purpose="clock")

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
        return Block("not so long") if call.input.get("seconds") == 9 else None

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> ToolResult:
        return attrs.evolve(result, content=(*result.content, Text("(seen)")))


@tool
async def told(ctx: ToolContext) -> str:
    """Tell of it."""
    ctx.emit("half", {"done": 0.5})
    await trio.sleep(1)
    raise FatalToolError("the house is on fire")


def test_what_hooks_did_is_taken_as_it_is_and_what_tools_told_is_told_again() -> None:
    store = MemoryStore()

    async def make() -> None:
        no = "No."
        model = ScriptedModel(no, turn(1, 9), no, calls(call("wait", seconds=5), call("told"), call("wait", seconds=1)))
        maker = Agent(model, tools=[wait, told], store=store, middleware=[Telling()], max_parallel_tools=2)
        async with maker.session("s") as session:
            await session.prompt("Go.")

    virtually(make)
    facts = log_of("s", store)
    assert facts[-1] == AgentEnd("error", error=Failure("TOOL_FAILED", "the house is on fire"))
    assert list(checked(facts).lines()) == [
        "4 facts of hooks and of the caller: taken as they are",
        f"{_counts(facts)}: the same",
    ]


@tool(effect="idempotent")
async def long(seconds: float) -> str:
    """Wait, as often as need be."""
    await trio.sleep(seconds)
    return "waited"


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_went_on_after_a_crash_is_the_same_also_if_a_tool_was_gone(there: bool) -> None:
    store = MemoryStore()

    async def make() -> None:
        asked = calls(call("long", seconds=5), call("wait", seconds=5), call("long", seconds=1))
        maker = Agent(ScriptedModel(asked), tools=[long, wait], store=store, max_parallel_tools=2)
        at = 0
        async with maker.session("before") as session, session.run("Go.") as run:
            async for event in run:
                if event.kind == "tool_execution_start" and getattr(event, "call_id", "") == "call_2":
                    at = event.seq
                    break
        await store.fork("before", "s", at=at)
        tools = [long, wait] if there else [wait]
        async with Agent(ScriptedModel("Well.", "Yes."), tools=tools, store=store).session("s") as session:
            await session.resume()
            await session.prompt("And?")

    virtually(make)
    facts = log_of("s", store)
    texts = [fact.result.text for fact in facts if isinstance(fact, ToolExecutionEnd)]
    assert any("It cannot run again" in text for text in texts) is not there
    assert checked(facts) == Checked(_counts(facts))


# ---------------------------------------------------------------------------- any log of this kernel

ANSWERS = st.lists(
    st.one_of(
        st.builds(say, st.text(max_size=5)),
        st.lists(st.sampled_from([0.5, 1, 2, 3]), min_size=1, max_size=5).map(lambda seconds: turn(*seconds)),
        st.builds(lambda: calls(call("boom"), call("nope"), call("wait", raw="{"))),
        st.builds(lambda: fail(503)),
        st.builds(lambda: fail(400)),
        st.builds(lambda text: cut(say(text)), st.text(max_size=3)),
        st.builds(lambda text: say(text, finish="length"), st.text(max_size=3)),
    ),
    max_size=5,
)


@given(ANSWERS, st.sampled_from([1, 2, 10]), st.booleans())
def test_any_session_that_nobody_cuts_is_the_same(answers: list[Any], width: int, durable: bool) -> None:
    store = MemoryStore()

    async def make() -> None:
        model = ScriptedModel(*answers, say("Done."), repeat_last=True)
        maker = Agent(model, tools=[wait, boom], store=store, max_parallel_tools=width, retry=Retry(attempts=2))
        async with maker.session("s") as session:
            await session.prompt("One.")
            await session.prompt("Two.")

    virtually(make)
    facts = log_of("s", store)
    result = checked(facts)
    assert (result.difference, result.not_led) == (None, ())
    half = len(facts) // 2
    assert checked(facts[:half]).difference is None  # a crash has cut it there


def logs(world: str, action: Action, limit: int) -> list[tuple[Fact, ...]]:
    make: Any = {**WORLDS, **CONVERSATIONS}[world]
    found: dict[tuple[str, ...], tuple[Fact, ...]] = {}

    def collect(trial: Trial[Any]) -> None:
        log = tuple(trial.world.log)
        if log and not trial.world.store_failed:
            found.setdefault(tuple(f"{fact.kind} {fact!r}" for fact in log), log)

    explore_cancellation(make, type(make()).play, laws=[collect], action=action, limit=limit, shrink=False)
    return list(found.values())


@pytest.mark.parametrize("action", [CANCEL, ABORT(0), ABORT(1.5), ABORT(math.inf)], ids=str)
@pytest.mark.parametrize(
    "world",
    ["volatile", "durable", "meddled with", "durable, typed, in JSON", "asked, durable", "suspended, in SQLite"],
)
def test_wherever_a_run_was_cut_its_log_is_the_same_or_it_is_told_that_it_could_not_be_led(
    world: str, action: Action
) -> None:
    results = [checked(log, "explored") for log in logs(world, action, 20)]
    assert [result.difference for result in results] == [None] * len(results)
    led = sum(not result.not_led for result in results)
    assert led >= 0.7 * len(results)  # a cut between a start and its effect may come at a moment that no log tells


@pytest.mark.parametrize("world", ["durable", "talked, durable", "suspended, durable"])
def test_wherever_a_crash_came_the_log_is_the_same(world: str) -> None:
    make: Any = {**WORLDS, **CONVERSATIONS}[world]
    found: list[tuple[Fact, ...]] = []
    explore_crashes(make, laws=[lambda trial: found.append(tuple(trial.world.log))], limit=15)
    results = [checked(log, "explored") for log in found if log]
    assert len(results) > 5
    assert [(result.difference, result.not_led) for result in results] == [(None, ())] * len(results)


def test_every_beginning_of_a_log_is_the_log_of_a_crash() -> None:
    (log,) = {len(log): log for log in logs("suspended, volatile", ABORT(math.inf), 2)[:1]}.values()
    for length in range(1, len(log) + 1):
        assert checked(log[:length], "explored").difference is None, length


# --------------------------------------------------------------------- what is not what it was


def a_log() -> list[Fact]:
    """Two turns with two calls, one behind the other, and their answer."""
    store = MemoryStore()

    async def make() -> None:
        maker = Agent(ScriptedModel(turn(1, 1), "Yes."), tools=[wait], store=store, max_parallel_tools=1)
        async with maker.session("s") as session:
            await session.prompt("Go.")

    virtually(make)
    return log_of("s", store)


def changed(kind: type, **fields: Any) -> Callable[[list[Fact]], list[Fact]]:
    def change(facts: list[Fact]) -> list[Fact]:
        place = next(n for n, fact in enumerate(facts) if type(fact) is kind)
        new = attrs.evolve(facts[place], **fields)
        stamp(new, facts[place].seq, facts[place].time, facts[place].place)
        return [*facts[:place], new, *facts[place + 1 :]]

    return change


def without(kind: type) -> Callable[[list[Fact]], list[Fact]]:
    def change(facts: list[Fact]) -> list[Fact]:
        place = next(n for n, fact in enumerate(facts) if type(fact) is kind)
        return stamped([*facts[:place], *facts[place + 1 :]])

    return change


def swapped(facts: list[Fact]) -> list[Fact]:
    """The second call starts before the first has ended, which is no difference: so do calls in parallel."""
    places = [n for n, fact in enumerate(facts) if isinstance(fact, ToolExecutionStart | ToolExecutionEnd)]
    facts = list(facts)
    facts[places[1]], facts[places[2]] = facts[places[2]], facts[places[1]]
    return stamped(facts)


def test_the_log_that_is_spoiled_below_is_the_same_when_it_is_not() -> None:
    assert checked(a_log()).difference is None
    assert checked(swapped(a_log())).difference is None


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (changed(AgentEnd, usage=Usage(1, 1)), "fact 12 (agent_end): what is decided there is Finish"),
        (changed(AgentEnd, reason="max_turns"), "fact 12 (agent_end): what is decided there is Finish"),
        (changed(TurnEnd, reason="stop"), "fact 8 (turn_end): what is decided there is Settle(reason='tool_use'"),
        (changed(TurnStart, number=7), "fact 2 (turn_start): what is decided there is CallModel"),
        (changed(ToolExecutionStart, idempotency_key="r.9.9"), "fact 4 (tool_execution_start): what is decided"),
        (changed(ToolExecutionStart, name="rm"), 'fact 4 (tool_execution_start): data.name: expected "rm", got "wait"'),
        (
            changed(AgentStart, limits=Limits(max_turns=1)),
            'fact 9 (turn_start): kind: expected "turn_start", got "agent_end"',
        ),
        (without(TurnEnd), "fact 8 (turn_start): what is decided there is Settle"),
        (without(TurnStart), "fact 2 (message_end): what is decided there is CallModel"),
        (without(AgentEnd), None),  # a crash may have come before it
    ],
)
def test_what_the_kernel_would_not_have_written_is_told(spoil: Any, told: str | None) -> None:
    difference = checked(spoil(a_log())).difference
    assert difference is None if told is None else (difference or "").startswith(told), difference


def test_a_run_that_would_have_gone_on_is_told() -> None:
    """Its end follows from nothing but an abort that is not there."""
    facts = a_log()
    end = next(n for n, fact in enumerate(facts) if isinstance(fact, TurnEnd))
    told = checked(stamped([*facts[: end + 1], AgentEnd("stop")])).difference
    assert told == "fact 9 (agent_end): what is decided there is CallModel()"


def test_a_run_that_this_kernel_would_not_begin_is_told() -> None:
    """It goes on with nothing, after a run that had ended by itself."""
    facts = stamped([*a_log(), AgentStart(()), TurnStart(3)], "r2")
    told = checked(facts).difference
    assert told == "fact 13 (agent_start): the run cannot begin: the last run ended by itself; prompt() goes on"


def test_what_differs_before_a_run_was_cut_is_a_difference() -> None:
    facts = stamped([*a_log()[:-2], AbortRequested(0.0), TurnEnd(2, "stop"), AgentEnd("aborted")])
    assert checked(facts).difference is None
    spoiled = changed(ToolExecutionStart, name="rm")(facts)
    assert checked(spoiled).difference == 'fact 4 (tool_execution_start): data.name: expected "rm", got "wait"'


@pytest.mark.parametrize("body", [interrupted, one_cancelled], ids=lambda body: body.__name__)
def test_what_differs_in_a_turn_after_one_that_was_cut_is_a_difference(body: Any) -> None:
    store = MemoryStore()

    async def make() -> None:
        maker = Agent(ScriptedModel(turn(5), turn(1), turn(1), "Done."), tools=[wait], store=store)
        async with maker.session("s") as session, session.run("Go.") as run:
            await body(run)
            await run.wait()

    virtually(make)
    facts = log_of("s", store)
    assert checked(facts) == Checked(_counts(facts))
    last = max(n for n, fact in enumerate(facts) if isinstance(fact, ToolExecutionStart))
    spoiled = [*facts[:last], *changed(ToolExecutionStart, name="rm")(facts[last:])]
    told = f'fact {last + 1} (tool_execution_start): data.name: expected "rm", got "wait"'
    assert checked(spoiled) == Checked(_counts(facts), told)


def test_what_differs_in_the_turn_that_a_crash_has_cut_is_a_difference() -> None:
    facts = a_log()[:6]
    assert checked(facts).difference is None
    spoiled = changed(ToolExecutionStart, name="rm")(facts)
    assert checked(spoiled).difference == 'fact 4 (tool_execution_start): data.name: expected "rm", got "wait"'


def test_a_run_that_cannot_be_led_along_its_log_is_told_and_is_no_difference(path: str, capsys: Capture) -> None:
    """One of two calls that had started at once was cut before its start was durable, and the other one ran."""
    one, two = ToolCall("c1", "wait", '{"seconds":1}'), ToolCall("c2", "wait", '{"seconds":1}')
    facts = stamped(
        [
            AgentStart((Message("user", "Go."),)),
            TurnStart(1),
            MessageEnd(Message("assistant", (one, two), "tool_use", id="r.1.1")),
            ToolExecutionStart("c1", 0, "wait", "once", "r.1.0"),
            ToolExecutionStart("c2", 1, "wait", "once", "r.1.1"),
            AbortRequested(1.5),
            ToolExecutionEnd(ToolResult.of("c1", "not_run"), 0, 0.1),
            ToolExecutionEnd(ToolResult("c2", (Text("waited"),)), 1, 0.7),
            TurnEnd(1, "aborted"),
            AgentEnd("aborted"),
        ]
    )

    kept(path, "odd", facts)
    assert main(["replay", "odd", "--check", "--store", path]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("facts 2 to 10: each follows from those before it, but the turn was cut at a moment")
    assert last == "10 facts, 1 turn, 2 calls: the same, as far as they could be run again"


def test_the_log_is_compared_as_it_is_written() -> None:
    """A guard of the tests above: what they spoil is what a store keeps."""
    assert write_fact(a_log()[0]) != write_fact(changed(AgentStart, limits=Limits(max_turns=1))(a_log())[0])
