"""Kind K: what is kept, whoever writes beside it, and wherever its process ends."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.disks import SESSION, Disk, Slow, texts
from tests.scenarios.going_on import pairs, roles
from tests.scenarios.processes import other
from tests.scenarios.reopening import go_on
from tests.scenarios.stage import HANG, Bench
from trio_agent import (
    Agent,
    AgentEnd,
    AgentResume,
    AgentStart,
    Event,
    Fact,
    Message,
    ModelRequest,
    Run,
    SessionBusy,
    SessionClosed,
    SessionConflict,
    StoreFailed,
    Tool,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import Answer, ScriptedModel, call, calls, check_history, check_order, say

needs_processes = pytest.mark.skipif(sys.platform == "win32", reason="its programs have other pipes")


def runs(facts: Sequence[Fact]) -> list[str]:
    """The ids of the runs, in order; a run that comes again after another is there twice."""
    ids = [fact.run_id for fact in facts if fact.run_id]
    return [run_id for number, run_id in enumerate(ids) if number == 0 or ids[number - 1] != run_id]


def statuses(facts: Sequence[Fact]) -> dict[str, str]:
    ends = [fact.result for fact in facts if isinstance(fact, ToolExecutionEnd)]
    assert len({end.call_id for end in ends}) == len(ends), "a call has two ends"
    return {end.call_id: end.status for end in ends}


# ------------------------------------------------------------------------------------------ B67


def two_calls(bench: Bench) -> Agent:
    """The first call takes two seconds."""
    model = ScriptedModel(call(bench.ok, seconds=2, id="1"), call(bench.ok, id="2"), "done")
    return Agent(model, tools=[bench.ok])


DOORS = ["prompt", "run", "resume", "another session", "a run of the agent"]


@pytest.mark.parametrize("door", DOORS)
async def test_while_a_session_has_a_run_a_second_one_is_refused_at_once_and_leaves_no_trace(
    autojump_clock: MockClock, disk: Disk, door: str
) -> None:
    """B67: two runs on one session at once, in the same process."""
    bench = Bench()

    async def enter(agent: Agent) -> None:
        match door:
            case "prompt":
                await session.prompt("me too")
            case "run":
                async with session.run("me too"):
                    raise AssertionError("it was let in")
            case "resume":
                await session.resume()
            case "another session":
                async with agent.session(SESSION):
                    raise AssertionError("it was let in")
            case _:
                await agent.send("me too", session=SESSION)

    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = two_calls(bench).replace(store=store)
            async with agent.session(SESSION) as session, session.run("go") as run:
                await trio.sleep(1)
                before = trio.current_time()
                with pytest.raises(SessionBusy, match=r"session 's' (has a run under way|is open in this process)"):
                    await enter(agent)
                assert trio.current_time() == before
                await run.wait()
    assert (run.result.stop_reason, run.result.text) == ("stop", "done")
    assert [message.text for message in run.result.messages if message.role == "user"] == ["go"]
    log = await disk.log()
    assert len(runs(log)) == 1
    assert statuses(log) == {"1": "ok", "2": "ok"}
    assert len([fact for fact in log if isinstance(fact, AgentStart)]) == 1


async def test_by_option_runs_wait_for_their_turn_and_their_messages_do_not_mix(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B67: or queued by option."""
    bench = Bench()
    model = ScriptedModel(*(turn for n in range(3) for turn in (call(bench.ok, seconds=1, id=f"{n}"), f"answer {n}")))
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(model, tools=[bench.ok], store=store)
            async with agent.session(SESSION, on_busy="queue") as session, trio.open_nursery() as nursery:
                for n in range(3):
                    nursery.start_soon(session.prompt, f"prompt {n}")
                    await trio.sleep(0.1)
    model.assert_exhausted()
    log = await disk.log()
    assert len(runs(log)) == 3
    request = await go_on(disk, "prompted elsewhere")
    assert [m.text for m in request.messages if m.role != "tool" and m.text] == [
        *(text for n in range(3) for text in (f"prompt {n}", f"answer {n}")),
        "and now?",
    ]
    assert pairs(request.messages) == {"0": "ok", "1": "ok", "2": "ok"}


async def test_a_writer_that_has_not_seen_what_another_wrote_is_refused_at_its_first_commit(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B67: storage rejects a stale writer.  Two stores on one disk are what two processes have."""
    first, second = Bench(), Bench()
    with trio.fail_after(HANG):
        async with disk.store() as one, disk.store() as two:
            agents = [two_calls(first).replace(store=one), two_calls(second).replace(store=two)]
            async with agents[0].session(SESSION) as owner, agents[1].session(SESSION) as late:
                async with owner.run("go") as run:
                    await trio.sleep(1)
                    refused = await late.prompt("me too")
                    assert refused.stop_reason == "error"
                    assert isinstance(refused.error, SessionConflict)
                    assert refused.error.code == "SESSION_CONFLICT"
                    assert "expected the head 0" in str(refused.error)
                    with pytest.raises(SessionClosed, match="expected the head 0"):
                        await late.prompt("again")
                    await run.wait()
    assert (run.result.stop_reason, first.finished, second.begun) == ("stop", ["1", "2"], [])
    log = await disk.log()
    assert len(runs(log)) == 1
    assert statuses(log) == {"1": "ok", "2": "ok"}
    request = await go_on(disk, "prompted elsewhere")
    assert roles(request.messages) == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]


async def test_who_was_overtaken_in_the_middle_of_a_run_does_nothing_more(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B67: the other took it for dead, and has settled its run."""
    first, second = Bench(), Bench()
    with trio.fail_after(HANG):
        async with disk.store() as one, disk.store() as two:
            async with two_calls(first).replace(store=one).session(SESSION) as overtaken:
                async with overtaken.run("go") as run:
                    await trio.sleep(1)
                    model = ScriptedModel(call(second.ok, id="3"), "mine")
                    async with Agent(model, tools=[second.ok], store=two).session(SESSION) as session:
                        result = await session.prompt("me now")
                    await run.wait()
    assert (result.stop_reason, result.text) == ("stop", "mine")
    assert isinstance(run.result.error, SessionConflict)
    assert (first.begun, second.finished) == (["1"], ["3"])
    log = await disk.log()
    assert len(runs(log)) == 2
    assert statuses(log) == {"1": "interrupted", "3": "ok"}


def of_file(path: Path) -> list[Fact]:
    """The log in a file that programs have shared, seen to be whole and in order."""

    async def read() -> list[Fact]:
        async with SQLiteStore(path, durability="process") as store:
            await store.check()
            return list(await store.read(SESSION))

    facts = trio.run(read)
    check_order(facts, facts_only=True, session=True)
    return facts


def history_of(path: Path) -> list[Message]:
    """What a model is told when the session in the file goes on."""
    model = ScriptedModel("Going on.")

    async def prompt() -> None:
        async with (
            SQLiteStore(path, durability="process") as store,
            Agent(model, store=store).session(SESSION) as session,
        ):
            await session.prompt("and now?")

    trio.run(prompt)
    model.verify()
    check_history(model.requests[0].messages)
    return list(model.requests[0].messages)


@needs_processes
def test_of_two_processes_that_open_a_session_the_second_to_write_is_refused(tmp_path: Path) -> None:
    """B67: two processes; both have the session open when the first begins."""
    path = tmp_path / "s.db"
    with other(path, "held") as first, other(path, "held") as second:
        first.tell("prompt", "go")
        first.hear("ran")
        second.tell("prompt", "me too")
        reason, code, _ = second.hear("result")
        assert (reason, code) == ("error", "SESSION_CONFLICT")
        second.tell("prompt", "again")
        assert second.hear("refused")[0] == "SESSION_CLOSED"
        first.tell("go")
        assert first.hear("result") == ["stop", None, "done"]
        assert (first.ran, second.ran) == (["1", "2"], [])
    log = of_file(path)
    assert len(runs(log)) == 1
    assert statuses(log) == {"1": "ok", "2": "ok"}
    assert roles(history_of(path)) == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]


@needs_processes
def test_of_two_processes_the_one_that_is_overtaken_does_nothing_more(tmp_path: Path) -> None:
    """B67: two processes; the second opens the session in the middle of the first one's run."""
    path = tmp_path / "s.db"
    with other(path, "held") as first:
        first.tell("prompt", "go")
        first.hear("ran")
        with other(path, "held") as second:
            second.tell("prompt", "me now")
            assert second.hear("result") == ["stop", None, "done"]
            first.tell("go")
            reason, code, _ = first.hear("result")
            assert (reason, code) == ("error", "SESSION_CONFLICT")
            assert (first.ran, second.ran) == (["1"], ["2"])
    log = of_file(path)
    assert len(runs(log)) == 2
    assert statuses(log) == {"1": "interrupted", "2": "ok"}
    assert pairs(history_of(path)) == {"1": "interrupted", "2": "ok"}


# ------------------------------------------------------------------------------------------ B69


@attrs.define(eq=False)
class Deeds:
    """What tools have done to the world, in all lives of a session."""

    done: list[tuple[str, str]] = attrs.field(factory=list)
    """Call id and idempotency key of each invocation."""

    @property
    def ids(self) -> list[str]:
        return [call_id for call_id, _ in self.done]

    def tools(self) -> list[Tool]:
        async def do(context: ToolContext, seconds: float = 0) -> str:
            self.done.append((context.call_id, context.idempotency_key))
            await trio.sleep(seconds)
            return f"done {context.call_id}"

        return [tool(name="pay")(do), tool(name="note", effect="idempotent")(do), tool(name="look", effect="pure")(do)]


EFFECTS = {"pay": "once", "note": "idempotent", "look": "pure"}


def talk(request: ModelRequest) -> Answer:
    """Two batches with a call of each effect, then two single calls; from wherever the history has come to."""
    done = {result.call_id for message in request.messages for result in message.results}
    for turn in (1, 2):
        if f"pay {turn}" not in done:
            return calls(*(call(name, seconds=seconds, id=f"{name} {turn}") for seconds, name in enumerate(EFFECTS)))
    for name in ("pay", "note"):
        if f"{name} 3" not in done:
            return call(name, seconds=1, id=f"{name} 3")
    return say("done")


async def test_wherever_a_crash_comes_only_calls_that_are_declared_safe_run_again_and_under_their_key(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B69: crash after each append; what is logged is never run again, and what had started only if it is safe."""
    met: set[tuple[str, str]] = set()
    with trio.fail_after(HANG):
        first = Deeds()
        async with disk.store() as store:
            async with Agent(ScriptedModel(talk), tools=first.tools(), store=store).session(SESSION) as session:
                await session.prompt("go")
        facts = await disk.log()
        keys = dict(first.done)
        for length in range(1, len(facts)):
            left, id, deeds = facts[:length], f"crashed {length}", Deeds()
            await disk.crashed(left, id)
            async with disk.store() as store:
                async with Agent(ScriptedModel(talk), tools=deeds.tools(), store=store).session(id) as session:
                    result = await session.resume()
            assert (result.stop_reason, result.text) == ("stop", "done")
            log = await disk.log(id)
            assert texts(log[:length]) == texts(left)
            assert len(runs(log)) == 1
            assert [type(fact) for fact in log[length : length + 1]] == [AgentResume]
            started = {fact.call_id for fact in left if isinstance(fact, ToolExecutionStart)}
            ended = statuses(left)
            told = statuses(log)
            assert max(Counter(deeds.ids).values(), default=0) <= 1
            for call_id, key in keys.items():
                effect = EFFECTS[call_id.partition(" ")[0]]
                again = call_id not in ended and (call_id not in started or effect != "once")
                assert (call_id in deeds.ids) == again, call_id
                assert told[call_id] == ("ok" if again or call_id in ended else "interrupted")
                assert not again or dict(deeds.done)[call_id] == key
                if call_id in started and call_id not in ended:
                    met.add((effect, told[call_id]))
    assert met == {("once", "interrupted"), ("idempotent", "ok"), ("pure", "ok")}


@attrs.frozen
class Death:
    """Where a program dies, and what becomes of its session."""

    play: str
    at: str
    before: Sequence[str]
    """What it has done until then."""
    resumed: dict[str, str]
    """The statuses of all calls after a resume."""
    again: Sequence[str]
    """What a resume does, in order."""
    prompted: dict[str, str]
    """The statuses after a prompt; it runs nothing again."""


DEATHS: dict[str, Death] = {
    "after the effect and before the result": Death(
        "two turns", "effect:1", ["1"], {"1": "interrupted", "2": "ok"}, ["2"], {"1": "interrupted", "2": "ok"}
    ),
    "after the result and before the next call": Death(
        "two turns", "behind:1", ["1"], {"1": "ok", "2": "ok"}, ["2"], {"1": "ok", "2": "ok"}
    ),
    "in a batch with one done": Death(
        "a batch",
        "end:1",
        ["1", "2"],
        {"1": "ok", "2": "interrupted", "3": "ok"},
        ["3"],
        {"1": "ok", "2": "interrupted", "3": "ok"},
    ),
    "after the effect of a safe call": Death(
        "two safe turns", "effect:1", ["1"], {"1": "ok", "2": "ok"}, ["1", "2"], {"1": "interrupted", "2": "ok"}
    ),
    "in a batch with one done and a safe one under way": Death(
        "a safe batch",
        "end:1",
        ["1", "2"],
        {"1": "ok", "2": "ok", "3": "ok"},
        ["2", "3"],
        {"1": "ok", "2": "interrupted", "3": "ok"},
    ),
}


@needs_processes
@pytest.mark.parametrize("verb", ["resume", "prompt"])
@pytest.mark.parametrize("where", DEATHS)
def test_a_process_that_takes_over_from_a_dead_one_repeats_nothing_that_may_not_be_repeated(
    tmp_path: Path, where: str, verb: str
) -> None:
    """B69: a process that exits hard at each of these places, and another that goes on."""
    path, death = tmp_path / "s.db", DEATHS[where]
    with other(path, death.play, death.at) as first:
        first.tell("prompt", "go")
        if "batch" in death.play:
            first.hear("ran")
            first.hear("ran")
            first.tell("go")
        first.dies()
        assert sorted(first.ran) == sorted(death.before)
    with other(path, death.play) as second:
        second.tell(verb, {} if verb == "resume" else "and now?")
        assert second.hear("result") == ["stop", None, "done"]
        assert second.ran == [each for each in death.again if verb == "resume" or each not in death.before]
        for call_id in set(first.ran) & set(second.ran):
            assert second.keys[call_id] == first.keys[call_id]
        second.tell("resume", {})
        assert second.hear("refused")[0] == "NOT_RESUMABLE"
    log = of_file(path)
    assert statuses(log) == (death.resumed if verb == "resume" else death.prompted)
    assert len(runs(log)) == (1 if verb == "resume" else 2)
    assert pairs(history_of(path)) == statuses(log)


# ------------------------------------------------------------------------------------------ B70


LEAVINGS = ["leave", "cancel", "raise"]


class Oops(Exception):
    """What the body of a block raises."""


async def leaves_at_done(run: Run, disk: Disk, leaving: str) -> None:
    """Read until the last event, see that it is durable, and go."""
    with trio.CancelScope() as scope:
        async with run:
            async for event in run:
                if isinstance(event, AgentEnd):
                    break
            written = await disk.facts()
            assert texts(written[-1:]) == texts([event])
            if leaving == "cancel":
                scope.cancel()
                await trio.lowlevel.checkpoint()
            elif leaving == "raise":
                raise Oops


@pytest.mark.parametrize("leaving", LEAVINGS)
@pytest.mark.parametrize("door", ["a session", "a run of the agent"])
async def test_when_the_end_is_shown_it_is_durable_and_the_last_turn_is_there(
    autojump_clock: MockClock, disk: Disk, door: str, leaving: str
) -> None:
    """B70: slow store (5 s per append), consumer exits as soon as it sees done; also cancel at that moment."""
    bench = Bench()
    model = ScriptedModel(call(bench.ok, id="1"), "the last turn")
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(model, tools=[bench.ok], store=Slow(store, 5))
            try:
                if door == "a session":
                    async with agent.session(SESSION) as session:
                        run = session.run("go")
                        await leaves_at_done(run, disk, leaving)
                else:
                    run = agent.run("go", session=SESSION)
                    await leaves_at_done(run, disk, leaving)
            except Oops:
                assert leaving == "raise"
            assert (run.result.stop_reason, run.result.error) == ("stop", None)
            log = await disk.log()
            assert isinstance(log[-1], AgentEnd)
            assert log[-1].reason == "stop"
        request = await go_on(disk, "prompted elsewhere")
    assert [message.text for message in request.messages] == ["go", "", "", "the last turn", "and now?"]


async def test_a_listener_is_told_of_the_end_when_it_is_durable(autojump_clock: MockClock, disk: Disk) -> None:
    """B70: done is emitted after the terminal record is durable, to whoever listens."""
    seen: list[bool] = []

    async def listen(event: Event) -> None:
        if isinstance(event, AgentEnd):
            seen.append(isinstance((await disk.facts())[-1], AgentEnd))

    with trio.fail_after(HANG):
        async with disk.store() as store:
            async with Agent(ScriptedModel("a", "b"), store=Slow(store, 5)).session(SESSION) as session:
                session.subscribe(listen)
                await session.prompt("go")
                await session.prompt("again")
    assert seen == [True, True]


@pytest.mark.parametrize("settle", [20, 3])
async def test_whenever_it_is_cancelled_what_was_said_is_written_or_its_loss_is_told(
    autojump_clock: MockClock, disk: Disk, settle: float
) -> None:
    """B70: cancel gets a bounded shielded flush."""
    reasons: Counter[str] = Counter()
    for moment in range(30):
        session_id = f"{moment}"
        bench = Bench()
        model = ScriptedModel(call(bench.ok, id="1", seconds=1), say("the last turn", delay=1))
        scope = trio.CancelScope()
        with trio.fail_after(HANG):
            async with disk.store() as store:
                agent = Agent(model, tools=[bench.ok], store=Slow(store, 5), settle_timeout=settle)
                run = agent.run("go", session=session_id)
                with scope:
                    async with run:
                        run.events()
                        with trio.move_on_after(moment + 0.25):
                            await run.wait()
                        cut = trio.current_time()
                        scope.cancel()
                        await run.wait()
                assert trio.current_time() - cut <= settle
        result, log = run.result, await disk.facts(session_id)
        ended = bool(log) and isinstance(log[-1], AgentEnd)
        lost = isinstance(result.error, StoreFailed)
        assert ended != lost
        reasons["lost" if lost else result.stop_reason] += 1
        if not lost:
            check_order(log, facts_only=True)
            assert statuses(log) == {r.call_id: r.status for m in result.messages for r in m.results}
        assert bool(bench.begun) <= any(isinstance(fact, ToolExecutionStart) for fact in log)
        request = await go_on(disk, "prompted elsewhere", session_id)
        told = pairs(request.messages)
        assert told.get("1") in (("ok", "interrupted") if bench.begun else (None, "not_run", "interrupted"))
    assert reasons["stop"] > 0
    assert reasons["cancelled"] > 5 or settle < 5
    assert (reasons["lost"] > 5) == (settle < 5)


async def test_a_session_that_is_left_writes_what_it_was_told_between_runs(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """B70: clean-up cancels no pending save, of whatever kind."""
    with trio.fail_after(HANG):
        async with disk.store() as store:
            agent = Agent(ScriptedModel("a"), store=Slow(store, 5), settle_timeout=20)
            async with agent.session(SESSION) as session, trio.open_nursery() as nursery:
                await session.prompt("go")
                nursery.start_soon(session.steer, "be quick")
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        async with disk.store() as store, Agent(ScriptedModel("b"), store=store).session(SESSION) as session:
            assert [message.text for message in session.state.queued] == ["be quick"]
